package kubetest

import (
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RenderedConfigs lists the names of the rendered MachineConfigs in a cluster.
func RenderedConfigs(t testing.TB, c client.Client) (names []string) {
	t.Helper()
	var all mcfgv1.MachineConfigList
	require.NoError(t, c.List(t.Context(), &all))
	for _, m := range all.Items {
		if strings.HasPrefix(m.Name, "rendered-") {
			names = append(names, m.Name)
		}
	}
	return names
}
