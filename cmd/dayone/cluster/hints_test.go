package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/manifests/clusterinstall"
	"dayone.dev/dayone/registry/registrytest"
)

// TestClusterErrorHints goes through the sub-commands with API servers that refuse
// or are not there.
func TestClusterErrorHints(t *testing.T) {
	refuse := func(code int, reason string) *httptest.Server {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":%q,"code":%d}`, reason,
				code)
		}))
		t.Cleanup(server.Close)
		return server
	}
	hangsUp := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(hangsUp.Close)
	gone := fmt.Sprintf("http://127.0.0.1:%d", registrytest.Port(t))
	dir := t.TempDir()
	for _, c := range []struct {
		name      string
		url, want string
	}{
		{"refuses who asks", refuse(http.StatusUnauthorized, "Unauthorized").URL, "log in again"},
		{"refuses what", refuse(http.StatusForbidden, "Forbidden").
			URL, "rights of a cluster administrator|the kubeconfig's user has no permission"},
		{"is not to be seen", gone, "is the API server running"},
		{"hangs up", hangsUp.URL, "is the API server running"},
	} {
		kubeconfig := filepath.Join(dir, strings.ReplaceAll(c.name, " ", "-"))
		require.NoError(t, os.WriteFile(kubeconfig,
			[]byte(`{"apiVersion":"v1","kind":"Config","current-context":"a","clusters":[{"name":"a","cluster":`+
				`{"server":"`+c.url+`"}}],"users":[{"name":"a","user":{"token":"a"}}],`+
				`"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}]}`),
			0o600))
		for _, command := range []string{"install --image registry.test/a", "upgrade", "status", "uninstall --yes",
			"logs worker", "plan", "why n", "policies"} {
			t.Run(c.name+"/"+command, func(t *testing.T) {
				code, _, errs := dayone(t, append([]string{"cluster", "--kubeconfig", kubeconfig}, strings.Fields(command)...)...)
				assert.Equal(t, cli.ExitFailed, code)
				assert.Regexp(t, c.want, errs)
				assert.Equal(t, 1, strings.Count(errs, "("), "one hint and no more: %s", errs)
			})
		}
	}
}

func TestImagesThatAreMissingAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"":                                      "--image is required",
		"--mode guide":                          "none of advisor, builder, full",
		"--image a --mode advisor --node-agent": "mode advisor has no use for the node agent",
		"--image a --mode builder --base-image a":                       "mode builder has no use for a base image",
		"--image a --mode builder -n elsewhere":                         "works in openshift-machine-config-operator only",
		"--image a --mode advisor -n openshift-machine-config-operator": "an advisor keeps out of it",
		"--image controller=a":                                          "--image builder=REF is required",
		"--image builder=a":                                             "--image controller=REF is required",
		"--node-agent --image controller=a --image builder=b":           "also require --image daemon=REF",
		"--image a --base-image registry.test/os:1":                     "by digest",
		"--image a --builder-arg=--namespace=other":                     "the installation sets it",
	} {
		t.Run(args, func(t *testing.T) {
			code, _, errs := dayone(t, append([]string{"cluster", "install", "--dry-run"}, strings.Fields(args)...)...)
			assert.Equal(t, cli.ExitUsage, code)
			assert.Contains(t, errs, want)
		})
	}
}

// TestHelpSaysTheDefaultsOfItsCommand: upgrade keeps what it is not told, and manifests asks no cluster for its mode.
func TestHelpSaysTheDefaultsOfItsCommand(t *testing.T) {
	help := func(command string) string {
		code, out, _ := dayone(t, "cluster", command, "--help")
		require.Zero(t, code)
		return strings.Join(strings.Fields(out), " ")
	}
	mode := "full (dayone does its work)"
	assert.Contains(t, help("install"), mode+"; default: what is installed, else advisor where one runs, else full")
	assert.Contains(t, help("manifests"), mode+" (default full)")
	upgrade := help("upgrade")
	assert.Contains(t, upgrade, mode+": only the one that is installed")
	for _, usual := range []string{"else full", "default 2", "default: there are none", "default: the cluster's"} {
		assert.Contains(t, help("install"), usual)
		assert.NotContains(t, upgrade, usual)
	}
}

// What goes is said whether or not a pool has opted in, and where.
func TestUninstallSaysWhatGoes(t *testing.T) {
	target := clusterinstall.Target{Namespace: "ns", Config: &rest.Config{Host: "https://api.example.com:6443"}}
	var out strings.Builder
	warn(&out, target, nil, true)
	assert.Contains(t, out.String(), "namespace ns of the cluster at https://api.example.com:6443")
	assert.Contains(t, out.String(), "pools and MachineConfigs will be deleted")
	out.Reset()
	warn(&out, target, []string{"infra"}, false)
	assert.Contains(t, out.String(), "Opted in by MachineOSConfigs: infra")
	assert.NotContains(t, out.String(), "deleted")
}
