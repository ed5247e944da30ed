package servecontroller_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/bootstrap/servecontroller"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
)

// pullSecret is one whose account names itself.
func pullSecret(name string) []byte {
	return []byte(`{"auths":{"r.example.com":{"auth":"` + base64.StdEncoding.EncodeToString([]byte(name+":secret")) +
		`"}}}`)
}

// TestNewPullSecret changes the pull secret while the server is at work; nothing else changes in the
// cluster.
func TestNewPullSecret(t *testing.T) {
	f := newFixture(t, servecontroller.Options{FirstBoot: &firstboot.IgnitionOptions{PullAuth: pullSecret("old")}})
	f.config("rendered-worker-1")
	f.pool("rendered-worker-1", "")
	f.layer("b1", "rendered-worker-1", image(1))
	code, before, _ := f.get("3.5.0")
	require.Equal(t, http.StatusOK, code)

	answers := make(chan struct{}, 16)
	f.r.OnChange(func() {
		f.server.Reload()
		answers <- struct{}{}
	})
	mgr, err := ctrl.NewManager(f.env.As(t, cluster.DefaultNamespace, cluster.ConfigServer),
		ctrl.Options{Scheme: f.env.Scheme,
			Metrics: metricsserver.Options{BindAddress: "0"}, Controller: kubetest.Controllers()})
	require.NoError(t, err)
	require.NoError(t, f.r.SetupWithManager(mgr))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }()
	f.r.SetPullAuth(pullSecret("new"))
	select {
	case <-answers:
	case err := <-ended:
		require.NoError(t, err, "the manager ended")
	}
	code, body, _ := ask(f.server, "3.5.0")
	require.Equal(t, http.StatusOK, code)
	after := plain(t, body)
	assert.NotEqual(t, before, after)
	_, same, _ := f.get("3.5.0")
	assert.Equal(t, after, same)
}

// TestANewAccountIsUsedAtOnce takes a registry that refuses the account that the server began with.
func TestANewAccountIsUsedAtOnce(t *testing.T) {
	g := deploytest.StartRegistry(t)
	pushed := g.Push(t, deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("1")...)),
		"os/worker")
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(g.Authority.PEM))
	proxy := &servecontroller.Proxy{Password: "token", Keychain: wrong{},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	path, err := proxy.Allow(pushed)
	require.NoError(t, err)
	_, digest, _ := strings.Cut(pushed, "@")
	ask := func() int {
		r := httptest.NewRequest(http.MethodGet, "/v2/"+path+"/manifests/"+digest, nil)
		r.SetBasicAuth(servecontroller.NodeUser, "token")
		w := httptest.NewRecorder()
		proxy.ServeHTTP(w, r)
		return w.Code
	}
	assert.NotEqual(t, http.StatusOK, ask())
	proxy.SetKeychain(account{})
	assert.Equal(t, http.StatusOK, ask())
	proxy.SetKeychain(wrong{})
	assert.NotEqual(t, http.StatusOK, ask(), "what was logged in before is not kept")
}

// wrong is an account that the registry does not have.
type wrong struct{}

func (wrong) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: "nobody", Password: "wrong"}, nil
}
