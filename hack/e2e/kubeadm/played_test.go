package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/hack/kube/process"
)

// The master, as the page has it.
const (
	address  = "192.0.2.11"
	endpoint = "api.example.com"
	nodeName = "master-0"
)

// master is what a process in namespaces of its own does: it lays out the machine, plays kubelet and runs the script.
func master(ctx context.Context, work, script string) error {
	if err := errors.Join(mounts(work), network(ctx)); err != nil {
		return err
	}
	group := process.NewGroup()
	defer group.Close() //nolint:errcheck // with the process's namespaces everything ends
	k := &kubelet{group: group, work: work, pods: map[string]*process.Process{}}
	alive, err := net.Listen("tcp", "127.0.0.1:10248")
	if err != nil {
		return fmt.Errorf("play kubelet: %w", err)
	}
	go func() {
		_ = http.Serve(alive, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
	}()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go k.run(ctx)
	cmd := exec.CommandContext(ctx, "bash", script)
	cmd.Dir, cmd.Stdout, cmd.Stderr = work, os.Stdout, os.Stderr
	return cmd.Run()
}

// mounts gives the machine directories of its own where kubeadm writes.
func mounts(work string) error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("own the mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	files := map[string][]byte{"hosts": fmt.Appendf(nil, "127.0.0.1 localhost\n%s %s %s\n", address, endpoint, nodeName)}
	for _, name := range []string{"passwd", "group", "nsswitch.conf", "ld.so.cache"} {
		if raw, err := os.ReadFile(filepath.Join("/etc", name)); err == nil {
			files[name] = raw
		}
	}
	for _, dir := range []string{"/etc", "/var/lib"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join("/etc", name), content, 0o644); err != nil {
			return err
		}
	}
	return os.MkdirAll("/etc/kubernetes/manifests", 0o755)
}

// network is a card with the master's address that leads nowhere.
func network(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader("link set lo up\nlink add node0 type veth peer name node1\naddr add " + address +
		"/24 dev node0\nlink set node0 up\nlink set node1 up\nroute add default via 192.0.2.254\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("set up network: %w: %s", err, out)
	}
	return nil
}

// kubelet plays one without a container runtime: it runs the commands of static pods as processes of this machine, and
// makes its Node with the credential that kubeadm gives it. It does not know probes, volumes and images.
type kubelet struct {
	group *process.Group
	work  string
	pods  map[string]*process.Process
	node  bool
}

// played is how often the played kubelet looks for pods, and tries to make its Node.
const played = 300 * time.Millisecond

func (k *kubelet) run(ctx context.Context) {
	for ctx.Err() == nil {
		files, _ := filepath.Glob("/etc/kubernetes/manifests/*.yaml")
		for _, file := range files {
			if err := k.pod(file); err != nil {
				fmt.Fprintln(os.Stderr, "played kubelet:", err)
			}
		}
		k.node = k.node || register(ctx) == nil
		time.Sleep(played)
	}
}

func (k *kubelet) pod(file string) error {
	if p := k.pods[file]; p != nil {
		select {
		case <-p.Done():
		default:
			return nil
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(raw, &pod); err != nil {
		return fmt.Errorf("static pod %s: %w", file, err)
	}
	c := pod.Spec.Containers[0]
	k.pods[file], err = k.group.Start(process.Spec{Path: c.Command[0], Args: append(c.Command[1:], c.Args...),
		Log: filepath.Join(k.work, c.Name+".log")})
	return err
}

// register makes the Node as kubelet does: the API server decides what this credential may.
func register(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "kubectl", "--kubeconfig", "/etc/kubernetes/kubelet.conf", "create", "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata:\n  name: %s\n  labels:\n"+
		"    kubernetes.io/hostname: %s\n    kubernetes.io/os: linux\n", nodeName, nodeName))
	return cmd.Run()
}
