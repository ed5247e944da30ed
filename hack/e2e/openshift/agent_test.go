package openshift_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ign "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets/bootstrapnode"
)

// liveAndLate divides what an installer's bootstrap.ign has: the live image of the agent-based installer has the
// machine's programs, and assisted-installer brings the rest when the bootstrap begins.
func liveAndLate(t *testing.T, raw []byte) (live, late []byte) {
	var all ign.Config
	require.NoError(t, json.Unmarshal(raw, &all))
	begin, rest := ign.Config{Ignition: all.Ignition}, ign.Config{Ignition: all.Ignition, Systemd: all.Systemd}
	for _, f := range all.Storage.Files {
		_, err := os.Stat(filepath.Join("testdata/node", filepath.Base(f.Path)))
		ofInstaller := err == nil && strings.HasPrefix(f.Path, "/usr/local/bin/")
		if ofInstaller || strings.HasPrefix(f.Path, "/opt/openshift/") {
			rest.Storage.Files = append(rest.Storage.Files, f)
			continue
		}
		if begin.Storage.Files = append(begin.Storage.Files, f); f.Path == dockerConfig {
			rest.Storage.Files = append(rest.Storage.Files, f) // it is in both
		}
	}
	for _, name := range []string{bootstrapnode.AgentUnit, "NetworkManager.service"} {
		begin.Systemd.Units = append(begin.Systemd.Units, ign.Unit{Name: name,
			Contents: new("[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n")})
	}
	live, err := json.Marshal(begin)
	require.NoError(t, err)
	late, err = json.Marshal(rest)
	require.NoError(t, err)
	return live, late
}

// output is what a command on the node prints.
func (w *world) output(command string) string {
	out, err := w.sh(command)
	require.NoError(w.t, err, out)
	return strings.TrimSpace(out)
}

// ofDayone are the units that only the rendezvous host starts.
var ofDayone = []string{"dayone-gate", "dayone-fetch", "dayone-bootstrap"}

// beside boots another host of the cluster from the same live image.
func (w *world) beside(live []byte) *testnode.Node {
	t := w.t
	debian, err := baseimage.Ensure(t.Context(), baseimage.Debian, "")
	require.NoError(t, err)
	n, err := w.lab.NewNode(t.Context(), "host0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: debian}})
	require.NoError(t, err)
	require.NoError(t, n.Ignite(t.Context(), live))
	require.NoError(t, n.Start(t.Context()))
	require.NoError(t, n.WaitReady(t.Context()))
	return n
}

// reboots says that assisted-installer asks a host for its reboot, in a minute.
func (w *world) reboots(n *testnode.Node) {
	w.t.Helper()
	w.eventually("assisted-installer reboots "+n.Name, func() bool {
		when, err := n.Output(w.t.Context(), "cat", "/run/shutdown-asked")
		return err == nil && when == "+1"
	})
}

// TestRendezvousHost takes the bootstrap node of the agent-based installer from the live image, which all hosts boot,
// through the hand-over to the two masters beside it and its reboot into the third master, whose registry has the
// images. Another host boots the same image and becomes a master. openshift-install, assisted-service, bootkube,
// coreos-installer and MCO are stand-ins, and assisted-installer is one unless DAYONE_TEST_ASSISTED_INSTALLER names the
// real one; systemd, Ignition, the API server, podman, the registries, builds and ostree are real.
func TestRendezvousHost(t *testing.T) {
	w := newWorldOn(t, baseimage.Debian)
	w.own, w.agent = true, true
	w.edit = func(dir string) {
		story(t, dir)
		w.keepsItself(dir)
		for file, text := range map[string]string{installconfig.AgentConfig: "rendezvousIP: " + w.host + "\n",
			"openshift/50-hosts.yaml": hosts} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
	}
	live := w.patched()
	w.useAssisted()
	w.agentCluster()
	require.NoError(t, w.node.Ignite(t.Context(), live))
	defer w.operator.Start(t)()
	require.NoError(t, w.node.Start(t.Context()))
	require.NoError(t, w.node.WaitReady(t.Context()))
	for _, unit := range ofDayone {
		require.False(t, w.is("systemctl is-active "+unit), "%s is for the host that bootstraps", unit)
	}

	// This host becomes the bootstrap node. What MCO has rendered for the gate's own host goes onto its disk meanwhile,
	// and assisted-installer leaves that frozen. The other host's disk is written, too, and there the gate stops it.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	early := w.master(ctx)
	w.output("mkdir -p /opt/openshift/fixture && touch /opt/openshift/fixture/hold-render")
	w.installs(w.node, rendezvousHost, "bootstrap")
	w.postsAdded()
	other := w.beside(live)
	w.installs(other, firstHost, "master")
	w.eventually("the disk's OS is changed", func() bool { return w.is("test -e /opt/openshift/fixture/disk.frozen") })
	assert.Equal(t, w.base, w.output("cat /run/os-on-disk"), "that of MCO's first rendering")
	w.output("rm /opt/openshift/fixture/hold-render")
	w.eventually("the gate opens", func() bool { return w.status("gate") == journal.StatusDone })
	early.gets(t)
	assert.Positive(t, early.refused())
	w.pulls()
	w.installedBeside(other)

	// Two masters come; this host waits for their registries, and for no third one.
	for i := range masters - 1 {
		require.NoError(t, w.operator.Join(t.Context(), fmt.Sprintf("master-%d", i), "master", w.rendered()))
	}
	program, etc := w.mastersHaveAddresses()
	w.startMaster(0, program, etc)
	_, err := w.sh("touch /opt/openshift/fixture/masters-up")
	require.NoError(t, err)
	w.eventually("bootkube is done", func() bool { return w.is("test -e /opt/openshift/.bootkube.done") })
	w.eventually("the hand-over waits for the second master's registry", func() bool {
		return w.is("journalctl -b -u dayone-bootstrap --no-pager | grep -q '1 of the registries of 2 control-plane nodes " +
			"answer, and 2 must'")
	})
	assert.Equal(t, "active", w.output("systemctl is-active progress.service"), "assisted-installer waits for its end")
	assert.False(t, w.is("test -e /opt/openshift/bootstrap-complete"))
	w.startMaster(1, program, etc)
	w.eventually("the bootstrap is complete", func() bool { return w.is("test -e /opt/openshift/bootstrap-complete") })
	image := w.seeded()
	w.mastersHold(image, etc)
	status := w.output("dayone status --state-dir /var/lib/dayone")
	assert.Contains(t, status, "the cluster has all, and this host may go")
	w.controllerIsReady()
	w.reboots(w.node)
	if w.assisted.real {
		assert.Equal(t, []string{"Starting installation", "Installing", "Writing image to disk", "Waiting for control plane",
			"Waiting for bootkube", "Waiting for controller", "Rebooting"}, w.assisted.service.stagesOf(rendezvousHost))
	}

	// The host boots its disk as the third master. Its registry has the images, without a copy from anywhere.
	_, err = w.sh("cat > /opt/openshift/master.ign <<'END'\n" + early.got + "\nEND")
	require.NoError(t, err)
	disk := w.installed()
	require.NoError(t, w.node.PowerCut(t.Context()))
	w.node = disk
	require.NoError(t, w.node.Start(t.Context()))
	w.registryServes(image)
}

// installedBeside says that a host which does not bootstrap has its disk, and nothing of dayone's has run there. It
// could not have the masters' image from a registry that is not there yet, and reboots without.
func (w *world) installedBeside(n *testnode.Node) {
	t := w.t
	w.reboots(n)
	for _, unit := range ofDayone {
		state, _ := n.Output(t.Context(), "systemctl", "is-active", unit)
		assert.Equal(t, "inactive", state, unit)
	}
	state, err := n.Output(t.Context(), "sh", "-c", "test -d /opt/openshift/fixture/disk && ! test -e /run/os-on-disk && "+
		"! test -e /var/lib/dayone && ! nft list table inet dayone_gate && cat /run/dayone-installed-disk")
	require.NoError(t, err)
	assert.Equal(t, "/dev/fixture", state)
	if w.assisted.real {
		assert.Equal(t, []string{"Starting installation", "Installing", "Writing image to disk", "Rebooting"},
			w.assisted.service.stagesOf(firstHost))
	}
}
