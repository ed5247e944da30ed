package openshift_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/bootstrap/openshift/loopback"
	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e/mcostandin"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

var shared kubetest.Shared

func TestMain(m *testing.M) {
	if !phasetest.Child(child) {
		os.Exit(shared.Main(m, kubetest.Options{}))
	}
}

// order says what the child does and when it dies.
type order struct {
	Dir, State, Root, BaseCA, Base, Kubeconfig string
	Kill                                       phasetest.Kill
	// Nft is a program that reaches a real gate in nft's place; empty: the gate is played.
	Nft string
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

// Refused is never asked of a file.
func (m marker) Refused(context.Context) (uint64, error) { return 0, nil }

func (o order) gate() openshift.Gate {
	if o.Nft != "" {
		return openshift.Nftables{Program: o.Nft}
	}
	return marker{o.Root}
}

// unitUmask is that of dayone-bootstrap.service.
const unitUmask = 0o077

func child(o order) error {
	unix.Umask(unitUmask)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return openshift.Run(ctx, openshift.Options{
		Options: day1.Options{Dir: o.Dir, StateDir: o.State, BaseCAFile: o.BaseCA, Platform: "linux/amd64",
			NewEngine: phasetest.Engine, Log: logrus.NewEntry(logrus.New()),
			Observe: o.Kill.Observer(func(journal.Event) {}), BuildProgress: o.Kill.Build},
		Root: o.Root, Interval: 50 * time.Millisecond, Limits: o.Limits,
		Base:     func(context.Context) (string, error) { return o.Base, nil },
		Renderer: standIn{o.OldMCO}, Gate: o.gate(), Cluster: loopback.Cluster{Kubeconfig: o.Kubeconfig},
		HandOver: handover.Options{Connect: loopback.Connect("/nonexistent/kubeconfig-loopback", o.Kubeconfig),
			Interval: 50 * time.Millisecond, RetryMin: 50 * time.Millisecond, RetryMax: time.Second,
			Observe: func(e handover.Event) {
				if e.Done {
					o.Kill.Reached("hand-over", string(e.Stage))
				}
			}},
	})
}

// node is a bootstrap node as the installer leaves it, below a directory.
type node struct {
	t     *testing.T
	order order
	// release is the registry that has the release's OS image, final the one in which the images end up.
	release, final *registrytest.Registry
	// process is the last that start has begun.
	process phasetest.Process
}

// newNode needs root: it runs container builds. change edits the layering field.
func newNode(t *testing.T, change func(*installconfig.Config)) *node {
	t.Helper()
	phasetest.NeedsBuilds(t)
	n := &node{t: t, final: registrytest.Start(t), order: order{Dir: filepath.Join(t.TempDir(), "install"),
		State: filepath.Join(t.TempDir(), "state"), Root: t.TempDir(),
		Limits: openshift.InstallerLimits(installconfig.Cluster{})}}
	n.base()
	n.prepared(change)
	n.kubernetes()
	n.bootkube()
	return n
}

// base puts the release's OS image into a registry that wants the cluster's pull secret.
func (n *node) base() {
	layout, err := baseimage.Ensure(n.t.Context(), baseimage.Shell, "")
	require.NoError(n.t, err)
	r := registrytest.Start(n.t)
	n.release = r
	n.order.BaseCA = r.CAFile
	to := transfer.Endpoint{Reference: "docker://" + r.Addr + "/ocp/base-os:1", CAFile: r.CAFile, Username: r.Push.Name,
		Password: r.Push.Password}
	res, err := transfer.Copy(n.t.Context(), transfer.Endpoint{Reference: "oci:" + layout}, to,
		transfer.Options{Platform: "linux/amd64"})
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
	phasetest.UseRegistry(n.t, n.order.Dir, n.final.Addr, n.final.Push, n.final.Pull)
	ca, err := os.ReadFile(n.final.CAFile)
	require.NoError(n.t, err)
	require.NoError(n.t, os.WriteFile(filepath.Join(n.order.Dir, "registry-ca.crt"), ca, 0o600))
	side := installconfig.Sidecar{Cluster: installconfig.Cluster{Name: "c", BaseDomain: "example.com",
		ControlPlane: masters}, Config: installconfig.Config{
		Flow: installconfig.FlowOpenShift, LayeringDir: "layering",
		BootstrapRegistry: installconfig.BootstrapRegistry{Host: "127.0.0.1", Port: phasetest.FreePort(n.t)},
		Registry:          installconfig.Registry{CAFile: "registry-ca.crt"},
		Build:             installconfig.Build{Timeout: installconfig.Duration(5 * time.Minute)},
		Pools: []installconfig.Pool{{Name: "master", BuildAt: installconfig.BuildAtBootstrap},
			{Name: "worker", BuildAt: installconfig.BuildAtBootstrap}}}}
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
	err := env.Client.Create(n.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config",
		Name: "pull-secret"},
		Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"quay.io":{"auth":"cXVheTpwdWxs"}}}`)}})
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
	n.object("/etc/mcc/bootstrap/controllerconfig.yaml", mcostandin.Controller(set.ControllerConfigs[0].Object))
	n.object("/etc/mcc/bootstrap/99_feature-gate.yaml", set.FeatureGates[0].Object)
	n.object("/etc/mcc/bootstrap/machineconfigcontroller-pull-secret",
		&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "pull-secret"},
			Type:       corev1.SecretTypeDockerConfigJson,
			Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"quay.io":{"auth":"cXVheTpwdWxs"}}}`)}})
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
	return standIn{n.order.OldMCO}.Render(n.t.Context(), openshift.Rendering{Source: n.at("/etc/mcc/bootstrap"),
		Dest: n.at("/etc/mcs/bootstrap")})
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

// start runs the program of the node; wait gives its end.
func (n *node) start(killPhase, killAt string) (wait func() phasetest.Ended) {
	n.t.Helper()
	o := n.order
	o.Kill = phasetest.Kill{Phase: killPhase, At: killAt}
	n.process = phasetest.Begin(n.t, o)
	return n.process.Wait
}

func (n *node) run(killPhase, killAt string) phasetest.Ended {
	n.t.Helper()
	return n.start(killPhase, killAt)()
}

// masters is how many the installation has.
const masters = 2

// cluster has MCO's stand-in at work and lets the masters join as soon as the gate is open.
func (n *node) cluster() mcostandin.Operator {
	n.t.Helper()
	ca, err := os.ReadFile(n.final.CAFile)
	require.NoError(n.t, err)
	o := mcostandin.Operator{Env: shared.Env(n.t), Versions: testVersions, Platform: "linux/amd64", RegistryCA: ca}
	set, err := manifests.ReadDir(n.at("/etc/mcc/bootstrap"), manifests.ReadOptions{})
	require.NoError(n.t, err)
	o.Post(n.t, set)
	n.t.Cleanup(func() { o.Clear(n.t) })
	n.t.Cleanup(o.Start(n.t))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil && !n.open() {
			time.Sleep(50 * time.Millisecond)
		}
		for i := 0; i < masters && ctx.Err() == nil; i++ {
			assert.NoError(n.t, o.Join(context.Background(), fmt.Sprintf("master-%d", i), "master", n.served("master").Name))
		}
	}()
	n.t.Cleanup(func() { cancel(); <-ended })
	return o
}

// released says whether the bootstrap may end.
func (n *node) released() bool {
	done, err := handover.ReadMark(n.order.State)
	require.NoError(n.t, err)
	return done != nil
}

func (n *node) open() bool {
	if n.order.Nft != "" {
		return exec.Command(n.order.Nft, "list", "table", "inet", "dayone_gate").Run() != nil
	}
	_, err := os.Stat(marker{n.order.Root}.file())
	return !errors.Is(err, os.ErrNotExist)
}
