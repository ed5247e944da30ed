package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/target"
)

const (
	// RoleLabel before a pool's name is the label by which pools select nodes.
	RoleLabel = "node-role.kubernetes.io/"
	// noKubelet taints the hosts' nodes: what a scheduler puts there would never run.
	noKubelet = "dayone.dev/no-kubelet"

	unitDir    = "/etc/systemd/system/"
	kubeconfig = "/etc/dayone/kubeconfig"
	tokenFile  = "/etc/dayone/token"
	// tokenSeconds outlive every run.
	tokenSeconds = 24 * 60 * 60
)

// Host is one machine, its Node object and its agent.
type Host struct {
	// Name is the Node object's.
	Name, Pool string
	Node       *testnode.Node
	fleet      *Fleet
	boots      int // before it joined
}

// Join makes a machine a node of a pool: its object, a token bound to it, the agent and its unit. A machine that is off
// starts with them; on one that runs the agent is started. The node has a name of its own, so that no other run's on
// this machine is taken for it.
func (f *Fleet) Join(ctx context.Context, machine *testnode.Node, pool string) (*Host, error) {
	h := &Host{fleet: f, Name: machine.Name + "-" + f.Lab.ID, Pool: pool, Node: machine}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.Name, Labels: map[string]string{RoleLabel + pool: ""}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: noKubelet, Effect: corev1.TaintEffectNoSchedule}}}}
	if err := f.Client.Create(ctx, n); err != nil {
		return nil, fmt.Errorf("make node %s: %w", h.Name, err)
	}
	var err error
	if h.boots, err = machine.Boots(); err != nil {
		return nil, err
	}
	if err := errors.Join(h.speak(ctx), h.access(ctx, n), h.agent(ctx)); err != nil {
		return nil, fmt.Errorf("join %s: %w", h.Name, err)
	}
	f.mu.Lock()
	f.Hosts = append(f.Hosts, h)
	f.mu.Unlock()
	return h, nil
}

// root is the deployment that runs, or the only one of a machine that is off, as this machine sees it.
func (h *Host) root() (string, error) {
	dirs, err := filepath.Glob(filepath.Join(h.Node.Sysroot, "ostree/deploy", testnode.Stateroot, "deploy/*.[0-9]"))
	if err != nil || len(dirs) != 1 {
		return "", fmt.Errorf("find the deployment of %s: %d of them (%w)", h.Name, len(dirs), err)
	}
	return dirs[0], nil
}

// Outside is where this machine finds a file of a machine that has one deployment only; those of /var always.
func (h *Host) Outside(name string) (string, error) {
	state := filepath.Join(h.Node.Sysroot, "ostree/deploy", testnode.Stateroot, "var")
	if rest, ok := strings.CutPrefix(name, "/var/"); ok {
		return filepath.Join(state, rest), nil
	}
	if rest, ok := strings.CutPrefix(name, "/usr/local/"); ok {
		return filepath.Join(state, "usrlocal", rest), nil
	}
	root, err := h.root()
	return filepath.Join(root, name), err
}

// Put writes a file of the machine: in it while it runs, else on its disk.
func (h *Host) Put(ctx context.Context, f File) error {
	if on, err := h.Node.Running(); err != nil || on {
		return errors.Join(err, h.putInside(ctx, f))
	}
	at, err := h.Outside(f.Path)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(f.Text), f.Mode),
		os.Chmod(at, f.Mode))
}

func (h *Host) putInside(ctx context.Context, f File) error {
	script := `umask 077; mkdir -p -m 0755 "${1%/*}" && cat >"$1" && chmod "$2" "$1"`
	code, err := h.Node.Run(ctx, testnode.Command{Argv: []string{"sh", "-c", script, "sh", f.Path,
		fmt.Sprintf("%o", f.Mode)}, Stdin: strings.NewReader(f.Text)})
	if err == nil && code != 0 {
		err = fmt.Errorf("write %s on %s: exit status %d", f.Path, h.Name, code)
	}
	return err
}

// Enable makes a unit of the machine start at its boots; on one that runs, also now.
func (h *Host) Enable(ctx context.Context, unit string) error {
	if on, err := h.Node.Running(); err != nil || on {
		if err == nil {
			_, err = h.Node.Output(ctx, "systemctl", "enable", "--now", unit)
		}
		return err
	}
	link, err := h.Outside(unitDir + "multi-user.target.wants/" + unit)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(unitDir+unit, link))
}

// access gives the agent a token that is bound to its node, as the token of a pod there is, and the fleet's files.
func (h *Host) access(ctx context.Context, n *corev1.Node) error {
	f := h.fleet
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
		Name: cluster.Daemon}}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(
		int64(tokenSeconds)),
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: n.Name, UID: n.UID}}}
	if err := f.Client.SubResource("token").Create(ctx, account, token); err != nil {
		return fmt.Errorf("make a token: %w", err)
	}
	for _, file := range append([]File{{tokenFile, token.Status.Token, 0o600},
		{kubeconfig, f.Kubeconfig("{tokenFile: " + tokenFile + "}"), 0o600}}, f.Files...) {
		if err := h.Put(ctx, file); err != nil {
			return err
		}
	}
	return nil
}

// agent installs the program and the unit that dayone ships; a drop-in starts it again sooner than a fleet of thousands
// should.
func (h *Host) agent(ctx context.Context) error {
	program, err := h.Outside(firstboot.DaemonPath)
	if err != nil {
		return err
	}
	if _, err = os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		var raw []byte
		if raw, err = os.ReadFile(h.fleet.Agent); err == nil {
			err = h.Put(ctx, File{firstboot.DaemonPath, string(raw), 0o755})
		}
	}
	if err != nil {
		return err
	}
	unit, err := assets.AgentUnit()
	if err != nil {
		return err
	}
	for _, f := range []File{
		{unitDir + assets.AgentUnitName, unit, 0o644},
		{unitDir + assets.AgentUnitName + ".d/fleet.conf",
			"[Unit]\nStartLimitIntervalSec=0\n" +
				"[Service]\nRestartSec=100ms\nStandardOutput=journal+console\nStandardError=journal+console\n", 0o644},
		{"/etc/dayone/agent.env", "DAYONE_AGENT_OPTIONS=\"--kubeconfig=" + kubeconfig + " --node=" + h.Name + "\"\n", 0o644},
	} {
		if err := h.Put(ctx, f); err != nil {
			return err
		}
	}
	return h.Enable(ctx, assets.AgentUnitName)
}

// Boots counts the machine's since it joined.
func (h *Host) Boots() (int, error) {
	n, err := h.Node.Boots()
	return n - h.boots, err
}

// Object is the node's; nil while the API does not give it.
func (h *Host) Object(ctx context.Context) *corev1.Node {
	n := &corev1.Node{}
	if h.fleet.Client.Get(ctx, client.ObjectKey{Name: h.Name}, n) != nil {
		return nil
	}
	return n
}

// Record is the node's, or an empty one while the API is away.
func (h *Host) Record(ctx context.Context) nodestate.Record {
	n := h.Object(ctx)
	if n == nil {
		return nodestate.Record{}
	}
	r, err := nodestate.Parse(n.Annotations)
	if err != nil {
		return nodestate.Record{Reason: err.Error()}
	}
	return r
}

// Has tells whether the node has a target, says so without a complaint, and takes pods.
func (h *Host) Has(ctx context.Context, t target.Target) bool {
	n := h.Object(ctx)
	if n == nil || n.Spec.Unschedulable {
		return false
	}
	r, err := nodestate.Parse(n.Annotations)
	return err == nil && r.Converged() && r.CurrentConfig == t.Config && r.CurrentImage == t.Image && r.Reason == ""
}

// State is what the agent's journal says, from outside; empty while it is being written.
func (h *Host) State() daemon.State {
	at, err := h.Outside(daemon.JournalPath)
	if err != nil {
		return ""
	}
	raw, err := os.ReadFile(at)
	if err != nil {
		return daemon.Idle
	}
	var j struct{ State daemon.State }
	if json.Unmarshal(raw, &j) != nil {
		return ""
	}
	return j.State
}

// AgentPIDs are the agent's processes as this machine sees them: none while it does not run.
func (h *Host) AgentPIDs() ([]int, error) { return h.Node.ServicePIDs(assets.AgentUnitName) }
