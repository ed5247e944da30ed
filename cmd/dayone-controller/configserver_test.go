package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/certs"
)

// TestNewNodesAreServedByTheProgram runs the config server as a process with its own rights alone, on a real API server.
func TestNewNodesAreServedByTheProgram(t *testing.T) {
	e := shared.Env(t)
	e.InstallRights(t)
	rendered := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-served-1"}}
	rendered.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "served"}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/served": ""}}
	pool.Spec.Configuration.Name = rendered.Name
	for _, o := range []client.Object{rendered, pool} {
		require.NoError(t, e.Client.Create(t.Context(), o))
		t.Cleanup(func() { _ = e.Client.Delete(context.Background(), o) })
	}
	address := freeAddress(t)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], "config-server", "--kubeconfig", kubeconfig(t, e.As(t, cluster.DefaultNamespace, cluster.ConfigServer)),
		"--listen", address, "--host", "127.0.0.1", "--bootstrap-kubeconfig", "/nowhere", "--pull-secret", "/nowhere", "--metrics-address", "0", "--probe-address", "0")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		text, _ := os.ReadFile(log.Name())
		require.NoError(t, cmd.Wait(), string(text))
		assert.NotContains(t, string(text), "forbidden")
	})
	var secret corev1.Secret
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, e.Client.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.ConfigServer}, &secret))
	}, waitLimit, waitEvery)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(secret.Data[certs.CACertFile]))
	web := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
	ask := func(token string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/config/served", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := web.Do(r)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, http.StatusOK, ask(string(secret.Data[cluster.ConfigServerToken])))
	}, waitLimit, waitEvery)
	assert.Equal(t, http.StatusForbidden, ask("guessed"))
}
