package openshift_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/bootstrap"
	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/bootstrap/openshift/loopback"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/imagecopy"
	"dayone.dev/dayone/registry/registrytest"
)

var shared kubetest.Shared

// childEnv makes this test binary the program of the bootstrap node; its value is an order as JSON.
const childEnv = "DAYONE_TEST_OPENSHIFT"

func TestMain(m *testing.M) {
	if buildahengine.Init() {
		return
	}
	if raw := os.Getenv(childEnv); raw != "" {
		if err := child(raw); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(shared.Main(m, kubetest.Options{}))
}

// order says what the child does and when it dies by its own SIGKILL. KillAt "instruction" is the first instruction of a build.
type order struct {
	Dir, State, Root, BaseCA, Base, Kubeconfig string
	KillPhase, KillAt                          string
	// OldMCO plays a release that does not read MachineOSConfigs at install time.
	OldMCO bool
	Limits openshift.Limits
}

var testVersions = render.Versions{Raw: "test", Hash: "test", Payload: "test"}

// standIn plays MCO's controller with dayone's own renderer, which gives the same names.
type standIn struct{ old bool }

func (s standIn) Render(_ context.Context, r openshift.Rendering) error {
	set, err := manifests.ReadDir(r.Source, manifests.ReadOptions{})
	if err != nil {
		return err
	}
	if s.old {
		set.MachineOSConfigs = nil
	}
	result, err := render.Render(set, render.Options{Versions: testVersions})
	if err != nil {
		return err
	}
	return render.Write(r.Dest, set, result)
}

// marker plays the gate: a file is there when it is open. The real gate is tested beside it, in a network of its own.
type marker struct{ root string }

func (m marker) file() string { return filepath.Join(m.root, "gate-is-open") }

func (m marker) Open(context.Context) error { return os.WriteFile(m.file(), nil, 0o600) }

func child(raw string) error {
	var o order
	if err := json.Unmarshal([]byte(raw), &o); err != nil {
		return err
	}
	die := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return openshift.Run(ctx, openshift.Options{
		Dir: o.Dir, StateDir: o.State, Root: o.Root, BaseCAFile: o.BaseCA, Platform: "linux/amd64", Interval: 50 * time.Millisecond, Limits: o.Limits,
		Base: func(context.Context) (string, error) { return o.Base, nil },
		NewEngine: func(dir string) (build.ContainerEngine, error) {
			return buildahengine.New(buildahengine.Options{Root: dir})
		},
		Renderer: standIn{o.OldMCO}, Gate: marker{o.Root}, Cluster: loopback.Cluster{Kubeconfig: o.Kubeconfig},
		Log: logrus.NewEntry(logrus.New()),
		Observe: func(e bootstrap.Event) {
			fmt.Printf("event %s %s\n", e.Record.Name, e.Kind)
			if e.Record.Name == o.KillPhase && string(e.Kind) == o.KillAt {
				die()
			}
			if e.Record.Name == "hand-over" && e.Kind == bootstrap.EventRecorded {
				cancel()
			}
		},
		BuildProgress: func(_ string, e build.Event) {
			if o.KillAt == "instruction" && e.Step > 0 {
				die()
			}
		},
	})
}

// node is a bootstrap node as the installer leaves it, below a directory.
type node struct {
	t     *testing.T
	order order
}

// newNode needs root: it runs container builds. change edits the layering field.
func newNode(t *testing.T, change func(*installconfig.Config)) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root: it runs container builds")
	}
	if testing.Short() {
		t.Skip("runs container builds and a real kube-apiserver: left out with -short")
	}
	n := &node{t: t, order: order{Dir: filepath.Join(t.TempDir(), "install"), State: filepath.Join(t.TempDir(), "state"), Root: t.TempDir(), Limits: openshift.InstallerLimits()}}
	n.base()
	n.prepared(change)
	n.kubernetes()
	n.bootkube()
	return n
}

// base puts the release's OS image into a registry that wants the cluster's pull secret.
func (n *node) base() {
	layout, err := baseimage.Ensure(n.t.Context(), baseimage.Tiny, "")
	require.NoError(n.t, err)
	r := registrytest.Start(n.t)
	n.order.BaseCA = r.CAFile
	to := imagecopy.Endpoint{Reference: "docker://" + r.Addr + "/ocp/base-os:1", CAFile: r.CAFile, Username: r.Push.Name, Password: r.Push.Password}
	res, err := imagecopy.Copy(n.t.Context(), imagecopy.Endpoint{Reference: "oci:" + layout}, to, imagecopy.Options{Platform: "linux/amd64"})
	require.NoError(n.t, err)
	n.order.Base = r.Addr + "/ocp/base-os@" + res.Digest.String()
	auth, err := os.ReadFile(r.PullAuthFile)
	require.NoError(n.t, err)
	n.put("/root/.docker/config.json", auth)
}

// prepared is the install directory that dayone ignition puts on the node.
func (n *node) prepared(change func(*installconfig.Config)) {
	require.NoError(n.t, assets.WriteSample(n.order.Dir))
	for _, consumed := range []string{"install-config.yaml", "openshift"} {
		require.NoError(n.t, os.RemoveAll(filepath.Join(n.order.Dir, consumed)))
	}
	side := installconfig.Sidecar{Cluster: installconfig.Cluster{Name: "c", BaseDomain: "example.com"}, Config: installconfig.Config{
		Flow: installconfig.FlowOpenShift, LayeringDir: "layering", BootstrapRegistry: installconfig.BootstrapRegistry{Host: "127.0.0.1", Port: freePort(n.t)},
		Build: installconfig.Build{Timeout: installconfig.Duration(5 * time.Minute)},
		Pools: []installconfig.Pool{{Name: "master", BuildAt: installconfig.BuildAtBootstrap}, {Name: "worker", BuildAt: installconfig.BuildAtBootstrap}}}}
	if change != nil {
		change(&side.Config)
	}
	require.NoError(n.t, side.Write(n.order.Dir))
}

// kubernetes is a real API server with what cluster-bootstrap creates from the installer's manifests.
func (n *node) kubernetes() {
	env := shared.Env(n.t)
	n.order.Kubeconfig = env.Kubeconfig(n.t)
	for _, name := range []string{"openshift-config", "openshift-machine-config-operator"} {
		err := env.Client.Create(n.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err != nil {
			require.ErrorContains(n.t, err, "already exists")
		}
	}
	err := env.Client.Create(n.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "pull-secret"},
		Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"quay.io":{"auth":"cXVheTpwdWxs"}}}`)}})
	if err != nil {
		require.ErrorContains(n.t, err, "already exists")
	}
}

// bootkube leaves what its stage mco-bootstrap does: manifests, pull secret, MCO's static pod.
func (n *node) bootkube() {
	sample := filepath.Join(n.t.TempDir(), "sample")
	require.NoError(n.t, assets.WriteSample(sample))
	entries, err := os.ReadDir(filepath.Join(sample, "openshift"))
	require.NoError(n.t, err)
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(sample, "openshift", e.Name()))
		require.NoError(n.t, err)
		n.put("/etc/mcc/bootstrap/"+e.Name(), raw)
	}
	set := &manifests.Set{}
	render.StandaloneInputs(set, n.order.Base, testVersions)
	n.object("/etc/mcc/bootstrap/controllerconfig.yaml", set.ControllerConfigs[0].Object)
	n.object("/etc/mcc/bootstrap/99_feature-gate.yaml", set.FeatureGates[0].Object)
	n.object("/etc/mcc/bootstrap/machineconfigcontroller-pull-secret", &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "pull-secret"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"quay.io":{"auth":"cXVheTpwdWxs"}}}`)}})
	n.put("/etc/kubernetes/manifests/machineconfigoperator-bootstrap-pod.yaml", []byte(`apiVersion: v1
kind: Pod
metadata: {name: bootstrap-machine-config-operator, namespace: openshift-machine-config-operator}
spec:
  initContainers:
  - name: machine-config-controller
    image: quay.io/example/mco@sha256:aaaa
    command: [/usr/bin/machine-config-controller]
    args: [bootstrap, --manifest-dir=/etc/mcc/bootstrap, --dest-dir=/etc/mcs/bootstrap, --pull-secret=/etc/mcc/bootstrap/machineconfigcontroller-pull-secret, --payload-version=test]
`))
}

// mco renders as the static pod's init container does, which kubelet starts again until it succeeds.
func (n *node) mco() error {
	if err := os.MkdirAll(n.at("/etc/mcs/bootstrap"), 0o755); err != nil {
		return err
	}
	return standIn{n.order.OldMCO}.Render(n.t.Context(), openshift.Rendering{Source: n.at("/etc/mcc/bootstrap"), Dest: n.at("/etc/mcs/bootstrap")})
}

func (n *node) at(path string) string { return filepath.Join(n.order.Root, path) }

func (n *node) put(path string, content []byte) {
	require.NoError(n.t, os.MkdirAll(filepath.Dir(n.at(path)), 0o755))
	require.NoError(n.t, os.WriteFile(n.at(path), content, 0o600))
}

func (n *node) object(path string, o any) {
	raw, err := manifests.Marshal(o)
	require.NoError(n.t, err)
	n.put(path, raw)
}

func (n *node) read(path string) string {
	raw, err := os.ReadFile(n.at(path))
	require.NoError(n.t, err)
	return string(raw)
}

// start runs the program of the node; wait gives its events as "phase kind", its log and its end.
func (n *node) start(killPhase, killAt string) (wait func() (events []string, log string, err error)) {
	n.t.Helper()
	o := n.order
	o.KillPhase, o.KillAt = killPhase, killAt
	raw, err := json.Marshal(o)
	require.NoError(n.t, err)
	ctx, cancel := context.WithTimeout(n.t.Context(), 4*time.Minute)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+string(raw))
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	return func() ([]string, string, error) {
		defer cancel()
		err := <-ended
		var events []string
		for _, line := range strings.Split(out.String(), "\n") {
			if e, ok := strings.CutPrefix(line, "event "); ok {
				events = append(events, e)
			}
		}
		return events, errs.String(), err
	}
}

func (n *node) run(killPhase, killAt string) (events []string, log string, err error) {
	n.t.Helper()
	return n.start(killPhase, killAt)()
}

func (n *node) open() bool {
	_, err := os.Stat(marker{n.order.Root}.file())
	return !errors.Is(err, os.ErrNotExist)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
