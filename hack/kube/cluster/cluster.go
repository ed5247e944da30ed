package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"dayone.dev/dayone/hack/kube/process"
	"dayone.dev/dayone/registry"
)

// Cluster is a running cluster.
type Cluster struct {
	// Config is the administrator's, usable on this machine; its requests are not throttled.
	Config *rest.Config
	// Kubeconfig is the file of the same.
	Kubeconfig string
	// Registry is the cluster's.
	Registry Registry

	dir       string
	directory *process.Directory // nil when another process started the cluster
	group     *process.Group
	record    record
	options   Options
}

// Registry tells how to reach the cluster's registry.
type Registry struct {
	// Address is its HOST:PORT on this machine. In the cluster it is RegistryName: the same images under another name.
	Address string
	// CAFile is the authority of its certificate, good for both names.
	CAFile string
	// PushAuthFile and PullAuthFile are pull secrets (auth.json) with both names.
	PushAuthFile, PullAuthFile string
	// Push and Pull are the accounts.
	Push, Pull registry.User
}

// connect fills what users of the cluster see.
func (c *Cluster) connect() (err error) {
	c.Kubeconfig = filepath.Join(c.dir, kubeconfigFile)
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	c.Config.QPS = -1
	root := filepath.Join(c.dir, registryDir)
	c.Registry = Registry{
		Address: c.record.Registry, CAFile: registry.Options{Root: root}.CAFile(),
		PushAuthFile: filepath.Join(root, registry.PushAuthFile), PullAuthFile: filepath.Join(root, registry.PullAuthFile),
	}
	for _, account := range []struct {
		user *registry.User
		role registry.Role
		file string
	}{{&c.Registry.Push, registry.RolePush, c.Registry.PushAuthFile},
		{&c.Registry.Pull, registry.RolePull, c.Registry.PullAuthFile}} {
		if *account.user, err = readAccount(account.file, c.Registry.Address, account.role); err != nil {
			return err
		}
	}
	return nil
}

// Network is the node's network namespace as a file; pods reach what listens there at NodeAddress.
func (c *Cluster) Network() string { return fmt.Sprintf("/proc/%d/ns/net", c.record.PID) }

func readAccount(file, address string, role registry.Role) (registry.User, error) {
	auth, err := target{address: address, authFile: file}.auth()
	if err != nil {
		return registry.User{}, err
	}
	account, err := auth.Authorization()
	if err != nil {
		return registry.User{}, fmt.Errorf("read credentials of the registry: %w", err)
	}
	return registry.User{Name: account.Username, Password: account.Password, Role: role}, nil
}

// waitNode waits until the node is Ready and pods are admitted: they need their namespace's default service account.
func (c *Cluster) waitNode(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	last := errors.New("it has not registered")
	for {
		switch n, err := client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{}); {
		case err != nil && !apierrors.IsNotFound(err):
			last = err
		case err == nil:
			if last = notReady(n); last == nil {
				_, last = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
			}
		}
		if last == nil {
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("wait for the node to be ready: %w: %w: kubelet's log: %s", err, last,
				process.LastLines(filepath.Join(c.record.LogDir, Kubelet+".log"), 5))
		}
	}
}

// notReady says what a node lacks.
func notReady(n *corev1.Node) error {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			for _, taint := range n.Spec.Taints {
				if taint.Key == corev1.TaintNodeNotReady {
					return errors.New("it is still tainted as not ready")
				}
			}
			return nil
		}
		if condition.Type == corev1.NodeReady {
			return errors.New(condition.Message)
		}
	}
	return errors.New("it has no condition Ready")
}

// Name is what people call the cluster.
func (c *Cluster) Name() string { return c.record.Name }

// LogDir has the logs of the node's programs, PodLogDir those of pods (NAMESPACE_POD_UID/CONTAINER/N.log).
func (c *Cluster) LogDir() string { return c.record.LogDir }

// PodLogDir has the logs of pods, also of those that ended, until kubelet removes them.
func (c *Cluster) PodLogDir() string { return filepath.Join(c.dir, podLogDir) }

// Push writes an image into the registry and gives its name in the cluster, by digest.
func (c *Cluster) Push(ctx context.Context, i Image) (string, error) {
	digest, err := i.push(ctx, target{address: c.Registry.Address, caFile: c.Registry.CAFile,
		authFile: c.Registry.PushAuthFile})
	if err != nil {
		return "", err
	}
	return RegistryName + "/" + i.Repository + "@" + digest, nil
}

// PushSecret and PullSecret are Secrets (kubernetes.io/dockerconfigjson) with the registry's accounts.
func (c *Cluster) PushSecret(namespace, name string) (*corev1.Secret, error) {
	return secret(c.Registry.PushAuthFile, namespace, name)
}

// PullSecret may only pull, see PushSecret.
func (c *Cluster) PullSecret(namespace, name string) (*corev1.Secret, error) {
	return secret(c.Registry.PullAuthFile, namespace, name)
}

func secret(file, namespace, name string) (*corev1.Secret, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read pull secret: %w", err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: raw},
	}, nil
}

// NodeExec is a command in all of the node's namespaces. Programs of this machine, kubectl and crictl's kind included,
// see the node's world.
func (c *Cluster) NodeExec(ctx context.Context, argv ...string) *exec.Cmd {
	args := []string{"--target", strconv.Itoa(c.record.PID), "--mount", "--net", "--pid", "--uts", "--ipc", "--"}
	return exec.CommandContext(ctx, "nsenter", append(args, argv...)...)
}

// Kubectl is a kubectl of the cluster's version, as administrator.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.record.Assets, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	return cmd
}

// Kill ends one of the node's programs (Kubelet, APIServer, ...) as a crash does; pods live on. Start brings it back.
func (c *Cluster) Kill(ctx context.Context, program string) error {
	_, err := c.ask(ctx, http.MethodPost, "/kill/"+program)
	return err
}

// Start runs one of the node's programs that was killed. It does not wait until that is ready; see WaitReady.
func (c *Cluster) Start(ctx context.Context, program string) error {
	_, err := c.ask(ctx, http.MethodPost, "/start/"+program)
	return err
}

// WaitReady waits until the API server answers and the node is Ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	return c.waitNode(ctx)
}

// Programs lists the node's programs with their state, one a line.
func (c *Cluster) Programs(ctx context.Context) (string, error) {
	return c.ask(ctx, http.MethodGet, "/programs")
}

func (c *Cluster) ask(ctx context.Context, method, path string) (string, error) {
	dir, err := os.Open(c.dir)
	if err != nil {
		return "", fmt.Errorf("reach the node: %w", err)
	}
	defer dir.Close()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		// By the descriptor: the name of a socket has at most 107 bytes.
		return new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), controlFile))
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, "http://node"+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return "", fmt.Errorf("reach the node: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return string(text), err
}
