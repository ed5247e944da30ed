package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/images"
	kubecluster "dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

const (
	namespace = cluster.DefaultNamespace
	pull      = "node-pull"
	// waitLimit is for a machine that does many other things.
	waitLimit = 5 * time.Minute
	waitEvery = 100 * time.Millisecond
)

// world is a cluster of one node, and an ostree host's tree that the agent takes for its host.
type world struct {
	t       *testing.T
	cluster *kubecluster.Cluster
	client  client.Client
	ca      []byte
	images  *appendengine.Client
	dir     string // on this machine's disk, seen by the node, too
	root    string // of the tree, on the node and here
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a cluster, which is left out with -short")
	}
	for _, missing := range []error{kubecluster.Missing(), testnode.Missing()} {
		if missing != nil && os.Getenv("CI") != "" {
			t.Fatal(missing)
		} else if missing != nil {
			t.Skip(missing)
		}
	}
	dir := t.TempDir() // goes after the cluster
	c, err := kubecluster.Up(t.Context(), kubecluster.Options{Name: "nodeagent"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Down(context.Background())) })
	scheme, err := kubetest.NewScheme()
	require.NoError(t, err)
	w := &world{t: t, dir: dir, cluster: c}
	w.client, err = client.New(c.Config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	w.ca, err = os.ReadFile(c.Registry.CAFile)
	require.NoError(t, err)
	w.images, err = appendengine.NewClient(appendengine.Access{CAFile: c.Registry.CAFile,
		AuthFile: c.Registry.PushAuthFile})
	require.NoError(t, err)
	t.Cleanup(w.images.Close)
	crds, err := cluster.CRDs()
	require.NoError(t, err)
	for _, crd := range crds {
		w.create(crd)
	}
	return w
}

// create makes an object; kinds that were just made are served a moment later.
func (w *world) create(o client.Object) {
	w.t.Helper()
	var err error
	require.Eventually(w.t, func() bool { err = w.client.Create(w.t.Context(), o); return err == nil }, waitLimit,
		waitEvery, "%T %s: %v", o, o.GetName(), err)
}

// host makes the tree: a deployment with all that is mounted in a booted one, seen by the node only. Nothing in it can
// end the node.
func (w *world) host(mc *mcfgv1.MachineConfig) {
	w.t.Helper()
	base, err := baseimage.Ensure(w.t.Context(), baseimage.Tiny, "")
	require.NoError(w.t, err)
	sysroot := filepath.Join(w.dir, "sysroot")
	w.t.Setenv("OSTREE_SYSROOT_DEBUG", "mutable-deployments") // or the directory could not be removed
	require.NoError(w.t, testnode.NewSysroot(w.t.Context(), sysroot, testnode.SysrootOptions{Base: base}))
	stateroot := filepath.Join(sysroot, "ostree/deploy", testnode.Stateroot)
	trees, err := filepath.Glob(filepath.Join(stateroot, "deploy/*.0"))
	require.NoError(w.t, err)
	require.Len(w.t, trees, 1)
	w.root = trees[0]
	w.onNode("sh", "-ec", fmt.Sprintf(`
		d=%[1]s
		mount --bind $d $d
		mount --bind %[2]s $d/sysroot
		mount --bind %[2]s/boot $d/boot
		mount --bind %[3]s/var $d/var
		for m in proc sys dev; do mount --bind /$m $d/$m; done
		mount -t tmpfs tmpfs $d/run
		touch $d/run/ostree-booted
		mkdir -p $d/etc/app $d/etc/containers
		cp /etc/hosts $d/etc/hosts
		printf one >$d/etc/app/text
		chmod 640 $d/etc/app/text
		for p in reboot poweroff halt systemctl; do
			for b in sbin bin; do [ ! -e $d/usr/$b/$p ] || mount --bind /bin/false $d/usr/$b/$p; done
		done`,
		w.root, sysroot, stateroot))
	require.NoError(w.t, nodedisk.WriteCurrent(w.root, nodedisk.Current{Config: mc}))
}

// install makes what `dayone cluster install --node-agent` applies for the agent, with the tree in place of the node's
// root.
func (w *world) install() {
	w.t.Helper()
	objects, err := cluster.Objects(cluster.Options{NodeAgent: true, ImagePullSecret: pull,
		Images: cluster.Images{Controller: "r.example/c:1", Builder: "r.example/b:1", Daemon: w.image(cluster.Daemon,
			"v0.0.0-test")}})
	require.NoError(w.t, err)
	secret, err := w.cluster.PullSecret(namespace, pull)
	require.NoError(w.t, err)
	for _, o := range objects {
		switch {
		case o.GetKind() == "Deployment", o.GetKind() == "DaemonSet" && o.GetName() != cluster.Daemon:
			continue // controllers and config server are not needed here
		case o.GetKind() == "DaemonSet":
			require.NoError(w.t, unstructured.SetNestedField(hostPath(w.t, o), w.root, "path"))
			w.create(secret)
		case o.GetKind() == "MachineConfiguration":
			require.NoError(w.t, unstructured.SetNestedMap(o.Object,
				map[string]any{"files": []any{map[string]any{"path": "/etc/app",
					"actions": []any{map[string]any{"type": "None"}}}}},
				"spec", "nodeDisruptionPolicy"))
		}
		w.create(o)
	}
	w.create(&mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName},
		Spec: w.controllerConfig()})
	w.create(&mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: kubecluster.NodeName},
		Spec: mcfgv1.MachineConfigNodeSpec{
			Node: mcfgv1.MCOObjectReference{Name: kubecluster.NodeName}, Pool: mcfgv1.MCOObjectReference{Name: "worker"},
			ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: "rendered-worker-1"}}})
}

// image builds one of dayone's programs, pushes its image and gives the name in the cluster.
func (w *world) image(program, version string) string {
	w.t.Helper()
	p, err := images.Find(program)
	require.NoError(w.t, err)
	binary, err := p.Build(w.t.Context(), "../../..", w.t.TempDir(), version)
	require.NoError(w.t, err)
	reference, err := images.Push(w.t.Context(), w.images, p, binary, w.cluster.Registry.Address+"/dayone/"+p.Name,
		images.Options{})
	require.NoError(w.t, err)
	return w.inCluster(reference)
}

// hostPath is the DaemonSet's only volume.
func hostPath(t *testing.T, o *unstructured.Unstructured) map[string]any {
	t.Helper()
	volumes, _, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "template", "spec", "volumes")
	require.NoError(t, err)
	require.Len(t, volumes, 1)
	at, ok := volumes.([]any)[0].(map[string]any)["hostPath"].(map[string]any)
	require.True(t, ok)
	require.Equal(t, "/", at["path"])
	return at
}

func (w *world) controllerConfig() mcfgv1.ControllerConfigSpec {
	w.t.Helper()
	credential, err := w.cluster.PullSecret("", "")
	require.NoError(w.t, err)
	return mcfgv1.ControllerConfigSpec{BaseOSContainerImage: "r.example.com/os/base:1", Images: map[string]string{},
		RootCAData: w.ca, ReleaseImage: "release",
		IPFamilies: mcfgv1.IPFamiliesIPv4, ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{},
		KubeAPIServerServingCAData: w.ca,
		ImageRegistryBundleData: []mcfgv1.ImageRegistryBundle{{File: strings.ReplaceAll(kubecluster.RegistryName, ":",
			".."), Data: w.ca}},
		InternalRegistryPullSecret: credential.Data[corev1.DockerConfigJsonKey]}
}

// push makes an OS image in the cluster's registry and gives its name there.
func (w *world) push() string {
	w.t.Helper()
	big := make([]byte, 24<<20)
	for i := range big {
		big[i] = byte((i * (i >> 3)) >> 7)
	}
	img := deploytest.Image(w.t, deploytest.Options{}, deploytest.Layer(w.t, deploytest.Base("1")...),
		deploytest.Layer(w.t, deploytest.Entry{Name: "usr/share/big", Body: string(big)}))
	at, err := name.NewTag(w.cluster.Registry.Address + "/os/worker:test")
	require.NoError(w.t, err)
	require.NoError(w.t, remote.Write(at, img, w.images.Options(w.t.Context())...))
	digest, err := img.Digest()
	require.NoError(w.t, err)
	return kubecluster.RegistryName + "/os/worker@" + digest.String()
}

// inCluster is a reference as the cluster's pods know it.
func (w *world) inCluster(reference string) string {
	return strings.Replace(reference, w.cluster.Registry.Address, kubecluster.RegistryName, 1)
}

func (w *world) onNode(argv ...string) string {
	w.t.Helper()
	out, err := w.cluster.NodeExec(w.t.Context(), argv...).CombinedOutput()
	require.NoError(w.t, err, "%s", out)
	return string(out)
}

// onHost runs a program in the tree.
func (w *world) onHost(argv ...string) string {
	w.t.Helper()
	return w.onNode(append([]string{"chroot", w.root}, argv...)...)
}

// read gives a file of the tree, of its /run, too; "" while it is not there.
func (w *world) read(path string) string {
	out, err := w.cluster.NodeExec(w.t.Context(), "cat", w.root+path).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

func (w *world) node() *corev1.Node {
	w.t.Helper()
	n := &corev1.Node{}
	require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKey{Name: kubecluster.NodeName}, n))
	return n
}

func (w *world) record() nodestate.Record {
	w.t.Helper()
	r, err := nodestate.Parse(w.node().Annotations)
	require.NoError(w.t, err)
	return r
}

func (w *world) annotate(key, value string) {
	w.t.Helper()
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	require.NoError(w.t, err)
	require.NoError(w.t, w.client.Patch(w.t.Context(), w.node(), client.RawPatch("application/merge-patch+json", raw)))
}

// until waits for a fact, and shows the pods and what the agent said when it does not come.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > waitLimit {
			pods, _ := w.cluster.Kubectl(w.t.Context(), "-n", namespace, "describe", "pods").CombinedOutput()
			log, _ := w.cluster.Kubectl(w.t.Context(), "-n", namespace, "logs", "daemonset/"+cluster.Daemon, "--tail=50").
				CombinedOutput()
			require.FailNow(w.t, "never: "+what, "%v\n%s\n%s", w.node().Annotations, pods, log)
		}
		time.Sleep(waitEvery)
	}
	w.t.Logf("%6.1f s  %s", time.Since(began).Seconds(), what)
}
