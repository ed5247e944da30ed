package cluster

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

	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/kube/controlplane"
	"dayone.dev/dayone/hack/kube/process"
	"dayone.dev/dayone/registry"
)

// Names of the node's programs, as Stop and Start take them.
const (
	etcd              = "etcd"
	APIServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	containerd        = "containerd"
	Kubelet           = "kubelet"
)

// node is what runs inside the namespaces.
type node struct {
	record   record
	group    *process.Group
	registry *registry.Server
	plane    *controlplane.Plane
	specs    map[string]process.Spec
	programs programs
}

// startReport is one line that a starting node process writes to the process that called Up.
type startReport struct {
	Step  string `json:"step,omitempty"`
	Error string `json:"error,omitempty"`
	Ready bool   `json:"ready,omitempty"`
}

// runNode sets the node up in dir, reports, and then serves until it is killed.
func runNode(dir string) error {
	for fd := lockDescriptor; fd < firstFree; fd++ {
		unix.CloseOnExec(fd)
	}
	pipe := os.NewFile(reportDescriptor, "report")
	tell := func(r startReport) { _ = json.NewEncoder(pipe).Encode(r) } // who called Up may have gone
	n := &node{group: process.NewGroup(), specs: map[string]process.Spec{}}
	ctx, cancel := context.WithTimeout(context.Background(), upTimeout)
	defer cancel()
	if err := n.setUp(ctx, dir, func(step string) { tell(startReport{Step: step}) }); err != nil {
		tell(startReport{Error: err.Error()})
		return err
	}
	tell(startReport{Ready: true})
	_ = pipe.Close()
	return n.control()
}

func (n *node) setUp(ctx context.Context, dir string, step func(string)) error {
	var err error
	if n.record, err = readRecord(dir); err != nil {
		return fmt.Errorf("read cluster's record: %w", err)
	}
	if err := mountNode(dir); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(NodeName)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := setUpNetwork(ctx); err != nil {
		return err
	}
	if err := n.serve(); err != nil {
		return err
	}
	step("network and registry")
	if err := n.startPlane(); err != nil {
		return err
	}
	if err := n.startRuntime(ctx); err != nil {
		return err
	}
	step("container runtime")
	if err := controlplane.WaitReady(ctx, n.plane.AdminConfig(n.plane.URL()), n.programs.get(APIServer)); err != nil {
		return err
	}
	step("API server")
	n.specs[controllerManager], n.specs[scheduler] = n.plane.ControllerManager(), n.plane.Scheduler()
	n.specs[Kubelet] = n.kubelet()
	for _, name := range []string{controllerManager, scheduler, Kubelet} {
		if err := n.start(name); err != nil {
			return err
		}
	}
	return nil
}

// serve runs what is part of this process: the registry, DNS, and the ways in from this machine.
func (n *node) serve() error {
	root := filepath.Join(inside, registryDir)
	users, err := registry.LoadOrCreateUsers(root, RegistryName, n.record.Registry)
	if err != nil {
		return err
	}
	n.registry, err = registry.New(registry.Options{Root: root, Listen: "0.0.0.0:" + registryPort, Users: users,
		Hosts: []string{RegistryHost, NodeAddress}})
	if err != nil {
		return err
	}
	if err := n.registry.Start(); err != nil {
		return fmt.Errorf("start registry: %w", err)
	}
	dns, err := net.ListenPacket("udp", net.JoinHostPort(dnsAddress, "53"))
	if err != nil {
		return fmt.Errorf("listen for DNS: %w", err)
	}
	go serveDNS(dns)
	for fd, to := range map[uintptr]string{
		apiDescriptor:      fmt.Sprintf("127.0.0.1:%d", apiPort),
		registryDescriptor: "127.0.0.1:" + registryPort,
	} {
		listener, err := net.FileListener(os.NewFile(fd, "listener"))
		if err != nil {
			return fmt.Errorf("take listener: %w", err)
		}
		go forward(listener, to)
	}
	return nil
}

func (n *node) startPlane() error {
	dir := filepath.Join(inside, planeDir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var err error
	n.plane, err = controlplane.New(controlplane.Options{
		Dir: dir, LogDir: filepath.Join(inside, logDir), Assets: n.record.Assets, Listen: "0.0.0.0",
		Hosts: []string{NodeAddress}, Node: NodeName,
		Ports: controlplane.Ports{API: apiPort, Etcd: etcdPort, Peer: peerPort},
	})
	if err != nil {
		return err
	}
	if err := n.plane.WriteAdminKubeconfig(filepath.Join(inside, kubeconfigFile), "https://"+n.record.API); err != nil {
		return err
	}
	n.specs[etcd], n.specs[APIServer] = n.plane.Etcd(), n.plane.APIServer()
	return errors.Join(n.start(etcd), n.start(APIServer))
}

// startRuntime pushes the pause image into the registry, runs containerd and lets it pull the image.
func (n *node) startRuntime(ctx context.Context) error {
	root := filepath.Join(inside, registryDir)
	image := Image{Repository: "dayone/pause", Files: map[string]string{"pause": filepath.Join(inside, pauseFile)},
		Entrypoint: []string{"/pause"}}
	caFile := registry.Options{Root: root}.CAFile()
	digest, err := image.push(ctx, target{address: RegistryName, caFile: caFile,
		authFile: filepath.Join(root, registry.PushAuthFile)})
	if err != nil {
		return err
	}
	pull, err := target{address: RegistryName, authFile: filepath.Join(root, registry.PullAuthFile)}.auth()
	if err != nil {
		return err
	}
	account, err := pull.Authorization()
	if err != nil {
		return err
	}
	ref := RegistryName + "/" + image.Repository + "@" + digest
	if err := writeNodeFiles(n.record.Cgroup, n.plane.CAFile(), ref, basic(account)); err != nil {
		return fmt.Errorf("write settings of the node: %w", err)
	}
	n.specs[containerd] = containerdSpec()
	if err := n.start(containerd); err != nil {
		return err
	}
	if err := n.waitRuntime(ctx); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "ctr", "--address", containerdSocket, "--namespace", "k8s.io",
		"images", "pull", "--hosts-dir", pullCertsDir, ref).CombinedOutput()
	if err != nil {
		return fmt.Errorf("pull pause image: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// waitRuntime waits until containerd answers.
func (n *node) waitRuntime(ctx context.Context) error {
	for {
		if exec.CommandContext(ctx, "ctr", "--address", containerdSocket, "version").Run() == nil {
			return nil
		}
		if err := n.programs.get(containerd).Ended(); err != nil {
			return err
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("wait for containerd: %w: %s", err, process.LastLines(logFile(containerd), 5))
		}
	}
}

func (n *node) kubelet() process.Spec {
	s := again(stageKubelet, filepath.Join(n.record.Assets, "kubelet"),
		"--config="+inside+"/kubelet.yaml", "--kubeconfig="+n.plane.Kubeconfig(controlplane.NodeName),
		"--root-dir="+inside+"/kubelet", "--hostname-override="+NodeName, "--node-ip="+NodeAddress)
	s.Clone, s.Env, s.Log = unix.CLONE_NEWNS, temporary(), logFile(Kubelet)
	return s
}

// temporary keeps temporary files in the cluster's directory.
func temporary() []string { return []string{"TMPDIR=" + inside + "/tmp"} }

func basic(a *authn.AuthConfig) string {
	if a.Auth != "" {
		return a.Auth
	}
	return encodeBasic(a.Username, a.Password)
}
