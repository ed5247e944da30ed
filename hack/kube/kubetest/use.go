package kubetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// As gives the credentials of a service account, which must exist: a token by TokenRequest, so that RBAC decides what
// they may do.
func (e *Env) As(t testing.TB, namespace, serviceAccount string) *rest.Config {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: serviceAccount}}
	token := &authenticationv1.TokenRequest{}
	require.NoError(t, e.Client.SubResource("token").Create(t.Context(), account, token), "make a token of %s/%s",
		namespace, serviceAccount)
	config := rest.AnonymousClientConfig(e.Config)
	config.BearerToken = token.Status.Token
	config.QPS = e.Config.QPS
	return config
}

// ClientAs is a client without a cache with the credentials of As.
func (e *Env) ClientAs(t testing.TB, namespace, serviceAccount string) client.Client {
	t.Helper()
	c, err := client.New(e.As(t, namespace, serviceAccount), client.Options{Scheme: e.Scheme})
	require.NoError(t, err)
	return c
}

// Kubeconfig writes the administrator's kubeconfig (mode 0600) and gives its path; it goes with the test.
func (e *Env) Kubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, e.plane.WriteAdminKubeconfig(path, e.plane.URL()))
	return path
}

// StopAPIServer kills the API server, as a crash does. Clients are refused until StartAPIServer; what was written
// stays.
func (e *Env) StopAPIServer(t testing.TB) {
	t.Helper()
	require.NoError(t, e.server.Kill())
}

// StartAPIServer runs it again at the same address and waits until it is ready.
func (e *Env) StartAPIServer(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startTimeout)
	defer cancel()
	require.NoError(t, e.startServer(ctx))
}

// RestartAPIServer is StopAPIServer and StartAPIServer.
func (e *Env) RestartAPIServer(t testing.TB) {
	t.Helper()
	e.StopAPIServer(t)
	e.StartAPIServer(t)
}

// BackUp copies etcd's data while neither etcd nor the API server runs, and gives what brings the copy back in the same
// way: all that was written since is gone, and the API server's revisions begin again where they were.
func (e *Env) BackUp(t testing.TB) (restore func()) {
	t.Helper()
	data, kept := e.plane.EtcdData(), filepath.Join(t.TempDir(), "etcd")
	e.withoutEtcd(t, func() error { return os.CopyFS(kept, os.DirFS(data)) })
	return func() {
		t.Helper()
		e.withoutEtcd(t, func() error {
			return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(kept)))
		})
	}
}

func (e *Env) withoutEtcd(t testing.TB, do func() error) {
	t.Helper()
	e.StopAPIServer(t)
	require.NoError(t, e.etcd.Kill())
	require.NoError(t, do())
	var err error
	e.etcd, err = e.group.Start(e.plane.Etcd())
	require.NoError(t, err)
	e.StartAPIServer(t)
}
