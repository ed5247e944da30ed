package openshift_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/hack/testnode"
)

// assistedEnv names a directory with what the image of assisted-installer has: the program as installer, and deploy/.
const assistedEnv = "DAYONE_TEST_ASSISTED_INSTALLER"

// assisted is what the hosts of the agent-based installer install themselves with.
type assisted struct {
	// image has assisted-installer, or its stand-in; daemon has the stand-in for MCO's daemon.
	image, daemon string
	real          bool
	service       *inventory
}

// useAssisted brings assisted-installer into the release's registry.
func (w *world) useAssisted() {
	t := w.t
	tiny, err := baseimage.Ensure(t.Context(), baseimage.Tiny, "")
	require.NoError(t, err)
	dir := os.Getenv(assistedEnv)
	programs := map[string]string{}
	if w.assisted.real = dir != ""; w.assisted.real {
		programs["/usr/bin/installer"] = filepath.Join(dir, "installer")
		const deploy = "deploy"
		entries, err := os.ReadDir(filepath.Join(dir, deploy))
		require.NoError(t, err)
		for _, e := range entries {
			programs["/assisted-installer-controller/deploy/"+e.Name()] = filepath.Join(dir, deploy, e.Name())
		}
	} else {
		t.Logf("%s names no directory with assisted-installer: a stand-in installs the hosts", assistedEnv)
		programs["/usr/bin/installer"], err = filepath.Abs("testdata/assisted/installer")
		require.NoError(t, err)
	}
	nsenter := w.find("nsenter")
	programs["/usr/bin/nsenter"] = nsenter
	for _, l := range w.librariesOf(nsenter) {
		programs["/usr"+strings.TrimPrefix(l, "/usr")] = l
	}
	w.assisted.image = w.pushed(w.image(tiny, programs), "ocp/agent-installer-orchestrator")
	daemon := filepath.Join(t.TempDir(), "machine-config-daemon")
	require.NoError(t, program.Build(t.Context(), "", program.Options{
		Package: "dayone.dev/dayone/hack/e2e/mcostandin/machine-config-daemon"}, daemon))
	w.assisted.daemon = w.pushed(w.image(tiny, map[string]string{"/usr/bin/machine-config-daemon": daemon}), "ocp/mcd")
	w.assisted.service = &inventory{bootstrap: w.late,
		config: fmt.Sprintf("http://%s:22624/config/master", w.node.Addr)}
	w.assisted.service.serve(w)
}

// liveHost gives the node what a live image has of which assisted-installer makes use.
func (w *world) liveHost() {
	w.scripts("testdata/agent")
	w.put("/usr/bin/rpm-ostree", 0o755, []byte("#!/bin/sh\n# Stand-in: MCO's daemon gets it mounted.\nexit 1\n"))
	w.put("/etc/pki/none", 0o644, nil)
	w.put("/etc/resolv.conf", 0o644, []byte("# no name server\n"))
	w.fetchedProgram("ssh-keygen", "/usr/bin/ssh-keygen")
}

// installs lets a host install itself, as its agent has it: assisted-installer runs in a container.
func (w *world) installs(n *testnode.Node, host int, role string) {
	t := w.t
	out, err := n.Output(t.Context(), "systemd-run", "--quiet", "--unit=assisted", "--setenv=HOME=/root",
		"--setenv=PULL_SECRET_TOKEN="+agentToken,
		"podman", "run", "--privileged", "--pid=host", "--net=host", "--name=assisted-installer",
		"-v", "/dev:/dev:rw", "-v", "/opt:/opt:rw", "-v", "/var/log:/var/log:rw",
		"-v", "/run/systemd/journal/socket:/run/systemd/journal/socket", "-v", "/etc/pki:/etc/pki",
		"--env=PULL_SECRET_TOKEN", "--entrypoint", "/usr/bin/installer", w.assisted.image,
		"--role", role, "--infra-env-id", infraEnvID, "--cluster-id", clusterID, "--host-id", hostID(host),
		"--boot-device", "/dev/fixture", "--url", fmt.Sprintf("http://%s:%d", w.host, inventoryPort),
		"--control-plane-count", strconv.Itoa(masters), "--controller-image", w.mco, "--agent-image", w.mco,
		"--mco-image", w.assisted.daemon, "--openshift-version", "4.22.0",
		"--installer-args", `["--append-karg","ip=eth0:dhcp"]`, "--enable-skip-mco-reboot=true")
	require.NoError(t, err, out)
	t.Cleanup(func() {
		if t.Failed() {
			text, err := n.Output(context.Background(), "journalctl", "--no-pager", "-b", "-u", "assisted")
			t.Logf("assisted-installer on %s: %v\n%s", n.Name, err, text)
		}
	})
}

// create posts an object that may be there already.
func (w *world) create(o client.Object) {
	require.NoError(w.t, client.IgnoreAlreadyExists(shared.Env(w.t).Client.Create(w.t.Context(), o)))
}

// agentCluster posts what the installer's manifests say of the installation.
func (w *world) agentCluster() {
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controllerNamespace}})
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-config-v1"},
		Data: map[string]string{"install-config": fmt.Sprintf("controlPlane: {replicas: %d}\n", masters)}})
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config",
		Name: "openshift-install-manifests"}, Data: map[string]string{"invoker": "agent-installer"}})
}

// controllerNamespace is where assisted-installer's controller runs.
const controllerNamespace = "assisted-installer"

// controllerIsReady plays that controller as far as assisted-installer waits for it.
func (w *world) controllerIsReady() {
	w.create(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: controllerNamespace,
		Name: "AssistedControllerIsReady"}, InvolvedObject: corev1.ObjectReference{Namespace: controllerNamespace}})
}

// postsAdded posts, as cluster-bootstrap does, the MachineConfig that assisted-installer adds to the installer's.
func (w *world) postsAdded() {
	const path = "/opt/openshift/openshift/99_openshift-machineconfig_99-assisted-installer-master-ssh.yaml"
	w.eventually("assisted-installer has added a MachineConfig", func() bool { return w.is("test -s " + path) })
	var c mcfgv1.MachineConfig
	require.NoError(w.t, yaml.Unmarshal([]byte(w.output("cat "+path)), &c))
	w.create(&c)
}
