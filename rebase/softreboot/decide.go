package softreboot

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"dayone.dev/dayone/rebase/deploy"
)

const (
	// floorOSTree is the first release that keeps /var, /sysroot and /boot whole over a soft reboot; 2025.3 brought soft
	// reboots.
	floorOSTree = "2026.1"
	// floorSystemd is the first one with soft-reboot.target.
	floorSystemd = "254"
	// floorBootc is the first one that compares SELinux policies.
	floorBootc = "1.12"
	// maxSoftReboots bounds the soft reboots in one hardware boot: /run, kernel settings and memory outlive each of them.
	maxSoftReboots = 3
)

// TargetState says whether systemd's soft-reboot.target can be reached.
type TargetState string

// The states. Distributions that want no soft reboots remove or mask the target.
const (
	TargetPresent TargetState = "present"
	TargetMissing TargetState = "missing"
	TargetMasked  TargetState = "masked"
)

// Facts are all that the decision depends on. The zero value is decided hard.
type Facts struct {
	Policy   Policy
	Deployer deploy.Kind
	// OSTree, Systemd and Bootc are versions, such as 2026.4; empty: it does not answer. Bootc counts where bootc deploys.
	OSTree, Systemd, Bootc string
	// Native: bootc booted the node without ostree.
	Native bool
	// Composefs: the root file system is composefs, without which ostree prepares no soft reboot.
	Composefs bool
	// BootedTarget is the running system's soft-reboot.target, StagedTarget the staged deployment's.
	BootedTarget, StagedTarget TargetState
	// Unlike is why "/" is not taken for the deployment that the deployer calls booted; empty: it is that.
	Unlike string
	// SoftReboots counts those since the hardware booted.
	SoftReboots int
	// Overlay: the boot entry has a second initramfs, which the comparison of deployments does not see.
	Overlay bool
	// Failed is why an earlier soft reboot of this node into the image ended hard; empty: there was none.
	Failed string
	// Staged: a deployment is staged. Locked: no shutdown finalizes it.
	Staged, Locked bool
	// Differences name what differs between the two deployments and takes a start of the kernel, in words.
	Differences []string
}

// Decision is how a node reboots. Why is the reason of a hard reboot as a sentence's second half.
type Decision struct {
	Soft bool
	Why  string
}

// String is the decision as node annotations have it: "soft", or "hard: REASON".
func (d Decision) String() string {
	if d.Soft {
		return "soft"
	}
	return strings.TrimSuffix("hard: "+d.Why, ": ")
}

func hard(format string, args ...any) Decision { return Decision{Why: fmt.Sprintf(format, args...)} }

// Userspace decides by the policy and the running system alone, which takes no look at deployments. Soft then means
// possible.
func (f Facts) Userspace() Decision {
	switch {
	case f.Policy != SoftIfPossible && f.Policy != SoftRequired:
		return hard("the policy is %s", Hard)
	case f.Systemd == "":
		return hard("the node's OS has no systemd")
	case !atLeast(f.Systemd, floorSystemd):
		return hard("systemd %s is older than %s", f.Systemd, floorSystemd)
	case f.BootedTarget != TargetPresent:
		return hard("soft-reboot.target is %s in the running system", f.BootedTarget)
	}
	return Decision{Soft: true}
}

// Capable decides by what is known before anything is staged: policy, programs and the running system. Soft then means
// likely.
func (f Facts) Capable() Decision {
	if d := f.Userspace(); !d.Soft {
		return d
	}
	switch {
	case f.Native:
		return hard("bootc booted this node without ostree")
	case !atLeast(f.OSTree, floorOSTree):
		return hard("ostree %s is older than %s", known(f.OSTree), floorOSTree)
	case f.Deployer == deploy.KindBootc && !atLeast(f.Bootc, floorBootc):
		return hard("bootc %s is older than %s", known(f.Bootc), floorBootc)
	case !f.Composefs:
		return hard("the root file system is not composefs")
	case f.Unlike != "":
		return hard("%s", f.Unlike)
	case f.Overlay:
		return hard("the node boots with a second initramfs")
	case f.SoftReboots >= maxSoftReboots:
		return hard("%d soft reboots since the hardware booted are enough", f.SoftReboots)
	}
	return Decision{Soft: true}
}

// Decide decides by everything. It does not ask ostree, which may still refuse to prepare what is decided soft.
func (f Facts) Decide() Decision {
	if d := f.Capable(); !d.Soft {
		return d
	}
	switch {
	case f.Failed != "":
		return hard("an earlier soft reboot into this image failed: %s", f.Failed)
	case !f.Staged:
		return hard("no other deployment is staged")
	case f.Locked:
		return hard("the staged deployment is locked (downloaded only)")
	case f.StagedTarget != TargetPresent:
		return hard("soft-reboot.target is %s in the staged deployment", f.StagedTarget)
	case len(f.Differences) > 0:
		return hard("the deployments differ in %s", strings.Join(f.Differences, ", "))
	}
	return Decision{Soft: true}
}

func known(version string) string {
	if version == "" {
		return "of an unknown version"
	}
	return version
}

// number finds the numbers of a version.
var number = regexp.MustCompile(`\d+`) //nolint:gochecknoglobals // a constant in all but type

// atLeast compares versions by their first two numbers. What follows them, such as ~rc1 or a distribution's revision,
// does not count; one that cannot be read is too old.
func atLeast(version, floor string) bool {
	have, want := number.FindAllString(version, 2), number.FindAllString(floor, 2)
	for i := range want {
		if i >= len(have) {
			return false
		}
		a, errA := strconv.Atoi(have[i])
		b, errB := strconv.Atoi(want[i])
		if errA != nil || errB != nil || a != b {
			return errA == nil && errB == nil && a > b
		}
	}
	return true
}
