package firstboot

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

func TestLaterImageChangesWhatIgnitionWroteAndKeepsLocalEdits(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.waitDone()
	require.NoError(t, f.node.WaitBoot(t.Context(), 2))
	f.output("sh", "-c", "echo edited > /etc/from-image")

	next := f.push(f.layered(f.hash(), deploytest.Entry{Name: "etc/both", Body: "second\n"}, deploytest.Entry{Name: "etc/from-image", Body: "second\n"},
		deploytest.Entry{Name: "etc/new", Body: "new\n"}))
	f.output(DaemonPath, "stage", "--karg-append=second=1", "--karg-delete=dayone.test=1", next)
	f.output(DaemonPath, "stage", next) // again: nothing changes
	require.NoError(t, f.node.Reboot(t.Context()))

	var status deploy.Status
	require.NoError(t, json.Unmarshal([]byte(f.output(DaemonPath, "status")), &status))
	assert.Equal(t, next, status.Booted.Image.String())
	assert.Equal(t, f.image, status.Rollback.Image.String())
	assert.Contains(t, status.Booted.KernelArguments, "second=1")
	assert.NotContains(t, status.Booted.KernelArguments, "dayone.test=1")
	assert.Equal(t, "second", f.output("cat", "/etc/both"), "unmodified, so it follows the image")
	assert.Equal(t, "new", f.output("cat", "/etc/new"))
	assert.Equal(t, "edited", f.output("cat", "/etc/from-image"), "a local edit is kept")
	var drift []deploy.EtcChange
	require.NoError(t, json.Unmarshal([]byte(f.output(DaemonPath, "drift")), &drift))
	assert.Contains(t, drift, deploy.EtcChange{Path: "/etc/from-image", Kind: deploy.EtcModified})
	assert.NotContains(t, drift, deploy.EtcChange{Path: "/etc/both", Kind: deploy.EtcModified})

	f.output(DaemonPath, "rollback")
	require.NoError(t, f.node.Reboot(t.Context()))
	require.NoError(t, json.Unmarshal([]byte(f.output(DaemonPath, "status")), &status))
	assert.Equal(t, f.image, status.Booted.Image.String())
	assert.Equal(t, "both", f.output("cat", "/etc/both"), "the earlier deployment's /etc")
}

func TestReadOnlySysrootIsNoObstacle(t *testing.T) {
	f := newFixture(t)
	out, err := exec.CommandContext(t.Context(), "ostree", "config", "--repo="+f.node.Sysroot+"/ostree/repo", "set", "sysroot.readonly", "true").CombinedOutput()
	require.NoError(t, err, "%s", out)
	f.start()
	r := f.waitDone()
	require.NoError(t, f.node.WaitBoot(t.Context(), 2))
	assert.Equal(t, f.image, r.Booted)
	assert.Contains(t, f.output("grep", " /sysroot ", "/proc/self/mounts"), " ro,")
}
