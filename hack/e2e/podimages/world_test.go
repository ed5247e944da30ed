package podimages_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	ocitypes "github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/hack/codeblocks"
	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/hack/images"
	kubecluster "dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/hack/kube/process"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/registrytest"
)

const (
	// registryName is the page's: its lines run as they are.
	registryName = "api-int.lab.example.com:22626"
	// address is the virtual one to which the name leads.
	address = "10.99.0.100"
	page    = "../../../docs/operators/registry-in-cluster.md"
	// waitLimit is for a machine that is very busy.
	waitLimit = 3 * time.Minute
	waitEvery = 50 * time.Millisecond
)

// world is a cluster of one node, which stands for three control-plane nodes: it has the addresses of all, and a
// dayone-registry on each.
type world struct {
	*testing.T
	cluster *kubecluster.Cluster
	client  client.Client
	// dir is where the page's lines run, as an administrator's directory.
	dir, kubeconfig string
	members         []*member
	// cut, when it is above 0, is how many further bytes the virtual address passes on before the first registry dies.
	cut atomic.Int64
}

// member is the registry of a control-plane node.
type member struct {
	node, ip string
	program  *process.Process
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a cluster, which is left out with -short")
	}
	if err := kubecluster.Missing(); err != nil {
		require.Empty(t, os.Getenv("CI"), err)
		t.Skip(err)
	}
	log := logrus.New()
	log.SetOutput(t.Output())
	c, err := kubecluster.Up(t.Context(), kubecluster.Options{Name: "podimages", Log: logrus.NewEntry(log)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Down(context.Background())) })
	k, err := client.New(c.Config, client.Options{})
	require.NoError(t, err)
	w := &world{T: t, cluster: c, client: k, dir: t.TempDir(), members: []*member{
		{node: kubecluster.NodeName, ip: kubecluster.NodeAddress}, {node: "m1", ip: "10.99.0.2"},
		{node: "m2", ip: "10.99.0.3"}}}
	w.writeKubeconfig()
	require.NoError(t, program.Build(t.Context(), "", program.Options{Package: "dayone.dev/dayone/cmd/dayone",
		Cgo: true}, filepath.Join(w.dir, "dayone")))
	w.inNode("echo " + address + " " + strings.Split(registryName, ":")[0] + " >> /etc/hosts && ip addr add " + address +
		"/24 dev node0")
	w.sh("dayone registry node-config --registry " + registryName + " --to registry-files")
	for _, m := range w.members {
		w.joins(m)
	}
	w.startRegistries()
	w.leadToRegistries()
	return w
}

// writeKubeconfig makes one with which programs in the node's network reach the API server.
func (w *world) writeKubeconfig() {
	config := rest.CopyConfig(w.cluster.Config)
	require.NoError(w, rest.LoadTLSFiles(config))
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://" + kubecluster.NodeAddress,
		CertificateAuthorityData: config.CAData}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
		Token: config.BearerToken}
	file.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	file.CurrentContext = "c"
	w.kubeconfig = filepath.Join(w.dir, "kubeconfig")
	require.NoError(w, clientcmd.WriteToFile(*file, w.kubeconfig))
}

// joins gives a control-plane node its label and, where no kubelet does, its object and address.
func (w *world) joins(m *member) {
	const role = "node-role.kubernetes.io/control-plane"
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.node, Labels: map[string]string{role: ""}}}
	if m.node == kubecluster.NodeName {
		require.NoError(w, w.client.Patch(w.Context(), n, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"`+role+`":""}}}`))))
		return
	}
	w.inNode("ip addr add " + m.ip + "/24 dev node0")
	require.NoError(w, w.client.Create(w.Context(), n))
	require.NoError(w, w.client.Status().Patch(w.Context(), n, client.RawPatch(types.MergePatchType,
		[]byte(`{"status":{"addresses":[{"type":"InternalIP","address":"`+m.ip+`"}]}}`))))
}

// startRegistries runs the program of each control-plane node with the files of the page's first step.
func (w *world) startRegistries() {
	binary := filepath.Join(w.dir, "dayone-registry")
	require.NoError(w, program.Build(w.Context(), "", program.Options{Package: "dayone.dev/dayone/cmd/dayone-registry"},
		binary))
	list := peers.List{Registry: registryName}
	_, port, err := net.SplitHostPort(registryName)
	require.NoError(w, err)
	for _, m := range w.members {
		list.Peers = append(list.Peers, peers.Peer{Name: m.node, Address: net.JoinHostPort(m.ip, port)})
	}
	raw, err := list.Encode()
	require.NoError(w, err)
	file := filepath.Join(w.dir, "peers.json")
	require.NoError(w, os.WriteFile(file, raw, 0o600))
	group := process.NewGroup()
	w.Cleanup(func() { require.NoError(w, group.Close()) })
	for i, m := range w.members {
		dir := filepath.Join(w.dir, m.node)
		m.program, err = group.Start(process.Spec{Path: "nsenter", Log: dir + ".log", Args: []string{
			"--net=" + w.cluster.Network(), "--", binary, "--config", filepath.Join(w.dir, "registry-files"),
			"--root", filepath.Join(dir, "root"), "--state", filepath.Join(dir, "state"), "--listen",
			list.Peers[i].Address, "--host", strings.Split(registryName, ":")[0], "--peers", file, "--node", m.node,
			"--min-free", "0", "--auth", filepath.Join(dir, "none.json")}})
		require.NoError(w, err)
	}
}

// leadToRegistries plays the virtual address of a control plane: connections go to the first registry that takes them.
func (w *world) leadToRegistries() {
	_, port, err := net.SplitHostPort(registryName)
	require.NoError(w, err)
	var in net.Listener
	require.NoError(w, testnode.InNetwork(w.cluster.Network(), func() (err error) {
		in, err = net.Listen("tcp", net.JoinHostPort(address, port))
		return err
	}))
	w.Cleanup(func() { require.NoError(w, in.Close()) })
	go fleet.Forward(in, func() (out net.Conn, err error) {
		for i, m := range w.members {
			err = testnode.InNetwork(w.cluster.Network(), func() (err error) {
				out, err = net.DialTimeout("tcp", net.JoinHostPort(m.ip, port), 2*time.Second)
				return err
			})
			if err == nil && i == 0 {
				return &dying{Conn: out, left: &w.cut, end: m.program.Kill}, nil
			}
			if err == nil {
				return out, nil
			}
		}
		return nil, err
	})
}

// dying ends a registry in the middle of what it sends.
type dying struct {
	net.Conn
	left *atomic.Int64
	end  func() error
}

func (d *dying) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	if d.left.Load() > 0 && d.left.Add(-int64(n)) <= 0 {
		return n, errors.Join(err, d.end())
	}
	return n, err
}

// sh runs lines as an administrator types them, on a machine that reaches the nodes.
func (w *world) sh(lines string) (out string) {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), "nsenter", "--net="+w.cluster.Network(), "--", "/bin/sh", "-euc", lines)
	cmd.Dir = w.dir
	cmd.Env = []string{"PATH=" + w.dir + ":" + filepath.Dir(w.cluster.Kubectl(w.Context()).Path) + ":/usr/bin:/bin",
		"HOME=" + w.dir, "KUBECONFIG=" + w.kubeconfig}
	var errs strings.Builder
	cmd.Stderr = &errs
	raw, err := cmd.Output()
	w.Logf("$ %s\n%s%s", lines, raw, &errs)
	require.NoError(w, err)
	return strings.TrimSpace(string(raw))
}

// inNode runs a line of a shell on the node.
func (w *world) inNode(line string) {
	w.Helper()
	out, err := w.cluster.NodeExec(w.Context(), "/bin/sh", "-euc", line).CombinedOutput()
	require.NoError(w, err, "%s: %s", line, out)
}

// block is a block of the page for a shell that begins so.
func (w *world) block(begins string) string {
	w.Helper()
	blocks, err := codeblocks.Of(page)
	require.NoError(w, err)
	for _, b := range blocks {
		if strings.HasPrefix(b.Text, begins) {
			return b.Text
		}
	}
	require.FailNow(w, "the page has no such block", begins)
	return ""
}

// release writes a folder of a release: images of dayone's programs, and a third one with much in it.
func (w *world) release(programs ...string) {
	w.Helper()
	to, err := layout.Write(filepath.Join(w.dir, "images"), empty.Index)
	require.NoError(w, err)
	add := func(ref string, image v1.Image) {
		require.NoError(w, to.AppendImage(image, layout.WithAnnotations(map[string]string{
			"org.opencontainers.image.ref.name": ref})))
	}
	source, err := filepath.Abs("../../..")
	require.NoError(w, err)
	r := w.cluster.Registry
	c, err := appendengine.NewClient(appendengine.Access{CAFile: r.CAFile, AuthFile: r.PushAuthFile})
	require.NoError(w, err)
	defer c.Close()
	made := &registrytest.Registry{Addr: r.Address, CAFile: r.CAFile}
	var image v1.Image
	for _, program := range programs {
		p, err := images.Find(program)
		require.NoError(w, err)
		binary, err := p.Build(w.Context(), source, w.TempDir(), "v0.0.0-test")
		require.NoError(w, err)
		ref, err := images.Push(w.Context(), c, p, binary, r.Address+"/dayone/"+program, images.Options{})
		require.NoError(w, err)
		at, err := name.NewDigest(ref)
		require.NoError(w, err)
		image, err = remote.Image(at, remote.WithTransport(made.Transport(w.T)),
			remote.WithAuth(&authn.Basic{Username: r.Pull.Name, Password: r.Pull.Password}))
		require.NoError(w, err)
		add(program, image)
	}
	large, err := random.Layer(largeBytes, ocitypes.OCILayer)
	require.NoError(w, err)
	image, err = mutate.AppendLayers(image, large)
	require.NoError(w, err)
	add("large", image)
}

// pod makes a pod that runs an image for a moment.
func (w *world) pod(name, image string, secrets ...string) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main",
			Image: image, Args: []string{"--version"}, ImagePullPolicy: corev1.PullAlways}}}}
	for _, s := range secrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	require.NoError(w, w.client.Create(w.Context(), p))
	return p
}

// says waits until kubelet says of a pod that does not start why, in these words, and gives the whole message.
func (w *world) says(p *corev1.Pod, words ...string) (last string) {
	w.Helper()
	defer func() { w.Logf("%s: %s", p.Name, last) }()
	require.Eventually(w, func() bool {
		if w.client.Get(w.Context(), client.ObjectKeyFromObject(p), p) != nil {
			return false
		}
		last = ""
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Waiting != nil {
				last = s.State.Waiting.Reason + ": " + s.State.Waiting.Message
			}
		}
		for _, word := range words {
			if !strings.Contains(last, word) {
				return false
			}
		}
		return true
	}, waitLimit, waitEvery, "%v in %v", words, &last)
	return last
}

// runs waits until a pod has run its program.
func (w *world) runs(p *corev1.Pod) {
	w.Helper()
	require.Eventually(w, func() bool {
		return w.client.Get(w.Context(), client.ObjectKeyFromObject(p), p) == nil && p.Status.Phase == corev1.PodSucceeded
	}, waitLimit, waitEvery, "%v", &p.Status)
}
