package deployers

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/testnode/standin"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
)

// capable is what bootc says of its entries.
func (f *fixture) capable() (staged, rollback bool) {
	f.t.Helper()
	type entry struct {
		SoftRebootCapable bool `json:"softRebootCapable"`
	}
	var s struct {
		Status struct{ Staged, Rollback entry }
	}
	require.NoError(f.t, json.Unmarshal([]byte(f.output("bootc", "status", "--format=json")), &s))
	return s.Status.Staged.SoftRebootCapable, s.Status.Rollback.SoftRebootCapable
}

// The stand-in of bootc prepares soft reboots with the node's own ostree, and refuses as bootc does.
func TestBootcStandInSoftReboots(t *testing.T) {
	need(t)
	t.Parallel()
	f := newFixtureOn(t, baseimage.Forky, deploy.KindBootc, standin.Programs())
	f.disable(firstboot.UnitName)
	f.put(firstboot.AuthPath, 0o600, f.pullAuth())
	with := func(entry deploytest.Entry) string {
		img, err := mutate.AppendLayers(f.base, deploytest.Layer(t, entry))
		require.NoError(t, err)
		return f.push(img)
	}
	plain := with(deploytest.Entry{Name: "usr/share/plain", Body: "plain\n"})
	kernel := with(deploytest.Entry{Name: kernelPath, Body: "another kernel\n"})
	f.start()
	require.NoError(t, f.node.WaitReady(t.Context()))
	prepared := func() bool { return strings.Contains(f.output("ostree", "admin", "status"), "(soft-reboot)") }

	for name, image := range map[string]string{"other kernel arguments": f.image, "another kernel": kernel} {
		r, said := f.run("bootc switch --apply --soft-reboot=required " + image)
		assert.Equal(t, 1, r.ExitCode, name)
		assert.Contains(t, said, "Soft reboot was required but staged deployment is not soft-reboot capable", name)
		assert.Contains(t, f.output("ostree", "admin", "status"), "(staged)\n", "%s: it stays staged", name)
		staged, _ := f.capable()
		assert.False(t, staged, name)
	}
	f.output("bootc", "switch", "--soft-reboot=auto", f.image)
	assert.False(t, prepared(), "a hard reboot instead")

	f.output("bootc", "switch", plain)
	staged, _ := f.capable()
	assert.True(t, staged)
	f.output("ostree", "admin", "lock-finalization")
	assert.Contains(t, f.output("bootc", "status", "--format=json"), `"downloadOnly":true`)
	assert.Contains(t, f.output("bootc", "upgrade", "--from-downloaded"), "will now be applied")
	assert.False(t, prepared())
	assert.Contains(t, f.output("bootc", "upgrade", "--from-downloaded", "--soft-reboot=required"), "already set to apply")
	assert.True(t, prepared())
	require.NoError(t, f.node.SoftReboot(t.Context()))
	assert.Equal(t, plain, f.status().Booted.Image.String())

	r, said := f.run("bootc upgrade --from-downloaded")
	assert.Equal(t, 1, r.ExitCode)
	assert.Contains(t, said, "No staged deployment found")
	f.output("sh", "-c", "echo 1.11.0 >"+standin.BootcVersionPath)
	r, said = f.run("bootc upgrade --from-downloaded")
	assert.Equal(t, 2, r.ExitCode, said)

	_, rollback := f.capable()
	assert.True(t, rollback)
	f.output("bootc", "rollback", "--soft-reboot=required")
	require.NoError(t, f.node.SoftReboot(t.Context()))
	r, _ = f.run("test -e /usr/share/plain")
	assert.Equal(t, 1, r.ExitCode)
	assert.Equal(t, 1, f.boots())
}
