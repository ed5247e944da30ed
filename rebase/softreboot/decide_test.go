package softreboot_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/softreboot"
)

// capable are the facts of a node that can.
func capable() softreboot.Facts {
	return softreboot.Facts{Policy: softreboot.SoftIfPossible, Deployer: deploy.KindOSTree, OSTree: "2026.1",
		Systemd: "254", Composefs: true, BootedTarget: softreboot.TargetPresent, StagedTarget: softreboot.TargetPresent,
		Staged: true}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*softreboot.Facts)
		want   string
	}{
		{"all holds", func(*softreboot.Facts) {}, "soft"},
		{"required", func(f *softreboot.Facts) { f.Policy = softreboot.SoftRequired }, "soft"},
		{"newer programs", func(f *softreboot.Facts) { f.OSTree, f.Systemd = "2027.0", "262~rc1-1" }, "soft"},
		{"bootc", func(f *softreboot.Facts) { f.Deployer, f.Bootc = deploy.KindBootc, "1.12.0" }, "soft"},
		{"third in one boot", func(f *softreboot.Facts) { f.SoftReboots = 2 }, "soft"},
		{"policy", func(f *softreboot.Facts) { f.Policy = softreboot.Hard }, "hard: the policy is Hard"},
		{"unknown policy", func(f *softreboot.Facts) { f.Policy = "Soft" }, "hard: the policy is Hard"},
		{"no policy", func(f *softreboot.Facts) { *f = softreboot.Facts{} }, "hard: the policy is Hard"},
		{"old systemd", func(f *softreboot.Facts) { f.Systemd = "252" }, "hard: systemd 252 is older than 254"},
		{"no systemd", func(f *softreboot.Facts) { f.Systemd = "" }, "hard: the node's OS has no systemd"},
		{"RHEL 9", func(f *softreboot.Facts) { f.BootedTarget = softreboot.TargetMissing },
			"hard: soft-reboot.target is missing in the running system"},
		{"masked", func(f *softreboot.Facts) { f.BootedTarget = softreboot.TargetMasked },
			"hard: soft-reboot.target is masked in the running system"},
		{"masked in the image", func(f *softreboot.Facts) { f.StagedTarget = softreboot.TargetMasked },
			"hard: soft-reboot.target is masked in the staged deployment"},
		{"ostree that breaks /var", func(f *softreboot.Facts) { f.OSTree = "2025.3" },
			"hard: ostree 2025.3 is older than 2026.1"},
		{"old bootc", func(f *softreboot.Facts) { f.Deployer, f.Bootc = deploy.KindBootc, "1.9.1" },
			"hard: bootc 1.9.1 is older than 1.12"},
		{"bootc without ostree", func(f *softreboot.Facts) { f.Native = true },
			"hard: bootc booted this node without ostree"},
		{"no composefs", func(f *softreboot.Facts) { f.Composefs = false },
			"hard: the root file system is not composefs"},
		{"another root", func(f *softreboot.Facts) { f.Unlike = "/ is another" }, "hard: / is another"},
		{"overlay initrd", func(f *softreboot.Facts) { f.Overlay = true }, "hard: the node boots with a second initramfs"},
		{"fourth in one boot", func(f *softreboot.Facts) { f.SoftReboots = 3 },
			"hard: 3 soft reboots since the hardware booted are enough"},
		{"failed before", func(f *softreboot.Facts) { f.Failed = "a process runs on" },
			"hard: an earlier soft reboot into this image failed: a process runs on"},
		{"nothing staged", func(f *softreboot.Facts) { f.Staged = false }, "hard: no other deployment is staged"},
		{"locked", func(f *softreboot.Facts) { f.Locked = true },
			"hard: the staged deployment is locked (downloaded only)"},
		{"another kernel",
			func(f *softreboot.Facts) { f.Differences = []string{"the kernel or its initramfs", "udev rules"} },
			"hard: the deployments differ in the kernel or its initramfs, udev rules"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := capable()
			c.change(&f)
			assert.Equal(t, c.want, f.Decide().String())
		})
	}
}

func TestCapableBeforeStaging(t *testing.T) {
	f := capable()
	f.Staged, f.StagedTarget = false, ""
	assert.True(t, f.Capable().Soft)
	f.Composefs = false
	assert.False(t, f.Capable().Soft)
}

func TestPolicyOf(t *testing.T) {
	for _, c := range []struct {
		name, text, err string
		want            softreboot.Policy
	}{
		{name: "none", want: softreboot.Unset},
		{name: "empty", text: " ", want: softreboot.Hard},
		{name: "the action's word", text: "Reboot", want: softreboot.Hard},
		{name: "the soft action's word", text: "SoftReboot", want: softreboot.SoftIfPossible},
		{name: "hard", text: "Hard", want: softreboot.Hard},
		{name: "soft", text: " SoftIfPossible ", want: softreboot.SoftIfPossible},
		{name: "required", text: "SoftRequired", want: softreboot.SoftRequired},
		{name: "wrong", text: "soft", want: softreboot.Hard,
			err: `read annotation dayone.dev/reboot-policy: "soft" is no reboot policy`},
	} {
		t.Run(c.name, func(t *testing.T) {
			annotations := map[string]string{}
			if c.text != "" {
				annotations[manifests.AnnotationRebootPolicy] = c.text
			}
			got, err := softreboot.PolicyOf(annotations)
			assert.Equal(t, c.want, got)
			if c.err != "" {
				assert.ErrorContains(t, err, c.err)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}
