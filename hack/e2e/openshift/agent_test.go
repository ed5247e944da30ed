package openshift_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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
	"dayone.dev/dayone/manifests/machineconfig"
)

// liveAndLate divides what an installer's bootstrap.ign has: the live image of the agent-based installer has the
// machine's programs, and assisted-installer brings the rest when the bootstrap begins.
func liveAndLate(t *testing.T, raw []byte) (live, late []byte) {
	var all ign.Config
	require.NoError(t, json.Unmarshal(raw, &all))
	begin, rest := ign.Config{Ignition: all.Ignition}, ign.Config{Ignition: all.Ignition, Systemd: all.Systemd}
	for _, f := range all.Storage.Files {
		to := &begin
		if strings.HasPrefix(f.Path, "/opt/openshift/") || strings.HasPrefix(f.Path, "/usr/local/bin/") {
			to = &rest
		}
		to.Storage.Files = append(to.Storage.Files, f)
	}
	begin.Systemd.Units = []ign.Unit{{Name: bootstrapnode.AgentUnit, Contents: new("[Service]\nExecStart=/bin/true\n")}}
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

// startBootstrap plays assisted-installer on the rendezvous host: it has the files and units of bootstrap.ign written
// into the running system, and starts the installer's units, each of which must have started before the next.
func (w *world) startBootstrap() {
	t := w.t
	write := func(path string, mode int, content []byte) {
		code, err := w.node.Run(t.Context(), testnode.Command{Argv: []string{"sh", "-c", `mkdir -p "$(dirname "$0")" && ` +
			`cat > "$0" && chmod "$1" "$0"`, path, strconv.FormatInt(int64(mode), 8)}, Stdin: bytes.NewReader(content)})
		require.NoError(t, err)
		require.Zero(t, code, path)
	}
	var c ign.Config
	require.NoError(t, json.Unmarshal(w.late, &c))
	for _, f := range c.Storage.Files {
		content, err := machineconfig.Contents(f.Contents)
		require.NoError(t, err, f.Path)
		write(f.Path, *f.Mode, content)
	}
	for _, u := range c.Systemd.Units {
		write("/etc/systemd/system/"+u.Name, 0o644, []byte(*u.Contents))
	}
	out, err := w.sh("systemctl daemon-reload && systemctl start bootkube.service && " +
		"timeout 60 systemctl start progress.service")
	require.NoError(t, err, out)
}

// TestRendezvousHost takes the bootstrap node of the agent-based installer from the live image, which all hosts boot,
// through the hand-over to the two masters beside it and its reboot into the third master, whose registry has the
// images. openshift-install, assisted-installer, bootkube, coreos-installer and MCO are stand-ins; systemd, Ignition,
// the API server, podman, the registries, builds and ostree are real.
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
	require.NoError(t, w.node.Ignite(t.Context(), w.patched()))
	defer w.operator.Start(t)()
	require.NoError(t, w.node.Start(t.Context()))
	require.NoError(t, w.node.WaitReady(t.Context()))
	for _, unit := range []string{"dayone-gate", "dayone-fetch", "dayone-bootstrap"} {
		require.False(t, w.is("systemctl is-active "+unit), "%s is for the host that bootstraps", unit)
	}

	// This host becomes the bootstrap node, and its disk is written meanwhile.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	early := w.master(ctx)
	w.startBootstrap()
	out, err := w.sh("mkdir -p /opt/install-dir && echo '{}' > /opt/install-dir/master.ign && " +
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin coreos-installer install -i /opt/install-dir/master.ign " +
		"/dev/fixture")
	require.NoError(t, err, out)
	w.eventually("the gate opens", func() bool { return w.status("gate") == journal.StatusDone })
	early.gets(t)
	assert.Positive(t, early.refused())
	w.pulls()

	// Two masters come; this host waits for their registries, and for no third one.
	for i := range masters - 1 {
		require.NoError(t, w.operator.Join(t.Context(), fmt.Sprintf("master-%d", i), "master", w.rendered()))
	}
	program, etc := w.mastersHaveAddresses()
	w.startMaster(0, program, etc)
	_, err = w.sh("touch /opt/openshift/fixture/masters-up")
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

	// The host boots its disk as the third master. Its registry has the images, without a copy from anywhere.
	_, err = w.sh("cat > /opt/openshift/master.ign <<'END'\n" + early.got + "\nEND")
	require.NoError(t, err)
	disk := w.installed()
	require.NoError(t, w.node.PowerCut(t.Context()))
	w.node = disk
	require.NoError(t, w.node.Start(t.Context()))
	w.registryServes(image)
}
