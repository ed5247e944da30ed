package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/certs"
)

// servedCluster is a pool without nodes, and the config server as a process with its own rights alone.
type servedCluster struct {
	*testing.T
	env     *kubetest.Env
	address string
	probes  string
	secret  corev1.Secret
	web     *http.Client
}

func serveCluster(t *testing.T, e *kubetest.Env, args ...string) *servedCluster {
	t.Helper()
	rendered := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-served-1"}}
	rendered.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "served"}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/served": ""}}
	pool.Spec.Configuration.Name = rendered.Name
	for _, o := range []client.Object{rendered, pool} {
		require.NoError(t, e.Client.Create(t.Context(), o))
		t.Cleanup(func() { _ = e.Client.Delete(context.Background(), o) })
	}
	s := &servedCluster{T: t, env: e, address: freeAddress(t), probes: freeAddress(t)}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0],
		append([]string{"config-server", "--kubeconfig",
			kubeconfig(t, e.As(t, cluster.DefaultNamespace, cluster.ConfigServer)),
			"--listen", s.address, "--host", "127.0.0.1", "--pull-secret", "/nowhere", "--metrics-address", "0",
			"--probe-address", s.probes}, args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		text, _ := os.ReadFile(log.Name())
		require.NoError(t, cmd.Wait(), string(text))
		assert.NotContains(t, string(text), "forbidden")
		assert.NotContains(t, string(text), "eyJ", "a token begins like this")
	})
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		code, text := fetch(c, s.probes, "/readyz")
		assert.Equal(c, http.StatusOK, code, text)
	}, waitLimit, waitEvery)
	require.NoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace,
		Name: cluster.ConfigServer}, &s.secret))
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(s.secret.Data[certs.CACertFile]))
	s.web = &http.Client{Timeout: waitLimit, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
		MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
	return s
}

// ask is Ignition's question for the pool's config.
func (s *servedCluster) ask(token string) (int, []byte) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "https://"+s.address+"/config/served", nil)
	require.NoError(s, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "application/vnd.coreos.ignition+json;version=3.5.0")
	resp, err := s.web.Do(r)
	require.NoError(s, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	return resp.StatusCode, raw
}

// TestNewNodesAreServedByTheProgram asks a server that nobody has told where the API server is.
func TestNewNodesAreServedByTheProgram(t *testing.T) {
	e := shared.Env(t)
	e.InstallRights(t)
	s := serveCluster(t, e, "--bootstrap-kubeconfig", "/nowhere")
	code, body := s.ask(string(s.secret.Data[cluster.ConfigServerToken]))
	assert.Equal(t, http.StatusOK, code, "a server that is ready has what it serves")
	assert.NotContains(t, string(body), "/etc/kubernetes/kubeconfig")
	code, _ = s.ask("guessed")
	assert.Equal(t, http.StatusForbidden, code)
}
