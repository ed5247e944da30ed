package openshift_test

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) {
	testnode.Init()
	os.Exit(shared.Main(m, kubetest.Options{}))
}

// world is the network of one installation: its bootstrap node, and on the host beside it the release's registry, the API server and a
// file server.
type world struct {
	t    *testing.T
	lab  *testnode.Lab
	node *testnode.Node
	// host is the address beside the node; bin has the program; served is what the file server gives.
	host, bin, served string
	base, baseCA      string
	pullSecret        []byte
	files             []map[string]any
}

func newWorld(t *testing.T) *world {
	t.Helper()
	switch {
	case testing.Short():
		t.Skip("boots a node: left out with -short")
	case os.Geteuid() != 0 && os.Getenv("CI") == "":
		t.Skip("needs root: it boots a node in namespaces")
	}
	w := &world{t: t, bin: filepath.Join(t.TempDir(), "dayone"), served: t.TempDir()}
	cmd := exec.Command("go", "build", "-trimpath", "-o", w.bin, "./cmd/dayone")
	cmd.Dir, cmd.Env = "../../..", append(os.Environ(), "CGO_ENABLED=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	debian, err := baseimage.Ensure(t.Context(), baseimage.Debian, "")
	require.NoError(t, err)
	w.lab, err = testnode.New(t.Context(), testnode.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.lab.Close(context.Background())) })
	w.host = w.lab.Network.Bootstrap().String()
	w.node, err = w.lab.NewNode(t.Context(), "boot0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: debian}})
	require.NoError(t, err)
	w.release()
	w.fileServer()
	w.kubernetes()
	return w
}

// listen gives a listener on the host beside the node.
func (w *world) listen(port int) (l net.Listener) {
	require.NoError(w.t, w.lab.Network.Do(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf("%s:%d", w.host, port))
		return err
	}))
	w.t.Cleanup(func() { _ = l.Close() })
	return l
}

// release is a registry with the release's OS image.
func (w *world) release() {
	layout, err := baseimage.Ensure(w.t.Context(), baseimage.Tiny, "")
	require.NoError(w.t, err)
	user, err := registry.NewUser("push", registry.RolePush)
	require.NoError(w.t, err)
	o := registry.Options{Root: filepath.Join(w.t.TempDir(), "release"), Listen: w.host + ":9600", Hosts: []string{w.host}, Users: []registry.User{user}}
	srv, err := registry.New(o)
	require.NoError(w.t, err)
	require.NoError(w.t, w.lab.Network.Do(srv.Start))
	w.t.Cleanup(func() { require.NoError(w.t, srv.Shutdown(context.Background())) })
	auth := filepath.Join(w.t.TempDir(), "auth.json")
	registrytest.WriteAuthFile(w.t, auth, w.host+":9600", user)
	name := w.host + ":9600/ocp/base-os"
	out, err := w.lab.Network.Command(w.t.Context(), w.bin, "registry", "copy", "oci:"+layout, "docker://"+name+":1", "--dest-ca", o.CAFile(), "--dest-authfile", auth).CombinedOutput()
	require.NoError(w.t, err, string(out))
	digest, err := baseimage.Digest(layout)
	require.NoError(w.t, err)
	w.base = name + "@" + digest.String()
	ca, err := os.ReadFile(o.CAFile())
	require.NoError(w.t, err)
	w.baseCA = string(ca)
	w.pullSecret, err = os.ReadFile(auth)
	require.NoError(w.t, err)
}

func (w *world) fileServer() {
	l := w.listen(8080)
	srv := &http.Server{Handler: http.FileServer(http.Dir(w.served))}
	go func() { _ = srv.Serve(l) }()
	w.t.Cleanup(func() { _ = srv.Close() })
}

// kubernetes passes port 6443 beside the node on to a real API server that has what cluster-bootstrap creates.
func (w *world) kubernetes() {
	env := shared.Env(w.t)
	for _, o := range []string{"openshift-config", "openshift-machine-config-operator"} {
		require.NoError(w.t, client.IgnoreAlreadyExists(env.Client.Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o}})))
	}
	require.NoError(w.t, client.IgnoreNotFound(env.Client.Delete(w.t.Context(), w.secret()))) // an earlier run's
	require.NoError(w.t, env.Client.Create(w.t.Context(), w.secret()))
	api, err := url.Parse(env.Config.Host)
	require.NoError(w.t, err)
	l := w.listen(6443)
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("tcp", api.Host)
				if err != nil {
					return
				}
				defer out.Close()
				go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
}

func (w *world) secret() *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "pull-secret"},
		Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: w.pullSecret}}
}

// put adds a file to the installer's bootstrap.ign.
func (w *world) put(path string, mode int, content []byte) {
	w.files = append(w.files, map[string]any{"path": path, "mode": mode, "overwrite": true, "contents": map[string]any{"source": *machineconfig.Inline(content).Source}})
}

// fetched adds a file of this machine, by URL and digest: programs are too large for the config.
func (w *world) fetched(path, from string) (address, hash string) {
	raw, err := os.ReadFile(from)
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(filepath.Join(w.served, filepath.Base(from)), raw, 0o644))
	sum := sha512.Sum512(raw)
	address, hash = "http://"+w.host+":8080/"+filepath.Base(from), hex.EncodeToString(sum[:])
	if path != "" {
		w.files = append(w.files, map[string]any{"path": path, "mode": 0o755, "overwrite": true,
			"contents": map[string]any{"source": address, "verification": map[string]any{"hash": "sha512-" + hash}}})
	}
	return address, hash
}

var library = regexp.MustCompile(`=> (/\S+)`)

// installer is the bootstrap.ign that openshift-install would make, as far as it matters here.
func (w *world) installer() []byte {
	entries, err := os.ReadDir("testdata/node")
	require.NoError(w.t, err)
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join("testdata/node", e.Name()))
		require.NoError(w.t, err)
		w.put("/usr/local/bin/"+e.Name(), 0o555, raw)
	}
	w.put("/root/.docker/config.json", 0o600, w.pullSecret)
	w.put("/etc/ssl/certs/release-registry.pem", 0o644, []byte(w.baseCA))
	w.put("/opt/openshift/fixture/base-image", 0o644, []byte(w.base))
	w.put("/opt/openshift/fixture/machineconfigoperator-bootstrap-pod.yaml", 0o644, []byte("apiVersion: v1\nkind: Pod\nspec:\n  initContainers:\n  - name: controller\n    image: mco\n"+
		"    command: [machine-config-controller]\n    args: [bootstrap, --manifest-dir=/etc/mcc/bootstrap, --dest-dir=/etc/mcs/bootstrap, --payload-version=test]\n"))
	kubeconfig, err := os.ReadFile(shared.Env(w.t).Kubeconfig(w.t))
	require.NoError(w.t, err)
	server := regexp.MustCompile(`(?m)^(\s*)server: .*$`)
	w.put("/opt/openshift/auth/kubeconfig-loopback", 0o600, server.ReplaceAll(kubeconfig, []byte("${1}server: https://"+w.host+":6443\n${1}tls-server-name: 127.0.0.1")))
	w.manifests()
	// nftables is part of a real node's userland; Debian's base image has none.
	nft, err := exec.LookPath("nft")
	require.NoError(w.t, err, "run hack/setup/setup.sh test")
	w.fetched("/usr/sbin/nft", nft)
	out, err := exec.Command("ldd", nft).Output()
	require.NoError(w.t, err)
	for _, m := range library.FindAllStringSubmatch(string(out), -1) {
		if base := filepath.Base(m[1]); !strings.HasPrefix(base, "libc.") && !strings.HasPrefix(base, "ld-") {
			w.fetched("/usr"+strings.TrimPrefix(m[1], "/usr"), m[1])
		}
	}
	unit := func(name, text string, enabled bool) map[string]any {
		u := map[string]any{"name": name, "contents": text}
		if enabled {
			u["enabled"] = true
		}
		return u
	}
	const install = "\n[Install]\nWantedBy=multi-user.target\n"
	raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.2.0"}, "storage": map[string]any{"files": w.files}, "systemd": map[string]any{"units": []any{
		unit("release-image.service", "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n", false),
		unit("kubelet.service", "[Service]\nExecStart=/usr/local/bin/kubelet.sh\nRestart=always\n"+install, true),
		unit("bootkube.service", "[Unit]\nWants=kubelet.service\nAfter=kubelet.service\nConditionPathExists=!/opt/openshift/.bootkube.done\n[Service]\nWorkingDirectory=/opt/openshift\nExecStart=/usr/local/bin/bootkube.sh\nRestart=on-failure\nRestartSec=5s\n", false),
		unit("progress.service", "[Unit]\nWants=bootkube.service\n[Service]\nExecStart=/usr/local/bin/report-progress.sh\n"+install, true),
	}}})
	require.NoError(w.t, err)
	return raw
}

// manifests are the user's and those that MCO's bootstrap adds.
func (w *world) manifests() {
	sample := filepath.Join(w.t.TempDir(), "sample")
	require.NoError(w.t, assets.WriteSample(sample))
	entries, err := os.ReadDir(filepath.Join(sample, "openshift"))
	require.NoError(w.t, err)
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(sample, "openshift", e.Name()))
		require.NoError(w.t, err)
		w.put("/opt/openshift/openshift/"+e.Name(), 0o644, raw)
	}
	object := func(path string, o any) {
		raw, err := manifests.Marshal(o)
		require.NoError(w.t, err)
		w.put(path, 0o644, raw)
	}
	set := &manifests.Set{}
	render.StandaloneInputs(set, w.base, render.Versions{Raw: "test", Hash: "test", Payload: "test"})
	object("/opt/openshift/manifests/99_feature-gate.yaml", set.FeatureGates[0].Object)
	object("/opt/openshift/mco-bootstrap/machineconfigcontroller-controllerconfig.yaml", set.ControllerConfigs[0].Object)
	object("/opt/openshift/mco-bootstrap/machineconfigcontroller-pull-secret", w.secret())
}

// patched runs dayone ignition on an install directory with the installer's bootstrap.ign and gives the result.
func (w *world) patched(change func(*installconfig.Config)) []byte {
	dir := filepath.Join(w.t.TempDir(), "install")
	require.NoError(w.t, assets.WriteSample(dir))
	for _, consumed := range []string{"install-config.yaml", "openshift"} {
		require.NoError(w.t, os.RemoveAll(filepath.Join(dir, consumed)))
	}
	side := installconfig.Sidecar{Cluster: installconfig.Cluster{Name: "c", BaseDomain: "example.com"}, Config: installconfig.Config{
		Flow: installconfig.FlowOpenShift, LayeringDir: "layering", BootstrapRegistry: installconfig.BootstrapRegistry{Port: 9500},
		Pools: []installconfig.Pool{{Name: "master", BuildAt: installconfig.BuildAtBootstrap}, {Name: "worker", BuildAt: installconfig.BuildAtCluster}}}}
	if change != nil {
		change(&side.Config)
	}
	require.NoError(w.t, side.Write(dir))
	file := filepath.Join(dir, "bootstrap.ign")
	require.NoError(w.t, os.WriteFile(file, w.installer(), 0o640))
	address, hash := w.fetched("", w.bin)
	out, err := exec.Command(w.bin, "ignition", "--dir", dir, "--program-url", address, "--program-sha512", hash).CombinedOutput()
	require.NoError(w.t, err, string(out))
	raw, err := os.ReadFile(file)
	require.NoError(w.t, err)
	return raw
}
