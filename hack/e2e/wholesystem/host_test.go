package wholesystem

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

// host is one machine, its Node object and its agent.
type host struct {
	w     *world
	name  string
	node  *testnode.Node
	first string // the deployment that was installed, as this machine sees it
}

func (w *world) newHost(name string) *host {
	w.t.Helper()
	repository, _, _ := strings.Cut(w.stock, "@")
	// A name of its own, so that no other run's agent on this machine is taken for this one's.
	h := &host{w: w, name: name + "-" + w.lab.ID}
	var err error
	h.node, err = w.lab.NewNode(w.t.Context(), name, testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: w.layout, Reference: repository}})
	require.NoError(w.t, err)
	dirs, err := filepath.Glob(filepath.Join(h.node.Sysroot, "ostree/deploy", testnode.Stateroot, "deploy/*.0"))
	require.NoError(w.t, err)
	require.Len(w.t, dirs, 1)
	h.first = dirs[0]
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name, Labels: map[string]string{role: ""}}}
	w.create(n)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(w.t, w.env.Client.Status().Update(w.t.Context(), n))
	h.access(n)
	h.agent()
	return h
}

// path is a file of the installed deployment or of /var, from outside.
func (h *host) path(name string) string {
	state := filepath.Join(h.node.Sysroot, "ostree/deploy", testnode.Stateroot, "var")
	if rest, ok := strings.CutPrefix(name, "/var/"); ok {
		return filepath.Join(state, rest)
	}
	if rest, ok := strings.CutPrefix(name, "/usr/local/"); ok {
		return filepath.Join(state, "usrlocal", rest)
	}
	return filepath.Join(h.first, name)
}

func (h *host) put(name, text string, mode os.FileMode) {
	h.w.t.Helper()
	at := h.path(name)
	require.NoError(h.w.t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(h.w.t, os.WriteFile(at, []byte(text), mode))
	require.NoError(h.w.t, os.Chmod(at, mode))
}

// access gives the agent a token that is bound to its node, as the token of a pod there is, and the registry's CA and credential.
func (h *host) access(n *corev1.Node) {
	t, w := h.w.t, h.w
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.Daemon}}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: n.Name, UID: n.UID}}}
	require.NoError(t, w.env.Client.SubResource("token").Create(t.Context(), account, token))
	h.put("/etc/dayone/token", token.Status.Token, 0o600)
	h.put("/etc/dayone/kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "https://%s:6443", tls-server-name: "127.0.0.1", certificate-authority-data: %s}}],
users: [{name: u, user: {tokenFile: /etc/dayone/token}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`,
		w.lab.Network.Bootstrap(), base64.StdEncoding.EncodeToString(w.env.Config.CAData)), 0o600)
	h.put("/etc/containers/certs.d/"+w.registry.Addr+"/ca.crt", string(w.registry.Authority.PEM), 0o644)
	auth, err := os.ReadFile(w.registry.AuthFile)
	require.NoError(t, err)
	h.put("/etc/ostree/auth.json", string(auth), 0o600)
}

// agent installs the program and the unit that dayone ships.
func (h *host) agent() {
	program, err := os.ReadFile(agentProgram)
	require.NoError(h.w.t, err)
	h.put(firstboot.DaemonPath, string(program), 0o755)
	unit, err := assets.AgentUnit()
	require.NoError(h.w.t, err)
	h.put("/etc/systemd/system/"+assets.AgentUnitName, unit, 0o644)
	h.put("/etc/systemd/system/"+assets.AgentUnitName+".d/test.conf", "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=100ms\nStandardOutput=journal+console\nStandardError=journal+console\n", 0o644)
	h.put("/etc/dayone/agent.env", "DAYONE_AGENT_OPTIONS=--kubeconfig=/etc/dayone/kubeconfig --node="+h.name+"\n", 0o644)
	h.enable(assets.AgentUnitName)
}

func (h *host) enable(unit string) {
	link := h.path("/etc/systemd/system/multi-user.target.wants/" + unit)
	require.NoError(h.w.t, os.MkdirAll(filepath.Dir(link), 0o755))
	require.NoError(h.w.t, os.Symlink("/etc/systemd/system/"+unit, link))
}

// install leaves on the disk what Ignition and first boot do.
func (h *host) install(c *content, mc *mcfgv1.MachineConfig) {
	for name, text := range c.files {
		h.put(name, text, 0o644)
	}
	for name, text := range c.units {
		h.put("/etc/systemd/system/"+name, text, 0o644)
		h.enable(name)
	}
	require.NoError(h.w.t, nodedisk.WriteCurrent(h.first, nodedisk.Current{Config: mc}))
}

func (h *host) boots() int {
	n, err := h.node.Boots()
	require.NoError(h.w.t, err)
	return n
}

func (h *host) output(argv ...string) string {
	h.w.t.Helper()
	out, err := h.node.Output(h.w.t.Context(), argv...)
	require.NoError(h.w.t, err)
	return out
}

func (h *host) object() *corev1.Node {
	n := &corev1.Node{}
	if h.w.env.Client.Get(h.w.t.Context(), client.ObjectKey{Name: h.name}, n) != nil {
		return nil
	}
	return n
}

// record is the node's, or an empty one while the API is away.
func (h *host) record() nodestate.Record {
	n := h.object()
	if n == nil {
		return nodestate.Record{}
	}
	r, err := nodestate.Parse(n.Annotations)
	require.NoError(h.w.t, err)
	return r
}

// state is what the agent's journal says, from outside.
func (h *host) state() daemon.State {
	raw, err := os.ReadFile(h.path(daemon.JournalPath))
	if err != nil {
		return daemon.Idle
	}
	var j struct{ State daemon.State }
	if json.Unmarshal(raw, &j) != nil {
		return ""
	}
	return j.State
}

// agentPID is the agent's process on this machine; 0: it does not run.
func (h *host) agentPID() int {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(h.w.t, err)
	for _, at := range all {
		raw, err := os.ReadFile(at)
		if err == nil && strings.Contains(string(raw), "start\x00") && strings.Contains(string(raw), "--node="+h.name+"\x00") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(at)))
			require.NoError(h.w.t, err)
			return pid
		}
	}
	return 0
}

func (h *host) explain() {
	text, _ := h.node.Log()
	h.w.t.Logf("%s: journal %s, record %+v, console:\n%s", h.name, h.state(), h.record(), text[max(0, len(text)-6000):])
}
