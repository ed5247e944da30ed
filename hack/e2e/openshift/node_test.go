package openshift_test

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e/mcostandin"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/hack/kube/process"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/registrytest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) {
	testnode.Init()
	if lab := os.Getenv(sshEnv); lab != "" {
		os.Exit(asSSH(lab, os.Args[1:]))
	}
	os.Exit(shared.Main(m, kubetest.Options{}))
}

// world is the network of one installation: its bootstrap node, and on the host beside it the release's registry, the
// API server and a file server.
type world struct {
	t    *testing.T
	lab  *testnode.Lab
	node *testnode.Node
	// host is the address beside the node; bin has the program; served is what the file server gives.
	host, bin, served string
	// programs end with the test program, also when it is killed.
	programs     *process.Group
	base, baseCA string
	// mco is the image of MCO's stand-in in the release's registry; pushed brings another one there.
	mco        string
	pushed     func(layout, repository string) (reference string)
	pullSecret []byte
	files      []map[string]any
	// final is the registry in which the images end up, not running at first; operator plays MCO in the cluster.
	final       registry.Options
	finalServer *registry.Server
	operator    mcostandin.Operator
	// kept is where the node's log bundle is sent.
	kept string
	// downloads lets the release's registry answer at length.
	downloads *tap
	// built is asked for by RUN instructions of the scenarios that want builds to wait for it, asked counts that; edit
	// changes the sample.
	built chan struct{}
	asked atomic.Int32
	edit  func(dir string)
	// fromServer lets the node fetch the program from the file server, not out of an image.
	fromServer bool
	// inPlace is an installation whose only node is its own bootstrap node.
	inPlace bool
	// agent is an installation by the agent-based installer: late is what comes to the rendezvous host with the bootstrap.
	agent    bool
	late     []byte
	assisted assisted
	// own is an installation without a registry of the user's; pulled is the masters' image as an OCI layout.
	own    bool
	pulled string
	// loopback takes connections to the API server on the node until bootkube ends that.
	loopback net.Listener
}

// finalName is HOST:PORT of the final registry, and finalRepository where a pool's image is there.
func (w *world) finalName() string {
	if w.own {
		return ownRegistry
	}
	return w.host + ":9700"
}

func (w *world) finalRepository(pool string) string {
	if w.own {
		return ownRegistry + "/" + pool + "-os"
	}
	return w.finalName() + "/ocp/" + pool + "-os"
}

// useFinal makes the sample's registry one that will be there.
func (w *world) useFinal() {
	push, err := registry.NewUser("push", registry.RolePush)
	require.NoError(w.t, err)
	pull, err := registry.NewUser("pull", registry.RolePull)
	require.NoError(w.t, err)
	w.final = registry.Options{Root: filepath.Join(w.t.TempDir(), "final"), Listen: w.finalName(), Hosts: []string{w.host},
		Users: []registry.User{push, pull}}
	w.finalServer, err = registry.New(w.final)
	require.NoError(w.t, err)
	w.startFinal() // once, for its authority
	require.NoError(w.t, w.finalServer.Shutdown(w.t.Context()))
	w.operator = mcostandin.Operator{Env: shared.Env(w.t), Versions: versions, Platform: "linux/amd64"}
	w.t.Cleanup(func() { w.operator.Clear(w.t) })
}

// startFinal lets it answer.
func (w *world) startFinal() {
	require.NoError(w.t, w.lab.Network.Do(w.finalServer.Start))
	w.t.Cleanup(func() { require.NoError(w.t, w.finalServer.Shutdown(context.Background())) })
}

// versions are those of MCO's stand-ins, on the node and in the cluster.
var versions = render.Versions{Raw: "test", Hash: "test", Payload: "test"}

func newWorld(t *testing.T) *world { return newWorldOn(t, baseimage.Tiny) }

// newWorldOn is a world whose release has this OS image.
func newWorldOn(t *testing.T, system baseimage.Kind) *world {
	t.Helper()
	switch {
	case testing.Short():
		t.Skip("boots a node: left out with -short")
	case os.Geteuid() != 0 && os.Getenv("CI") == "":
		t.Skip("needs root: it boots a node in namespaces")
	}
	w := &world{t: t, downloads: newTap(), built: make(chan struct{}), bin: filepath.Join(t.TempDir(), "dayone"),
		served: t.TempDir(), programs: process.NewGroup()}
	t.Cleanup(func() { require.NoError(t, w.programs.Close()) })
	require.NoError(t, program.Build(t.Context(), "", program.Options{Package: "dayone.dev/dayone/cmd/dayone", Cgo: true},
		w.bin))
	debian, err := baseimage.Ensure(t.Context(), baseimage.Debian, "")
	require.NoError(t, err)
	w.lab, err = testnode.New(t.Context(), testnode.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.lab.Close(context.Background())) })
	w.host = w.lab.Network.Bootstrap().String()
	w.node, err = w.lab.NewNode(t.Context(), "boot0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: debian}})
	require.NoError(t, err)
	w.release(system)
	w.fileServer()
	w.kubernetes()
	w.useFinal()
	return w
}

// keeps runs a program until the test ends; a test that fails shows what it printed.
func (w *world) keeps(cmd *exec.Cmd) *process.Process {
	log := filepath.Join(w.t.TempDir(), "log")
	p, err := w.programs.Start(process.Spec{Path: cmd.Path, Args: cmd.Args[1:], Env: cmd.Env, Log: log})
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		require.NoError(w.t, p.Kill())
		if w.t.Failed() {
			text, _ := os.ReadFile(log)
			w.t.Logf("%v:\n%s", cmd.Args, text)
		}
	})
	return p
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

// release is a registry with the release's OS image and its machine-config-operator.
func (w *world) release(system baseimage.Kind) {
	tiny, err := baseimage.Ensure(w.t.Context(), baseimage.Tiny, "")
	require.NoError(w.t, err)
	layout, err := baseimage.Ensure(w.t.Context(), system, "")
	require.NoError(w.t, err)
	user, err := registry.NewUser("push", registry.RolePush)
	require.NoError(w.t, err)
	behind := w.host + ":9602"
	o := registry.Options{Root: filepath.Join(w.t.TempDir(), "release"), Listen: behind, Hosts: []string{w.host},
		Users: []registry.User{user}}
	srv, err := registry.New(o)
	require.NoError(w.t, err)
	require.NoError(w.t, w.lab.Network.Do(srv.Start))
	w.t.Cleanup(func() { require.NoError(w.t, srv.Shutdown(context.Background())) })
	relay(w.listen(9600), w.downloads, func() (c net.Conn, err error) {
		err = w.lab.Network.Do(func() error { c, err = net.Dial("tcp4", behind); return err })
		return c, err
	})
	auth := filepath.Join(w.t.TempDir(), "auth.json")
	registrytest.WriteAuthFile(w.t, auth, w.host+":9600", user)
	// The relay may hold what the OS image is pulled by; MCO's image is not behind it.
	other := filepath.Join(w.t.TempDir(), "auth.json")
	registrytest.WriteAuthFile(w.t, other, behind, user)
	push := func(layout, host, repository, auth string) string {
		name := host + "/" + repository
		out, err := w.lab.Network.Command(w.t.Context(), w.bin, "registry", "copy", "oci:"+layout, "docker://"+name+":1",
			"--dest-ca", o.CAFile(), "--dest-authfile", auth).CombinedOutput()
		require.NoError(w.t, err, string(out))
		digest, err := baseimage.Digest(layout)
		require.NoError(w.t, err)
		return name + "@" + digest.String()
	}
	w.base = push(layout, w.host+":9600", "ocp/base-os", auth)
	w.pushed = func(layout, repository string) string { return push(layout, behind, repository, other) }
	w.mco = w.pushed(w.mcoImage(tiny), "ocp/machine-config-operator")
	ca, err := os.ReadFile(o.CAFile())
	require.NoError(w.t, err)
	w.baseCA = string(ca)
	w.pullSecret, err = os.ReadFile(auth)
	require.NoError(w.t, err)
	more, err := os.ReadFile(other)
	require.NoError(w.t, err)
	w.pullSecret, err = credentials.Merge(w.pullSecret, more)
	require.NoError(w.t, err)
}

func (w *world) fileServer() {
	l := w.listen(8080)
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(w.served)))
	mux.HandleFunc("/built", func(_ http.ResponseWriter, r *http.Request) {
		w.asked.Add(1)
		select {
		case <-w.built:
		case <-r.Context().Done():
		}
	})
	srv := &http.Server{Handler: mux}
	go func() { _ = srv.Serve(l) }()
	w.t.Cleanup(func() { _ = srv.Close() })
}

// kubernetes passes port 6443 beside the node on to a real API server that has what cluster-bootstrap creates.
func (w *world) kubernetes() {
	env := shared.Env(w.t)
	for _, o := range []string{"openshift-config", "openshift-machine-config-operator"} {
		require.NoError(w.t, client.IgnoreAlreadyExists(env.Client.Create(w.t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o}})))
	}
	require.NoError(w.t, client.IgnoreNotFound(env.Client.Delete(w.t.Context(), w.secret()))) // an earlier run's
	require.NoError(w.t, env.Client.Create(w.t.Context(), w.secret()))
	w.loopback = w.passOn(6443)
	w.passOn(clusterPort)
}

// clusterPort is where the masters' API server answers: the one on the bootstrap node goes earlier.
const clusterPort = 6444

// passOn passes a port beside the node on to the API server.
func (w *world) passOn(port int) net.Listener {
	api, err := url.Parse(shared.Env(w.t).Config.Host)
	require.NoError(w.t, err)
	l := w.listen(port)
	relay(l, newTap(), func() (net.Conn, error) { return net.Dial("tcp", api.Host) })
	return l
}

func (w *world) secret() *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "pull-secret"},
		Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: w.pullSecret}}
}

// put adds a file to the installer's bootstrap.ign.
func (w *world) put(path string, mode int, content []byte) {
	w.files = append(w.files, map[string]any{"path": path, "mode": mode, "overwrite": true,
		"contents": map[string]any{"source": *machineconfig.Inline(content).Source}})
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

// dockerConfig has the pull secret.
const dockerConfig = "/root/.docker/config.json"

// partOfOS are the stand-ins that have the place of a program of the operating system.
var partOfOS = []string{"coreos-installer", "oc"}

// scripts puts stand-ins of the installer's scripts on the node.
func (w *world) scripts(dir string) {
	entries, err := os.ReadDir(dir)
	require.NoError(w.t, err)
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(w.t, err)
		path := "/usr/local/bin/" + e.Name()
		if slices.Contains(partOfOS, e.Name()) {
			path = "/usr/bin/" + e.Name()
		}
		w.files = slices.DeleteFunc(w.files, func(f map[string]any) bool { return f["path"] == path })
		w.put(path, 0o555, raw)
	}
}

// installer is the bootstrap.ign that openshift-install would make, as far as it matters here. With the files of a
// bootstrap in place it is that flow's config.
func (w *world) installer() []byte {
	w.scripts("testdata/node")
	if w.inPlace {
		w.scripts("testdata/inplace")
	}
	if w.inPlace || w.agent {
		w.scripts("testdata/disk")
	}
	if w.agent {
		w.liveHost()
	}
	w.put(dockerConfig, 0o600, w.pullSecret)
	w.put("/etc/ssl/certs/release-registry.pem", 0o644, []byte(w.baseCA))
	w.put("/opt/openshift/fixture/base-image", 0o644, []byte(w.base))
	w.put("/opt/openshift/fixture/machineconfigoperator-bootstrap-pod.yaml", 0o644,
		[]byte("apiVersion: v1\nkind: Pod\nspec:\n  initContainers:\n  - name: controller\n    image: "+w.mco+"\n"+
			"    command: [machine-config-controller]\n    args: [bootstrap, --manifest-dir=/etc/mcc/bootstrap, "+
			"--dest-dir=/etc/mcs/bootstrap, --payload-version=test]\n"))
	kubeconfig, err := os.ReadFile(shared.Env(w.t).Kubeconfig(w.t))
	require.NoError(w.t, err)
	server := regexp.MustCompile(`(?m)^(\s*)server: .*$`)
	for name, port := range map[string]int{"kubeconfig-loopback": 6443, "kubeconfig": clusterPort} {
		w.put("/opt/openshift/auth/"+name, 0o600, server.ReplaceAll(kubeconfig,
			fmt.Appendf(nil, "${1}server: https://%s:%d\n${1}tls-server-name: 127.0.0.1", w.host, port)))
	}
	// nftables is part of a real node's userland, as are podman and its helpers; Debian's base image has none of them.
	w.fetchedProgram("nft", "/usr/sbin/nft")
	w.containers()
	unit := func(name, text string, enabled bool) map[string]any {
		u := map[string]any{"name": name, "contents": text}
		if enabled {
			u["enabled"] = true
		}
		return u
	}
	const install = "\n[Install]\nWantedBy=multi-user.target\n"
	var more []any
	if w.agent {
		more = []any{unit("approve-csr.service", "[Unit]\nWants=bootkube.service\nAfter=bootkube.service\n[Service]\n"+
			"ExecStart=/bin/true\n"+install, true)}
	}
	if w.inPlace {
		more = []any{unit("install-to-disk.service", "[Unit]\nRequires=bootkube.service\nAfter=bootkube.service\n"+
			"ConditionPathExists=!/opt/openshift/.install-to-disk.done\n[Service]\nWorkingDirectory=/opt/openshift\n"+
			"ExecStart=/usr/local/bin/install-to-disk.sh\nRestart=on-failure\nRestartSec=5s\n"+install, true)}
	}
	raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.2.0"},
		"storage": map[string]any{"files": w.files}, "systemd": map[string]any{"units": append(more,
			unit("release-image.service", "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n", false),
			unit("kubelet.service", "[Service]\nExecStart=/usr/local/bin/kubelet.sh\nRestart=always\n"+install, true),
			unit("bootkube.service",
				"[Unit]\nRequires=release-image.service\nWants=kubelet.service\n"+
					"After=kubelet.service release-image.service\n"+
					"ConditionPathExists=!/opt/openshift/.bootkube.done\n[Service]\nWorkingDirectory=/opt/openshift\n"+
					"ExecStart=/usr/local/bin/bootkube.sh\nRestart=on-failure\nRestartSec=5s\n", false),
			unit("progress.service",
				"[Unit]\nWants=bootkube.service\nAfter=bootkube.service\n[Service]\n"+
					"ExecStart=/usr/local/bin/report-progress.sh /opt/openshift/auth/kubeconfig\n"+
					"Restart=on-failure\nRestartSec=5s\n"+install, true),
		)}})
	require.NoError(w.t, err)
	return raw
}

// manifests are the user's and those that MCO's bootstrap adds; cluster-bootstrap posts them all.
func (w *world) manifests(dir string, set *manifests.Set) {
	entries, err := os.ReadDir(dir)
	require.NoError(w.t, err)
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(w.t, err)
		w.put("/opt/openshift/openshift/"+e.Name(), 0o644, raw)
	}
	object := func(path string, o any) {
		raw, err := manifests.Marshal(o)
		require.NoError(w.t, err)
		w.put(path, 0o644, raw)
	}
	render.StandaloneInputs(set, w.base, versions)
	set.ControllerConfigs[0].Object = mcostandin.Controller(set.ControllerConfigs[0].Object)
	object("/opt/openshift/manifests/99_feature-gate.yaml", set.FeatureGates[0].Object)
	object("/opt/openshift/mco-bootstrap/machineconfigcontroller-controllerconfig.yaml", set.ControllerConfigs[0].Object)
	object("/opt/openshift/mco-bootstrap/machineconfigcontroller-pull-secret", w.secret())
	for _, role := range []string{"master", "worker"} {
		pool := mcostandin.Pool(role)
		set.Pools = append(set.Pools, manifests.NewItem(pool))
		object("/opt/openshift/mco-bootstrap/"+role+".machineconfigpool.yaml", pool)
	}
	w.operator.Post(w.t, set)
}

// dayone runs the program on an install directory.
func (w *world) dayone(dir string, args ...string) {
	w.t.Helper()
	out, err := exec.Command(w.bin, append(args, "--dir", dir)...).CombinedOutput()
	require.NoError(w.t, err, string(out))
}

// masters is how many the sample install-config.yaml has.
const masters = 3

// patched takes the sample install directory through the steps of docs/users/day1-openshift.md, plays the installer's
// part between them, and gives the patched bootstrap.ign.
func (w *world) patched() []byte {
	dir := filepath.Join(w.t.TempDir(), "install")
	w.dayone(dir, "sample", "--flow", "openshift")
	if w.edit != nil {
		w.edit(dir)
	}
	registry := ""
	if !w.own {
		phasetest.UseRegistry(w.t, dir, w.finalName(), w.final.Users[0], w.final.Users[1])
		ca, err := os.ReadFile(w.final.CAFile())
		require.NoError(w.t, err)
		require.NoError(w.t, os.WriteFile(filepath.Join(dir, "final.crt"), ca, 0o600))
		registry = "  registry: {caFile: final.crt}\n"
	}
	file := filepath.Join(dir, "install-config.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(file, bytes.Replace(raw, []byte("  flow: openshift\n"),
		[]byte("  flow: openshift\n"+registry+"  statusPage: {port: "+strconv.Itoa(statusPort)+"}\n"+w.receive(dir)),
		1), 0o600))
	w.dayone(dir, "prepare")
	if w.own { // as with this CA and that of the release's registry in additionalTrustBundle
		ca, err := os.ReadFile(filepath.Join(dir, ".dayone/registry/ca.crt"))
		require.NoError(w.t, err)
		w.operator.RegistryCA = append(ca, w.baseCA...)
	}
	if w.agent {
		return w.afterPrepare(dir, installconfig.AgentIgnition)
	}
	return w.afterPrepare(dir, installconfig.BootstrapIgnition)
}

// afterPrepare takes a prepared directory from create manifests on, to the patched Ignition config of this name.
func (w *world) afterPrepare(dir, ignition string) []byte {
	file := filepath.Join(dir, installconfig.FileName)
	stripped, err := os.ReadFile(file)
	require.NoError(w.t, err)
	require.NotContains(w.t, string(stripped), installconfig.Field)
	if !w.agent { // create manifests: install-config.yaml goes, the installer's own manifests come.
		require.NoError(w.t, os.Remove(file))
		require.NoError(w.t, os.MkdirAll(filepath.Join(dir, "manifests"), 0o750))
		config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cluster-config-v1, namespace: kube-system}\n" +
			"data: {install-config: \"\"}\n"
		require.NoError(w.t, os.WriteFile(filepath.Join(dir, "manifests/cluster-config.yaml"), []byte(config), 0o640))
	}
	w.dayone(dir, "manifests")

	// create ignition-configs: everything in both directories goes into bootstrap.ign.
	users, err := manifests.ReadDir(filepath.Join(dir, "openshift"), manifests.ReadOptions{})
	require.NoError(w.t, err)
	w.manifests(filepath.Join(dir, "openshift"), users)
	for _, consumed := range []string{"manifests", "openshift", installconfig.FileName, installconfig.AgentConfig} {
		require.NoError(w.t, os.RemoveAll(filepath.Join(dir, consumed)))
	}
	file = filepath.Join(dir, ignition)
	made := w.installer()
	if w.agent {
		made, w.late = liveAndLate(w.t, made)
	}
	require.NoError(w.t, os.WriteFile(file, made, 0o640))
	program := []string{"--program-image", w.mco} // it has the program, too
	if w.fromServer {
		address, hash := w.fetched("", w.bin)
		program = []string{"--program-url", address, "--program-sha512", hash}
	}
	w.dayone(dir, append([]string{"ignition"}, program...)...)
	raw, err := os.ReadFile(file)
	require.NoError(w.t, err)
	return raw
}
