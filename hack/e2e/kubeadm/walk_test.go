package kubeadm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/hack/codeblocks"
	"dayone.dev/dayone/hack/kube"
	"dayone.dev/dayone/hack/kube/process"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/rebase/rollout"
)

// workEnv names the directory of the process that is the master.
const workEnv = "DAYONE_KUBEADM_MASTER"

func TestMain(m *testing.M) {
	work := os.Getenv(workEnv)
	if work == "" {
		os.Exit(m.Run())
	}
	if err := master(context.Background(), work, filepath.Join(work, "walk.sh")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const page = "../../../docs/users/kubeadm.md"

func blocks(t *testing.T) []codeblocks.Block {
	t.Helper()
	out, err := codeblocks.Of(page)
	require.NoError(t, err)
	return out
}

// script is what the page lets an admin do on the first master, with what this machine plays around it: kubeadm finds
// no container runtime and perhaps old cgroups, dayone's pods never start, and the other master is a directory.
func script(t *testing.T) string {
	out := `set -euxo pipefail
` + kernelSettings(t) + `kubeadm() {
    case "$1 $2" in
    "init --config") command kubeadm "$@" --ignore-preflight-errors=CRI,ContainerRuntimeVersion,ImagePull,SystemVerification ;;
    *) command kubeadm "$@" ;;
    esac
}
dayone() {
    case "$1 $2" in
    "cluster install") command dayone "$@" --no-wait ;;
    "cluster status") command dayone "$@" >status.txt || : ;;
    esac
}
`
	ran := map[string]int{}
	for _, b := range blocks(t) {
		switch {
		case b.Where == "kubeadm.yaml":
			out += "cat >kubeadm.yaml <<'EOF'\n" + b.Text + "EOF\n"
		case b.Where == "first-master":
			out += b.Text
		case b.Where == "other-master":
			require.Equal(t, "sh join-master\n", b.Text)
			out += otherMaster
		case b.Where == "bootstrap-host", b.Language == "dockerfile":
		default:
			require.Fail(t, "a block of the page says not where it runs", "%+v", b)
		}
		ran[b.Where]++
	}
	assert.Equal(t, map[string]int{"": 1, "kubeadm.yaml": 1, "first-master": 5, "other-master": 1, "bootstrap-host": 2},
		ran)
	return out + `kubectl get node master-0 -o json >node.json
cp -r /etc/kubernetes/manifests manifests
`
}

// kernelSettings writes the sysctl files of the page's Containerfile where systemd-sysctl would.
func kernelSettings(t *testing.T) (out string) {
	for _, b := range blocks(t) {
		if b.Language != "dockerfile" {
			continue
		}
		for _, m := range regexp.MustCompile(`(?m)^RUN echo '(\S+) = (\S+)' >/usr/lib/sysctl\.d/`).FindAllStringSubmatch(b.Text,
			-1) {
			out += fmt.Sprintf("echo %s >/proc/sys/%s\n", m[2], strings.ReplaceAll(m[1], ".", "/"))
		}
	}
	require.NotEmpty(t, out, "the page's Containerfile makes the machine forward packets")
	return out
}

// otherMaster runs the printed command up to the certificates, with a disk of its own: etcd and another API server
// would want this one's ports.
const otherMaster = `grep -q -- '--control-plane --certificate-key' join-master
unshare --mount bash -euxc '
    cp -r /etc/kubernetes/pki first-pki
    mount -t tmpfs tmpfs /etc/kubernetes
    sed "s/^kubeadm join/& phase control-plane-prepare download-certs/" join-master | sh -eux
    for f in ca.crt ca.key sa.key etcd/ca.key; do cmp /etc/kubernetes/pki/$f first-pki/$f; done'
`

// TestThePageMakesAControlPlane runs the commands of the page.
func TestThePageMakesAControlPlane(t *testing.T) {
	switch {
	case testing.Short():
		t.Skip("starts Kubernetes: left out with -short")
	case os.Geteuid() != 0 && os.Getenv("CI") == "":
		t.Skip("needs root: it mounts")
	}
	work := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(work, "bin"), 0o755))
	programs, err := kube.Assets(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, program.Build(t.Context(), "", program.Options{Package: "dayone.dev/dayone/cmd/dayone", Cgo: true},
		filepath.Join(work, "bin", "dayone")))
	require.NoError(t, os.WriteFile(filepath.Join(work, "walk.sh"), []byte(script(t)), 0o600))
	image := "registry.example.com/dayone/program@sha256:" + strings.Repeat("0", 64)
	log := filepath.Join(work, "walk.log")
	group := process.NewGroup()
	defer func() { require.NoError(t, group.Close()) }()
	p, err := group.Start(process.Spec{Path: "/proc/self/exe", Name: "master", Log: log,
		Env: []string{workEnv + "=" + work, "HOME=" + work, "PATH=" + filepath.Join(work, "bin") + ":" + programs + ":" +
			commands(t, work), "CONTROLLER=" + image, "BUILDER=" + image, "DAEMON=" + image},
		Clone: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC})
	require.NoError(t, err)
	<-p.Done()
	require.ErrorContains(t, p.Ended(), "status 0", "%s\n%s", process.LastLines(log, 60),
		process.LastLines(filepath.Join(work, "kube-apiserver.log"), 5))

	raw, err := os.ReadFile(filepath.Join(work, "node.json"))
	require.NoError(t, err)
	var node corev1.Node
	require.NoError(t, json.Unmarshal(raw, &node))
	inPool(t, &node)
	status, err := os.ReadFile(filepath.Join(work, "status.txt"))
	require.NoError(t, err)
	assert.Contains(t, string(status), "dayone-controller")
	writable(t, filepath.Join(work, "manifests"))
}

// commands is a directory with the commands of this machine that the walk needs. Not among them: systemctl, with which
// kubeadm would start this machine's own kubelet.
func commands(t *testing.T, work string) string {
	dir := filepath.Join(work, "commands")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"bash", "sh", "ip", "cat", "cp", "mkdir", "mount", "sed", "cmp", "grep", "tail", "tee",
		"unshare", "losetup"} {
		for _, from := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"} {
			if _, err := os.Stat(filepath.Join(from, name)); err == nil {
				require.NoError(t, os.Symlink(filepath.Join(from, name), filepath.Join(dir, name)))
				break
			}
		}
		require.FileExists(t, filepath.Join(dir, name))
	}
	return dir
}

// inPool says that the node is one of the sample's pool master.
func inPool(t *testing.T, node *corev1.Node) {
	dir := t.TempDir()
	require.NoError(t, assets.WriteSample(dir))
	set, err := manifests.ReadDir(filepath.Join(dir, "openshift"), manifests.ReadOptions{})
	require.NoError(t, err)
	var pools []*mcfgv1.MachineConfigPool
	for _, p := range set.Pools {
		pools = append(pools, p.Object)
	}
	pool, err := rollout.NewPlacement(pools).Pool(node)
	require.NoError(t, err)
	require.NotNil(t, pool, "%v", node.Labels)
	assert.Equal(t, "master", pool.Name)
}

// writable says that static pods want no directory made below /usr, which is read-only in an image: but for those that
// the page puts into the image.
func writable(t *testing.T, manifests string) {
	files, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 4)
	raw, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var pod corev1.Pod
		require.NoError(t, yaml.Unmarshal(content, &pod))
		for _, v := range pod.Spec.Volumes {
			path := v.HostPath.Path
			if strings.HasPrefix(path, "/usr/") && !strings.HasSuffix(path, "/ca-certificates") { // only if it is there
				assert.Contains(t, string(raw), "RUN mkdir -p "+path+"\n", file)
			}
		}
	}
}
