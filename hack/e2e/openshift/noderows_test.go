package openshift_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/nodes"
)

// row is what dayone status on the bootstrap node says of a master, by its name or address.
func (w *world) row(who string) (row nodes.View) {
	raw, err := w.sh("dayone status --state-dir /var/lib/dayone -o json")
	var status struct{ Nodes []nodes.View }
	if err != nil || json.Unmarshal([]byte(raw), &status) != nil {
		return nodes.View{}
	}
	for _, v := range status.Nodes {
		if v.Who() == who {
			row = v
		}
	}
	return row
}

// mastersAreShown lets the masters join, one of them in trouble on its way, and follows that one in the status: nothing
// runs on it that reports. Its address is that of the host beside the node.
func (w *world) mastersAreShown() {
	t := w.t
	w.eventually("the request for a config is shown", func() bool { return w.row(w.host).Stage == nodes.StageFetching })
	v := w.row(w.host)
	assert.Contains(t, v.Text, "asked MCO's config server for its config")
	assert.Equal(t, "master", v.Pool)

	image := w.pulls()
	w.eventually("the pull is shown", func() bool { return w.row(w.host).Bytes > 0 })
	v = w.row(w.host)
	assert.Equal(t, []any{nodes.StagePulling, image}, []any{v.Stage, v.Image})

	for i := range masters {
		require.NoError(t, w.operator.Join(t.Context(), fmt.Sprintf("master-%d", i), "master", w.rendered()))
	}
	w.operator.GiveUp(t, "master-0", "unexpected on-disk state: content mismatch for file /etc/motd")
	w.operator.Address(t, "master-0", w.host)
	w.eventually("the reason is shown", func() bool { return w.row("master-0").Address == w.host })
	v = w.row("master-0")
	assert.Equal(t, nodes.StageFailed, v.Stage)
	assert.Contains(t, v.Text, "says MCO's daemon on it: unexpected on-disk state: content mismatch for file /etc/motd")
	assert.Contains(t, v.Hint, "oc describe node master-0")

	w.operator.Recover(t, "master-0")
	w.eventually("it goes on", func() bool {
		stage := w.row("master-0").Stage
		return stage == nodes.StageVerifying || stage == nodes.StageBooted // once the cluster knows the image
	})
}

// pulls gets the masters' image from the embedded registry, with the account that nodes have, and gives its digest.
func (w *world) pulls() (digest string) {
	t, dir := w.t, w.t.TempDir()
	for _, name := range []string{"ca.crt", "pull-auth.json"} {
		text, err := w.sh("cat /var/lib/dayone/identity/" + name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	_, digest, _ = strings.Cut(w.masterImage(), "@")
	_, repository, _ := strings.Cut(w.finalRepository("master"), "/")
	w.pulled = filepath.Join(dir, "image")
	out, err := w.lab.Network.Command(t.Context(), w.bin, "registry", "copy",
		fmt.Sprintf("docker://%s:9500/%s@%s", w.node.Addr, repository, digest), "oci:"+w.pulled,
		"--src-ca", filepath.Join(dir, "ca.crt"), "--src-authfile", filepath.Join(dir, "pull-auth.json")).CombinedOutput()
	require.NoError(t, err, string(out))
	return digest
}
