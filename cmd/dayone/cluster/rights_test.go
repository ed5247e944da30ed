package cluster

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube/kubetest"
)

// Every command that asks a cluster says which verb on which resource its user lacks.
func TestAKubeconfigWithoutRights(t *testing.T) {
	e := shared.New(t)
	require.NoError(t, e.Client.Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nobody"}}))
	user := e.As(t, "default", "nobody")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: a,
  clusters: [{name: a, cluster: {server: "`+user.Host+`", certificate-authority-data: `+base64.StdEncoding.EncodeToString(user.CAData)+`}}],
  users: [{name: a, user: {token: `+user.BearerToken+`}}], contexts: [{name: a, context: {cluster: a, user: a}}]}`),
		0o600))
	arguments := map[string]string{"install": "--image registry.test/a", "uninstall": "--yes", "logs": "worker",
		"registry rotate": "--all", "registry add": "oci:none os/x --ca /dev/null --authfile /dev/null",
		"why": "worker", "registry export": "--to " + t.TempDir() + " --ca /dev/null --authfile /dev/null"}
	local := map[string]bool{"manifests": true}
	asked := 0
	for _, path := range below(Command("v0"), "") {
		if local[path] || strings.HasPrefix(path, "file ") {
			continue
		}
		asked++
		t.Run(path, func(t *testing.T) {
			args := append(strings.Fields("cluster "+path+" "+arguments[path]), "--kubeconfig", kubeconfig)
			code, _, errs := dayone(t, args...)
			assert.Equal(t, cli.ExitFailed, code)
			assert.Regexp(t, `system:serviceaccount:default:nobody" cannot [a-z]+ resource "[a-z]+"`, errs)
			assert.Regexp(t, "rights of a cluster administrator|use another user", errs)
		})
	}
	assert.Greater(t, asked, 8)
	t.Run("completions", func(t *testing.T) { completesNames(t, e, kubeconfig) })
}

// Shells complete names of the cluster's objects, and nothing where the user may not see them.
func completesNames(t *testing.T, e *kubetest.Env, withoutRights string) {
	for _, o := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-0"}},
		&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "infra"}},
		machineOSConfig("worker"),
	} {
		require.NoError(t, e.Client.Create(t.Context(), o))
	}
	admin := e.Kubeconfig(t)
	for words, want := range map[string]string{
		"why ":            "infra\nworker-0\n:4\n",
		"why worker-0 ":   ":4\n",
		"logs ":           "worker\n:4\n",
		"plan --pool ":    "infra\n:4\n",
		"logs w --build ": ":4\n",
	} {
		args := append([]string{"__complete", "cluster", "--kubeconfig", admin}, strings.Split(words, " ")...)
		code, out, errs := dayone(t, args...)
		assert.Equal(t, cli.ExitOK, code, errs)
		assert.Equal(t, want, out, words)
		args[3] = withoutRights
		_, out, _ = dayone(t, args...)
		assert.Equal(t, ":4\n", out, words)
	}
}

// below are the paths of the commands that do something.
func below(c *cobra.Command, path string) (out []string) {
	for _, sub := range c.Commands() {
		at := strings.TrimSpace(path + " " + sub.Name())
		if sub.HasSubCommands() {
			out = append(out, below(sub, at)...)
		} else {
			out = append(out, at)
		}
	}
	return out
}
