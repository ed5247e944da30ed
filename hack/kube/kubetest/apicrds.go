package kubetest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// APICRDs are files of definitions in the module of github.com/openshift/api, by group and version and the file's name
// without its extension, which may have wildcards: config/v1/*_clusteroperators. Each must name one file.
func APICRDs(t testing.TB, names ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(t, err)
	files := make([]string, 0, len(names))
	for _, name := range names {
		group, file := filepath.Split(name)
		found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), group, "zz_generated.crd-manifests",
			file+".crd.yaml"))
		require.NoError(t, err)
		require.Len(t, found, 1, name)
		files = append(files, found...)
	}
	return files
}
