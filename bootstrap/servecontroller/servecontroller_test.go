package servecontroller_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/bootstrap/serve"
	"dayone.dev/dayone/bootstrap/servecontroller"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/firstboot"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m, kubetest.Options{})) }

func image(n int) string { return fmt.Sprintf("r.example.com/os/worker@sha256:%064d", n) }

// fixture is a cluster with a worker pool, and the server's controller under its own service account.
type fixture struct {
	*testing.T
	env    *kubetest.Env
	r      *servecontroller.Reconciler
	server *serve.Server
}

func newFixture(t *testing.T, o servecontroller.Options) *fixture {
	env := shared.Env(t)
	env.InstallRights(t)
	f := &fixture{T: t, env: env}
	t.Cleanup(func() {
		for _, o := range []client.Object{&mcfgv1.MachineOSBuild{}, &mcfgv1.MachineOSConfig{}, &mcfgv1.MachineConfigPool{},
			&mcfgv1.MachineConfig{}, &corev1.Node{}} {
			require.NoError(t, env.Client.DeleteAllOf(context.Background(), o))
		}
	})
	f.r = servecontroller.New(env.ClientAs(t, cluster.DefaultNamespace, cluster.ConfigServer), o)
	var err error
	f.server, err = serve.New(serve.Options{Source: f.r, Pools: []string{"*"}, Registry: o.Proxy})
	require.NoError(t, err)
	f.r.OnChange(f.server.Reload)
	return f
}

// get asks the server as Ignition does, after the controller has looked.
func (f *fixture) get(version string) (int, string, string) {
	f.Helper()
	_, err := f.r.Reconcile(f.Context(), reconcile.Request{})
	require.NoError(f, err)
	code, body, reason := ask(f.server, version)
	return code, plain(f, body), reason
}

// plain undoes the escaping of the files in an answer.
func plain(t require.TestingT, body string) string {
	out, err := url.PathUnescape(body)
	require.NoError(t, err)
	return out
}

func ask(s *serve.Server, version string) (int, string, string) {
	r := httptest.NewRequest(http.MethodGet, "/config/worker", nil)
	r.Header.Set("Accept", "application/vnd.coreos.ignition+json;version="+version)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String(), w.Header().Get("Dayone-Reason")
}

func (f *fixture) create(o client.Object) {
	f.Helper()
	require.NoError(f, f.env.Client.Create(f.Context(), o))
}

func (f *fixture) config(name string) {
	f.Helper()
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigSpec{OSImageURL: "r.example.com/stock@sha256:" + strings.Repeat("a", 64)}}
	mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
	f.create(mc)
}

func (f *fixture) pool(desired, settled string) {
	f.Helper()
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	missing := f.env.Client.Get(f.Context(), client.ObjectKeyFromObject(p), p) != nil
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}}
	p.Spec.Configuration.Name = desired
	if missing {
		f.create(p)
	} else {
		require.NoError(f, f.env.Client.Update(f.Context(), p))
	}
	p.Status.Configuration.Name = settled
	require.NoError(f, f.env.Client.Status().Update(f.Context(), p))
}

func (f *fixture) node(name, config, image string) {
	f.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	missing := f.env.Client.Get(f.Context(), client.ObjectKeyFromObject(n), n) != nil
	n.Labels = map[string]string{"node-role.kubernetes.io/worker": ""}
	n.Annotations = map[string]string{manifests.AnnotationCurrentConfig: config, manifests.AnnotationDesiredConfig: config,
		manifests.AnnotationState:        "Done",
		manifests.AnnotationCurrentImage: image, manifests.AnnotationDesiredImage: image}
	if missing {
		f.create(n)
		return
	}
	require.NoError(f, f.env.Client.Update(f.Context(), n))
}

// layer opts the pool in; with an image it has been built for a config.
func (f *fixture) layer(build, config, image string) {
	f.Helper()
	m := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	if f.env.Client.Get(f.Context(), client.ObjectKeyFromObject(m), m) != nil {
		m.Spec = mcfgv1.MachineOSConfigSpec{MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: "worker"},
			ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
			RenderedImagePushSpec:   "r.example.com/os/worker:x"}
		f.create(m)
	}
	if image == "" {
		return
	}
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: build,
		Labels: map[string]string{manifests.LabelRenderedMachineConfig: config, manifests.LabelTargetPool: "worker"}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: config},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: "worker"},
			RenderedImagePushSpec: "r.example.com/os/worker:x"}}
	f.create(b)
	start, end := metav1.NewTime(time.Now().Add(-time.Minute)), metav1.Now()
	b.Status = mcfgv1.MachineOSBuildStatus{BuildStart: &start, BuildEnd: &end,
		DigestedImagePushSpec: mcfgv1.ImageDigestFormat(image),
		Builder: &mcfgv1.MachineOSBuilderReference{ImageBuilderType: mcfgv1.JobBuilder,
			Job: &mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: "x", Name: "y"}},
		Conditions: []metav1.Condition{{Type: string(mcfgv1.MachineOSBuildSucceeded), Status: metav1.ConditionTrue,
			Reason: "Ready", LastTransitionTime: end}}}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), b))
	m.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(image)
	m.Status.MachineOSBuild = &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds", Name: build}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), m))
}

// TestNewNodesGetImageAtFirstBoot follows a pool from opt-in over a rollout.
func TestNewNodesGetImageAtFirstBoot(t *testing.T) {
	f := newFixture(t, servecontroller.Options{})
	const one, two = "rendered-worker-1", "rendered-worker-2"
	f.config(one)
	f.pool(one, "")
	code, body, _ := f.get("3.5.0")
	require.Equal(t, http.StatusOK, code)
	assert.NotContains(t, body, "currentImage", "a pool that is not layered")

	f.layer("", "", "")
	code, body, reason := f.get("3.5.0")
	assert.Equal(t, http.StatusServiceUnavailable, code, "stock now would be a third boot later: Ignition asks again")
	assert.Empty(t, body)
	assert.Contains(t, reason, "has not been built yet")

	f.layer("b1", one, image(1))
	code, body, _ = f.get("3.5.0")
	require.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, image(1))
	assert.Contains(t, body, "currentImage")
	assert.NotContains(t, body, "r.example.com/stock")

	f.node("w1", one, image(1))
	f.pool(one, one)
	f.config(two)
	f.pool(two, one)
	code, body, _ = f.get("3.5.0")
	require.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, one, "while the new config's image is being built new nodes are like the others")
	f.layer("b2", two, image(2))
	_, body, _ = f.get("3.5.0")
	assert.Contains(t, body, image(1), "an image that no node has proved is given to nobody at birth")
	assert.NotContains(t, body, image(2))
	f.node("w1", two, image(2))
	_, body, _ = f.get("3.5.0")
	assert.Contains(t, body, image(2))
	assert.Contains(t, body, two)
}

// TestBytesAreThoseOfBootstrap serves a rendered directory and, from an API server, the objects that it was made of.
func TestBytesAreThoseOfBootstrap(t *testing.T) {
	f := newFixture(t, servecontroller.Options{})
	set, err := manifests.Read([]byte(`apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: worker}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineOSConfig
metadata: {name: worker, annotations: {machineconfiguration.openshift.io/pre-built-image: "`+image(7)+`"}}
spec: {machineConfigPool: {name: worker}}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-a, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  kernelArguments: [quiet]
  config:
    ignition: {version: 3.5.0}
    kernelArguments: {shouldExist: [a=b]}
    storage: {files: [{path: /etc/a, mode: 420, contents: {source: "data:,%3Ca%3E"}}]}
`), "in.yaml", manifests.ReadOptions{})
	require.NoError(t, err)
	versions := render.Versions{Raw: "v1", Hash: "h", Payload: "1.0.0"}
	render.StandaloneInputs(set, "base", versions)
	result, err := render.Render(set, render.Options{Versions: versions})
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "rendered")
	require.NoError(t, render.Write(dir, set, result))
	bootstrap, err := serve.New(serve.Options{BaseDir: dir, Pools: []string{"*"}})
	require.NoError(t, err)

	mc := result.Configs[0].DeepCopy()
	f.pool(mc.Name, "")
	var pool mcfgv1.MachineConfigPool
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: "worker"}, &pool))
	mc.OwnerReferences[0].UID = pool.UID
	f.create(mc)
	f.layer("b7", mc.Name, image(7))
	for _, version := range []string{"3.5.0", "3.4.0", "3.2.0", "2.2.0"} {
		code, want, _ := ask(bootstrap, version)
		require.Equal(t, http.StatusOK, code)
		code, _, reason := f.get(version)
		require.Equal(t, http.StatusOK, code, reason)
		_, raw, _ := ask(f.server, version)
		assert.Equal(t, want, raw, version)
	}
}

func TestProxyForImageInCluster(t *testing.T) {
	proxy := &servecontroller.Proxy{Password: "token"}
	f := newFixture(t, servecontroller.Options{FirstBoot: &firstboot.IgnitionOptions{}, Proxy: proxy,
		ProxyAddress: "192.0.2.1:22623", ProxyCA: []byte("CA")})
	inside := "registry.images.svc:5000/os/worker@sha256:" + strings.Repeat("b", 64)
	f.config("rendered-worker-1")
	f.pool("rendered-worker-1", "")
	f.layer("b1", "rendered-worker-1", inside)
	code, body, _ := f.get("3.5.0")
	require.Equal(t, http.StatusOK, code)
	for _, path := range []string{firstboot.MirrorPath, "/etc/containers/certs.d/192.0.2.1:22623/ca.crt",
		firstboot.PullAuthPath, firstboot.UnitName} {
		assert.Contains(t, body, path)
	}
	w := httptest.NewRecorder()
	f.server.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2/", nil))
	assert.Equal(t, http.StatusUnauthorized, w.Code)
}

// TestPullsThroughTheProxy lets the node's own code look at an image through the server, which alone has the registry's
// account.
func TestPullsThroughTheProxy(t *testing.T) {
	g := deploytest.StartRegistry(t)
	pushed := g.Push(t, deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("1")...)),
		"os/worker")
	other := g.Push(t, deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("2")...)), "os/other")
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(g.Authority.PEM))
	proxy := &servecontroller.Proxy{Password: "token", Keychain: account{},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	path, err := proxy.Allow(pushed)
	require.NoError(t, err)
	assert.Equal(t, "os/worker", path)
	front := httptest.NewTLSServer(proxy)
	t.Cleanup(front.Close)
	address := front.Listener.Addr().String()
	root := t.TempDir()
	certs := filepath.Join(root, "certs.d", address)
	require.NoError(t, os.MkdirAll(certs, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(certs, "ca.crt"),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}), 0o600))
	auth := filepath.Join(root, "auth.json")
	require.NoError(t, os.WriteFile(auth, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, address,
		base64.StdEncoding.EncodeToString([]byte(servecontroller.NodeUser+":token"))), 0o600))
	o := pull.Options{Root: root, CertsDir: filepath.Join(root, "certs.d"), AuthFile: auth}
	found, err := pull.Inspect(t.Context(), strings.Replace(pushed, g.Addr, address, 1), o)
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(pushed, found.ManifestDigest.String()))
	key := deploytest.NewKey(t)
	for path, content := range map[string][]byte{"policy.json": deploytest.Policy(address, deploytest.Required(key)),
		"etc/containers/registries.d/x.yaml": deploytest.Attachments(address)} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), content, 0o600))
	}
	o.Policies = []string{filepath.Join(root, "policy.json")}
	_, err = pull.Inspect(t.Context(), strings.Replace(pushed, g.Addr, address, 1), o)
	assert.Equal(t, deploy.ClassUnsigned, deploy.ClassOf(err), "%v", err)
	g.Sign(t, key, pushed, strings.Replace(pushed, g.Addr, address, 1))
	_, err = pull.Inspect(t.Context(), strings.Replace(pushed, g.Addr, address, 1), o)
	require.NoError(t, err, "signatures come through it, too")
	o.Policies = nil
	_, err = pull.Inspect(t.Context(), strings.Replace(other, g.Addr, address, 1), o)
	assert.Equal(t, deploy.ClassNotFound, deploy.ClassOf(err), "only served images are passed on: %v", err)
	o.AuthFile = filepath.Join(root, "none.json")
	require.NoError(t, os.WriteFile(o.AuthFile, []byte(`{"auths":{}}`), 0o600))
	_, err = pull.Inspect(t.Context(), strings.Replace(pushed, g.Addr, address, 1), o)
	assert.Equal(t, deploy.ClassUnauthorized, deploy.ClassOf(err), "%v", err)
}

// TestProxyPassesServedImagesOnly asks for paths that mean another repository to a registry that cleans them.
func TestProxyPassesServedImagesOnly(t *testing.T) {
	var reached []string
	registry := roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path != "/v2/" {
			reached = append(reached, r.URL.EscapedPath())
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	proxy := &servecontroller.Proxy{Password: "token", Transport: registry}
	const digest = "sha256:" + "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
	_, err := proxy.Allow("registry.images.svc:5000/os/worker@" + digest)
	require.NoError(t, err)
	ask := func(path string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.SetBasicAuth(servecontroller.NodeUser, "token")
		w := httptest.NewRecorder()
		proxy.ServeHTTP(w, r)
		return w.Code
	}
	for _, path := range []string{
		"/v2/os/worker/blobs/sha256:x/../../../other/manifests/" + digest,
		"/v2/os/worker/blobs/sha256:x/../../../other/tags/list",
		"/v2/os/worker/manifests/sha256:x/%2e%2e/%2e%2e/%2e%2e/other/manifests/" + digest,
		"/v2/os/worker/manifests/" + digest + "/../../../other/manifests/latest",
		"/v2/os%2Fworker/manifests/" + digest,
		"/v2/os/worker/manifests/sha256:short",
		"/v2/os/worker/manifests/latest",
		"/v2/os/worker/manifests/sha256-short.sig",
		"/v2/os/worker/blobs/" + strings.Replace(digest, ":", "-", 1) + ".sig",
		"/os/worker/manifests/" + digest,
	} {
		assert.Equal(t, http.StatusNotFound, ask(path), path)
	}
	assert.Empty(t, reached)
	for _, path := range []string{"/v2/os/worker/manifests/" + digest, "/v2/os/worker/blobs/" + digest} {
		assert.Equal(t, http.StatusOK, ask(path), path)
		assert.Contains(t, reached, path)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// account is the registry's only one.
type account struct{}

func (account) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: deploytest.User, Password: deploytest.Password}, nil
}
