package kubetest

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// As gives the credentials of a service account, which must exist: a token by TokenRequest, so that RBAC decides what they may do.
func (e *Env) As(t testing.TB, namespace, serviceAccount string) *rest.Config {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: serviceAccount}}
	token := &authenticationv1.TokenRequest{}
	require.NoError(t, e.Client.SubResource("token").Create(t.Context(), account, token), "make a token of %s/%s", namespace, serviceAccount)
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

// InstallRights makes the namespaces, service accounts and rights of dayone's programs, the node agent's included, as an installation
// does; As can then take on any of them. What is there already stays.
func (e *Env) InstallRights(t testing.TB) {
	t.Helper()
	// Images are demanded of an installation; no pod runs here.
	image := "example.com/dayone/program@sha256:" + strings.Repeat("0", 64)
	objects, err := cluster.Objects(cluster.Options{NodeAgent: true, Images: cluster.Images{Controller: image, Builder: image, Daemon: image}})
	require.NoError(t, err)
	for _, o := range objects {
		switch o.GetKind() {
		case "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
			if err := e.Client.Create(t.Context(), o); !apierrors.IsAlreadyExists(err) {
				require.NoError(t, err, "%s %s", o.GetKind(), o.GetName())
			}
		}
	}
}

// Kubeconfig writes the administrator's kubeconfig (mode 0600) and gives its path; it goes with the test.
func (e *Env) Kubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, e.plane.WriteAdminKubeconfig(path, e.plane.URL()))
	return path
}

// StopAPIServer kills the API server, as a crash does. Clients are refused until StartAPIServer; what was written stays.
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
