package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/softreboot"
	"dayone.dev/dayone/rebase/softreboot/userspace"
	"dayone.dev/dayone/rebase/target"
)

const (
	// softLimit is how long a soft reboot may take from when the agent is ready for it: longer than services that stop
	// slowly (90 s each, systemd's default). Then the hardware reboots.
	softLimit = 10 * time.Minute
	// softHealthLimit is how long the new userspace of a soft reboot may fail to verify, as long as firstboot waits for
	// health. Then the hardware reboots into the same image.
	softHealthLimit = 10 * time.Minute
)

// eventSoftFailed tells that a soft reboot ended hard.
const eventSoftFailed = "SoftRebootFailed"

// rebootPolicy is what the node was promised with its target. A whole update that an administrator asked for reboots
// hard.
func rebootPolicy(in observed, to target.Target, force bool) softreboot.Policy {
	promise, err := disruption.PromiseOf(in.object.Annotations, to.Config, to.Image)
	if err != nil || promise == nil || force {
		return softreboot.Hard
	}
	policy, err := softreboot.ParsePolicy(string(promise.Reboot))
	if err != nil {
		return softreboot.Hard // a newer controller's
	}
	return policy
}

// foreseeReboot is what can be said of the reboot before the node is drained and anything is staged; empty: the plan
// has no reboot, or the policy is Hard.
func foreseeReboot(ctx context.Context, e *edges, j journal) string {
	if j.Plan.Level != disruption.LevelReboot || j.Policy == softreboot.Hard {
		return ""
	}
	status, err := e.deployer.Status(ctx)
	if err != nil {
		return "" // the plan has read it a moment ago
	}
	status.Staged = nil // whatever it is, it is not the plan's
	changes := j.Plan.KernelChanges()
	facts, err := e.userspace.Facts(ctx, j.Policy, status, changes)
	decision := facts.Capable()
	switch {
	case err != nil:
		decision = softreboot.Decision{Why: err.Error()}
	case decision.Soft && j.Boots == "":
		decision = softreboot.Decision{Why: "no other image is staged"}
	case decision.Soft && len(changes) > 0:
		facts.Staged, facts.StagedTarget = true, softreboot.TargetPresent
		decision = facts.Decide()
	}
	return decision.String()
}

// prepareReboot decides how the node reboots and prepares a soft reboot. Whatever is in the way of one is a reason for
// a hard one, and nothing prepared is left then.
func prepareReboot(ctx context.Context, e *edges, in observed) journal {
	j := in.journal
	j.Soft = nil
	if j.Policy == "" || j.Policy == softreboot.Hard || j.Fell {
		return j
	}
	image, err := deploy.ParseImage(j.Boots)
	if err != nil {
		j.Hard = "no other image is staged"
		return j
	}
	s, err := e.userspace.Prepare(ctx, e.deployer, image, j.Policy, j.Plan.KernelChanges())
	if err != nil {
		j.Hard = err.Error()
		return j
	}
	j.Soft, j.Hard = &s, ""
	return j
}

// askReboot asks for the reboot that the journal says. A soft one that is refused is a hard one.
func askReboot(ctx context.Context, e *edges, j journal) error {
	soft, able := e.deployer.(deploy.SoftRebooter)
	if able && j.Soft != nil {
		err := soft.SoftReboot(ctx)
		e.metrics.asked(err)
		if err == nil {
			return nil
		}
		e.log.WithError(err).Warn("soft reboot refused: the hardware reboots")
	}
	err := e.deployer.Reboot(ctx)
	e.metrics.asked(err)
	return err //nolint:wrapcheck // the deployer's, says what was asked for
}

// askAgain is for a reboot that has been asked for and has not come yet.
func askAgain(in observed, e *edges) outcome {
	if in.journal.Soft == nil || !in.waits(e, softLimit) {
		// An agent before this one noted that it asks, and may have been killed before it did. Asked for twice it is one
		// reboot.
		return outcome{next: Rebooting, after: waitInterval, reboot: !in.rebootAsked}
	}
	j := in.journal
	j.Soft, j.Fell, j.Hard = nil, true, fmt.Sprintf("the soft reboot did not come within %s", softLimit)
	return outcome{next: Rebooting, after: waitInterval, journal: &j, reboot: true}
}

// checkUserspace sees that a soft reboot has left nothing of the userspace before.
func checkUserspace(ctx context.Context, e *edges, j journal) error {
	status, err := e.deployer.Status(ctx)
	if err != nil {
		return fmt.Errorf("read deployments: %w", err)
	}
	s := userspace.Switch{Left: j.From} // somebody else has asked for it
	if j.Soft != nil {
		s = *j.Soft
	}
	return e.userspace.Check(s, status.Booted)
}

// fallBack reboots the hardware into the image that a soft reboot has led to, once, and keeps the node from another
// soft reboot into it.
func fallBack(ctx context.Context, e *edges, in observed, cause error) (outcome, error) {
	j := in.journal
	j.Soft, j.Fell, j.Hard, j.AskedIn, j.ReadyIn = nil, true, "after a soft reboot: "+cause.Error(), "", in.boot
	if image, err := deploy.ParseImage(j.Boots); err == nil {
		if err := e.userspace.NoteFailure(image, cause.Error()); err != nil {
			return outcome{}, err
		}
	}
	e.events.tell(ctx, in.node, in.of(eventSoftFailed,
		"the hardware reboots once, because a soft reboot into %s failed: %v", j.Target, cause).warns())
	return outcome{next: Rebooting, journal: &j}, nil
}

// hardInstead notes that the hardware has rebooted although a soft reboot was asked for: by a power cut, or because
// nothing in the new userspace disarmed its watch.
func hardInstead(e *edges, j journal) (journal, error) {
	j.Soft, j.Hard = nil, "the hardware rebooted before or during the soft reboot"
	why, returned, err := e.userspace.Watched()
	if err != nil || why == "" {
		return j, err
	}
	j.Fell, j.Hard = true, "after a soft reboot: "+why
	if returned {
		j.Left = why
	}
	image, err := deploy.ParseImage(j.Boots)
	if err != nil {
		return j, fmt.Errorf("read image: %w", err)
	}
	return j, e.userspace.NoteFailure(image, why)
}

// goBack returns to the deployment before by a reboot of the hardware, once: the image is not healthy on fresh hardware
// either.
func goBack(ctx context.Context, e *edges, in observed, cause error) (outcome, error) {
	back, able := e.deployer.(deploy.Rollbacker)
	if !able {
		return outcome{}, cause
	}
	if err := back.Rollback(ctx); err != nil {
		return outcome{}, errors.Join(cause, err)
	}
	j := in.journal
	j.Left, j.AskedIn, j.ReadyIn = cause.Error(), in.boot, in.boot
	e.events.tell(ctx, in.node, in.of(eventSoftFailed,
		"the node returns to the image before %s: %v", j.Target, cause).warns())
	return outcome{next: Rebooting, after: waitInterval, journal: &j, reboot: true}, nil
}

// stayBack keeps a node that went back where it is, until it gets another target or an administrator asks for this one
// once more.
func stayBack(e *edges, j journal) (outcome, error) {
	asked, err := forceAsked(e.root)
	if err != nil {
		return outcome{}, err
	}
	if asked {
		return outcome{next: Planning, journal: &j}, nil
	}
	return outcome{}, fmt.Errorf("the node went back from %s to the image before: %s; give another config or image, or "+
		"create %s on the node, which boots the hardware into it once more", j.Target, j.Left, ForcePath)
}

// kubeletRuns asks systemd, where the node has a kubelet.
func kubeletRuns(ctx context.Context, e *edges) error {
	const unit = "kubelet.service"
	for _, dir := range []string{"etc/systemd/system", "usr/lib/systemd/system"} {
		_, err := os.Stat(filepath.Join(e.root, dir, unit))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look for %s: %w", unit, err)
		}
		return e.services.Systemctl(ctx, "is-active", "--quiet", unit) //nolint:wrapcheck // systemctl's, says what it ran
	}
	return nil
}
