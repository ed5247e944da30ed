package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube"
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
	config.Wrap(e.fence.wrap)
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

// BackUp takes a snapshot of etcd as etcdctl does, and gives what restores it with etcdutl and further arguments of
// that, while neither etcd nor the API server runs: all that was written since is gone, and without --bump-revision the
// API server's revisions begin again where they were.
func (e *Env) BackUp(t testing.TB) (restore func(args ...string)) {
	t.Helper()
	etcdutl, err := kube.Etcdutl(t.Context())
	require.NoError(t, err)
	kept := filepath.Join(t.TempDir(), "snapshot.db")
	require.NoError(t, e.snapshot(t.Context(), kept))
	return func(args ...string) {
		t.Helper()
		e.withoutEtcd(t, func() error {
			if err := os.RemoveAll(e.plane.EtcdData()); err != nil {
				return err
			}
			out, err := exec.CommandContext(t.Context(), etcdutl, append([]string{"snapshot", "restore", kept, "--data-dir",
				e.plane.EtcdData()}, args...)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
}

// snapshot writes what etcd's gateway streams: pieces of the database, and its hash at the end
// (etcd's rpc.proto, Maintenance.Snapshot).
func (e *Env) snapshot(ctx context.Context, to string) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.plane.EtcdURL()+"/v3/maintenance/snapshot",
		strings.NewReader("{}"))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("take snapshot of etcd: %w", err)
	}
	defer answer.Body.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for in := json.NewDecoder(answer.Body); ; {
		var piece struct {
			Result struct{ Blob []byte }
			Error  json.RawMessage
		}
		if err := in.Decode(&piece); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil || piece.Error != nil {
			return fmt.Errorf("take snapshot of etcd: %s: %w: %s", answer.Status, err, piece.Error)
		}
		if _, err := f.Write(piece.Result.Blob); err != nil {
			return err
		}
	}
}

func (e *Env) withoutEtcd(t testing.TB, do func() error) {
	t.Helper()
	e.StopAPIServer(t)
	require.NoError(t, e.etcd.Kill())
	require.NoError(t, do())
	require.NoError(t, e.startEtcd())
	e.StartAPIServer(t)
}
