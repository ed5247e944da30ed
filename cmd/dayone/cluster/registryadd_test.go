package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/registrycontroller"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/replica"
	"dayone.dev/dayone/registry/storage"
	replicas "dayone.dev/dayone/registry/wanted"
)

// plane is a control plane of two nodes with their registries, in a real API. What agents carry, the test carries.
type plane struct {
	*testing.T
	env *kubetest.Env
	// dir has the CA, images and the nodes' directories; name leads to the first node.
	dir, port, name string
	push, pull      registry.User
	nodes           [2]*registrytest.Registry
}

// address is where the registry of a node listens: the first one where other machines reach it.
func (p *plane) address(i int) string {
	if i == 0 {
		return p.name
	}
	return "127.0.0.22:" + p.port
}

func (p *plane) node(i int, file string) string {
	return filepath.Join(p.dir, fmt.Sprintf("m%d", i), file)
}

func newPlane(t *testing.T) *plane {
	p := &plane{T: t, env: shared.New(t), dir: t.TempDir(),
		port: strconv.Itoa(registrytest.Port(t))}
	p.name = net.JoinHostPort(registrytest.HostAddress(t), p.port)
	_, err := certs.LoadOrCreateCA(p.dir, certs.CAOptions{})
	require.NoError(t, err)
	p.push, err = registry.NewUser("push", registry.RolePush)
	require.NoError(t, err)
	p.pull, err = registry.NewUser("pull", registry.RolePull)
	require.NoError(t, err)
	require.NoError(t, p.push.WriteAuthFile(filepath.Join(p.dir, "push.json"), p.name))
	require.NoError(t, p.pull.WriteAuthFile(filepath.Join(p.dir, "pull.json"), p.name))
	for i := range p.nodes {
		for _, sub := range []string{"tls", "replica"} {
			require.NoError(t, os.MkdirAll(p.node(i, sub), 0o700))
		}
		for _, file := range []string{certs.CACertFile, certs.CAKeyFile} {
			raw, err := os.ReadFile(filepath.Join(p.dir, file))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(p.node(i, "tls/"+file), raw, 0o600))
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%d", i),
			Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}}
		require.NoError(t, p.env.Client.Create(t.Context(), n))
		host, _, _ := net.SplitHostPort(p.address(i))
		p.at(i, host)
	}
	return p
}

// at gives a node its address in the API.
func (p *plane) at(i int, host string) {
	n := &corev1.Node{}
	require.NoError(p, p.env.Client.Get(p.Context(), client.ObjectKey{Name: fmt.Sprintf("m%d", i)}, n))
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	require.NoError(p, p.env.Client.Status().Update(p.Context(), n))
}

// start runs the registry of a node with its replica.
func (p *plane) start(i int) {
	list := peers.List{Registry: p.name, Peers: []peers.Peer{{Name: "m0", Address: p.address(0)}, {Name: "m1",
		Address: p.address(1)}}}
	p.nodes[i] = registrytest.Start(p.T, func(o *registry.Options) {
		o.Listen, o.TLSDir, o.Root = p.address(i), p.node(i, "tls"), p.node(i, "root")
		o.Users = []registry.User{p.push, p.pull}
		o.Beside = func(ctx context.Context, s *storage.Store) {
			replica.Run(ctx, s, replica.Options{Dir: p.node(i, "replica"), Self: fmt.Sprintf("m%d", i),
				Every: 50 * time.Millisecond, CAFile: filepath.Join(p.dir, certs.CACertFile),
				AuthFile: filepath.Join(p.dir, "pull.json"), Peers: func() (peers.List, error) { return list, nil }})
		}
	})
}

// controls runs the registries' controller with the rights of an installation.
func (p *plane) controls() {
	objects, err := cluster.Objects(cluster.Options{NodeAgent: true, Registry: p.name,
		Images: cluster.Images{Controller: "r.test/c:1", Builder: "r.test/b:1", Daemon: "r.test/d:1"}})
	require.NoError(p, err)
	p.env.InstallRightsOf(p.T, objects)
	mgr, err := ctrl.NewManager(p.env.As(p.T, cluster.DefaultNamespace, cluster.Controller), ctrl.Options{
		Scheme: p.env.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: kubetest.Controllers()})
	require.NoError(p, err)
	require.NoError(p, registrycontroller.SetupWithManager(mgr, registrycontroller.Options{Registry: p.name,
		Namespace: cluster.DefaultNamespace}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	p.Cleanup(func() { cancel(); assert.NoError(p, <-ended) })
}

// wants waits until the cluster wants images and brings the list to a node.
func (p *plane) wants(i int, images ...string) {
	p.Helper()
	var list replicas.List
	require.Eventually(p, func() bool {
		var m corev1.ConfigMap
		if p.env.Client.Get(p.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace,
			Name: cluster.RegistryName}, &m) != nil {
			return false
		}
		var err error
		list, err = replicas.Decode([]byte(m.Data[replicas.ListFile]))
		if err != nil || len(list.Fetched()) != len(images) {
			return false
		}
		for _, image := range images {
			if !strings.Contains(m.Data[replicas.ListFile], digestIn(image)) {
				return false
			}
		}
		return true
	}, time.Minute, 20*time.Millisecond, "%v in %+v", images, &list)
	raw, err := list.Encode()
	require.NoError(p, err)
	_, err = replicas.WriteFile(p.node(i, "replica/"+replicas.ListFile), raw)
	require.NoError(p, err)
}

// lookAgain lets the controller look now; it does so every five minutes, and when a node changes.
func (p *plane) lookAgain() {
	var n corev1.Node
	require.NoError(p, p.env.Client.Get(p.Context(), client.ObjectKey{Name: "m0"}, &n))
	n.Labels["test"] = strconv.FormatInt(time.Now().UnixNano(), 10)
	require.NoError(p, p.env.Client.Update(p.Context(), &n))
}

// has waits until the registry of a node has an image whole, with its signature.
func (p *plane) has(i int, image string) {
	p.Helper()
	at, err := name.NewDigest(strings.Replace(image, p.name, p.address(i), 1))
	require.NoError(p, err)
	options := []remote.Option{remote.WithTransport(p.nodes[i].Transport(p.T)),
		remote.WithAuth(&authn.Basic{Username: p.pull.Name, Password: p.pull.Password})}
	var last error
	defer func() { require.NoError(p, last, "node m%d lacks %s", i, image) }()
	assert.Eventually(p, func() bool {
		var index v1.ImageIndex
		if index, last = remote.Index(at, options...); last == nil {
			last = validate.Index(index)
		}
		if last == nil {
			_, last = remote.Image(at.Context().Tag(strings.Replace(at.DigestStr(), ":", "-", 1)+".sig"), options...)
		}
		return last == nil
	}, time.Minute, 20*time.Millisecond)
}

// release is an OCI layout as make release writes one: an index of two architectures with a signature.
func release(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "images")
	to, err := layout.Write(dir, empty.Index)
	require.NoError(t, err)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range []string{"amd64", "arm64"} {
		image, err := random.Image(3000, 2)
		require.NoError(t, err)
		config, err := image.ConfigFile()
		require.NoError(t, err)
		config = config.DeepCopy()
		config.OS, config.Architecture = "linux", arch
		image, err = mutate.ConfigFile(image, config)
		require.NoError(t, err)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	d, err := index.Digest()
	require.NoError(t, err)
	signature, err := random.Image(100, 1)
	require.NoError(t, err)
	const refName = "org.opencontainers.image.ref.name"
	require.NoError(t, to.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: "controller"})))
	require.NoError(t, to.AppendImage(signature, layout.WithAnnotations(map[string]string{
		refName: strings.Replace(d.String(), ":", "-", 1) + ".sig"})))
	return dir
}

// add runs the command.
func (p *plane) add(dir string, args ...string) (code int, out, errs string) {
	p.Helper()
	return dayone(p.T, append([]string{"cluster", "registry", "add", "oci:" + dir + ":controller", "dayone/controller",
		"--ca", filepath.Join(p.dir, certs.CACertFile), "--authfile", filepath.Join(p.dir, "push.json"), "--kubeconfig",
		p.env.Kubeconfig(p.T)}, args...)...)
}

// digestIn finds the first digest of a text.
func digestIn(text string) string { return regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(text) }

// podman pulls as a container runtime of a node does: the CA, the node's pull secret, and registries.conf.
func (p *plane) podman(podman, image, auth, mirrors string) (string, error) {
	p.Helper()
	short, err := os.MkdirTemp("/tmp", "pod") // podman refuses a runroot of more than 50 characters
	require.NoError(p, err)
	p.Cleanup(func() { assert.NoError(p, os.RemoveAll(short)) })
	dir := p.TempDir()
	trusted, conf := filepath.Join(dir, "certs"), filepath.Join(dir, "registries.conf")
	require.NoError(p, os.Mkdir(trusted, 0o700))
	ca, err := os.ReadFile(filepath.Join(p.dir, certs.CACertFile))
	require.NoError(p, err)
	require.NoError(p, os.WriteFile(filepath.Join(trusted, certs.CACertFile), ca, 0o600))
	require.NoError(p, os.WriteFile(conf, []byte(mirrors), 0o600))
	ctx, cancel := context.WithTimeout(p.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, podman, "--root", filepath.Join(dir, "root"), "--runroot", short, "--storage-driver",
		"vfs", "pull", "--cert-dir", trusted, "--authfile", auth, image)
	cmd.Env = append(os.Environ(), "CONTAINERS_REGISTRIES_CONF="+conf, "HOME="+dir, "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestImagesOfPods: images of a release's folder come into the registries of the control plane, before there is a
// controller and while one node is away. The list keeps them there: the node that was away fetches them, and so does
// one that lost its disk. Podman pulls them as a pod's node does, and under another registry's name by a mirror.
func TestImagesOfPods(t *testing.T) {
	podman, err := exec.LookPath("podman")
	if testing.Short() || err != nil || os.Geteuid() != 0 {
		require.True(t, testing.Short() || os.Getenv("CI") == "", "needs root and the package podman")
		t.Skip("needs a real kube-apiserver, root and the package podman")
	}
	p := newPlane(t)
	p.start(0)
	first := release(t)
	code, _, errs := p.add(first)
	assert.Equal(t, cli.ExitUsage, code)
	assert.Contains(t, errs, "--registry", "nobody has published the name yet")
	code, out, errs := p.add(first, "--registry", p.name)
	require.Equal(t, cli.ExitOK, code, errs)
	image := strings.TrimSpace(out)
	assert.Regexp(t, `^`+p.name+`/dayone/controller@sha256:[0-9a-f]{64}$`, image)
	assert.Contains(t, errs, "node m1 does not have it yet")
	p.has(0, image)

	p.at(1, "192.0.2.22") // the controller publishes no address of loopback
	p.controls()
	p.start(1)
	p.wants(1, image)
	p.has(1, image)

	p.nodes[0].Stop(t)
	require.NoError(t, os.RemoveAll(p.node(0, "root")))
	p.start(0)
	p.wants(0, image)
	p.has(0, image)

	pull, nobody := filepath.Join(p.dir, "pull.json"), filepath.Join(p.dir, "none.json")
	require.NoError(t, os.WriteFile(nobody, []byte("{}"), 0o600))
	said, err := p.podman(podman, image, pull, "")
	require.NoError(t, err, said)
	said, err = p.podman(podman, image, nobody, "")
	require.Error(t, err, said)
	const elsewhere = "quay.example.com/dayone"
	said, err = p.podman(podman, strings.Replace(image, p.name+"/dayone", elsewhere, 1), pull,
		"[[registry]]\nlocation = \""+elsewhere+"\"\n[[registry.mirror]]\nlocation = \""+p.name+
			"/dayone\"\npull-from-mirror = \"digest-only\"\n")
	require.NoError(t, err, "as an ImageDigestMirrorSet has it: %s", said)

	names := []string{image}
	for range 2 {
		code, out, errs = p.add(release(t), "-o", "json")
		require.Equal(t, cli.ExitOK, code, errs)
		names = append(names, p.name+"/dayone/controller@"+digestIn(out))
	}
	p.lookAgain()
	p.wants(0, names[1], names[2])
}

// givesPods: the Secret for imagePullSecrets has the account that pulls, a new one after it was replaced, and what
// somebody else wrote into it.
func (p *plane) givesPods(dir, other string) {
	p.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
		Name: cluster.RegistryImagesPull}}
	for _, password := range []string{"before", p.pull.Password} {
		file := filepath.Join(p.TempDir(), "pull.json")
		require.NoError(p, registry.User{Name: "pull", Password: password, Role: registry.RolePull}.WriteAuthFile(file,
			p.name))
		code, _, errs := p.add(dir, "--registry", p.name, "--pull-authfile", file)
		require.Equal(p, cli.ExitOK, code, errs)
		assert.Contains(p, errs, "imagePullSecret "+cluster.RegistryImagesPull)
		require.NoError(p, p.env.Client.Get(p.Context(), client.ObjectKeyFromObject(secret), secret))
		assert.Equal(p, corev1.SecretTypeDockerConfigJson, secret.Type)
		accounts, err := credentials.Parse(secret.Data[corev1.DockerConfigJsonKey])
		require.NoError(p, err)
		account, _, err := accounts.Find(p.name)
		require.NoError(p, err)
		assert.Equal(p, credentials.Account{Username: "pull", Password: password}, account)
		theirs, err := os.ReadFile(other)
		require.NoError(p, err)
		secret.Data[corev1.DockerConfigJsonKey], err = credentials.Merge(secret.Data[corev1.DockerConfigJsonKey], theirs)
		require.NoError(p, err)
		require.NoError(p, p.env.Client.Update(p.Context(), secret))
	}
	require.NoError(p, p.env.Client.Get(p.Context(), client.ObjectKeyFromObject(secret), secret))
	assert.True(p, credentials.Covers(secret.Data[corev1.DockerConfigJsonKey], "other.example.com/app"))
}

// TestImagesOfPodsRefused: nothing is listed that no registry has, and what is listed is in each that answers.
func TestImagesOfPodsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	p := newPlane(t)
	p.start(0)
	dir, other := release(t), filepath.Join(t.TempDir(), "other.json")
	require.NoError(t, p.pull.WriteAuthFile(other, "other.example.com"))
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"an account that may only pull", []string{"--authfile", filepath.Join(p.dir, "pull.json")}, "push-auth.json"},
		{"no such image", []string{"oci:" + dir + ":other", "dayone/controller"}, "registry of node m0"},
		{"a path with a tag", []string{"oci:" + dir + ":controller", "dayone/controller:v1"}, "without registry and tag"},
		{"another CA", []string{"--ca", "/dev/null"}, "give the CA"},
		{"an account of other registries", []string{"--pull-authfile", other}, "it has none for " + p.name},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append([]string{"--ca", filepath.Join(p.dir, certs.CACertFile), "--authfile",
				filepath.Join(p.dir, "push.json"), "--kubeconfig", p.env.Kubeconfig(t), "--registry", p.name}, tc.args...)
			if strings.HasPrefix(tc.args[0], "--") {
				args = append([]string{"oci:" + dir + ":controller", "dayone/controller"}, args...)
			}
			code, _, errs := dayone(t, append([]string{"cluster", "registry", "add"}, args...)...)
			assert.Equal(t, cli.ExitFailed, code)
			assert.Contains(t, errs, tc.want)
		})
	}
	err := p.env.Client.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace,
		Name: cluster.RegistryImages}, &corev1.ConfigMap{})
	assert.True(t, client.IgnoreNotFound(err) == nil && err != nil, "%v", err)

	p.start(1)
	code, out, errs := p.add(dir, "--registry", p.name, "-o", "json")
	require.Equal(t, cli.ExitOK, code, errs)
	assert.NotContains(t, out, "missing")
	p.givesPods(dir, other)
	image := p.name + "/dayone/controller@" + digestIn(out)
	p.has(0, image)
	p.has(1, image)
}
