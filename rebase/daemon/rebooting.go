package daemon

import (
	"context"
	"fmt"
	"time"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodestate"
)

// maxReboots is how often a reboot is asked for: once, and once more when the power was cut before the staged image was
// finalized.
const maxReboots = 2

// rebooting asks for the reboot and, in the next boot, whoever asked for that, sees where it led.
func (a *Agent) rebooting(ctx context.Context, n node) (State, time.Duration, error) {
	boot, err := a.o.BootID()
	if err != nil {
		return Rebooting, 0, err
	}
	if a.journal.AskedIn == boot {
		if a.asked {
			return Rebooting, waitInterval, nil // It is under way.
		}
		// An agent before this one noted that it asks, and may have been killed before it did. Asked for twice it is one
		// reboot.
		return Rebooting, waitInterval, a.askReboot(ctx)
	}
	// The node has booted since, by the reboot that was asked for or by a power cut. An agent's that noted only what it
	// asked for may be here still.
	if a.journal.ReadyIn != boot && (a.journal.ReadyIn != "" || a.journal.AskedIn != "") {
		return a.booted(ctx, n)
	}
	if !a.drained(n) {
		return Draining, 0, nil
	}
	if err := a.tell(ctx, n, func(r *nodestate.Record) {
		r.State, r.Reason, r.PostConfigAction, r.Progress = nodestate.StateRebooting, "", "Rebooting", string(Rebooting)
	}); err != nil {
		return Rebooting, 0, err
	}
	a.journal.AskedIn = boot
	a.journal.Reboots++
	if err := a.journal.save(); err != nil {
		return Rebooting, 0, err
	}
	return Rebooting, waitInterval, a.askReboot(ctx)
}

// booted sees where a boot has led. What was staged is lost when the power was cut before it was finalized.
func (a *Agent) booted(ctx context.Context, n node) (State, time.Duration, error) {
	arrived, err := a.arrived(ctx)
	switch {
	case err != nil:
		return Rebooting, 0, err
	case arrived:
		return Verifying, 0, nil
	case n.target() != a.journal.Target:
		return Planning, 0, nil
	case a.journal.Reboots >= maxReboots:
		return Rebooting, 0,
			fmt.Errorf(
				"the node did not come up with %s after %d reboots: it runs on with what it had; give another config or image, or see the journal of ostree-finalize-staged",
				a.journal.Boots, a.journal.Reboots)
	}
	return a.stageAgain(ctx, n)
}

func (a *Agent) askReboot(ctx context.Context) error {
	err := a.o.Deployer.Reboot(ctx)
	a.asked = err == nil
	return err
}

// stageAgain goes back to before the reboot: what was staged was lost.
func (a *Agent) stageAgain(ctx context.Context, n node) (State, time.Duration, error) {
	a.journal.AskedIn = ""
	if _, _, err := a.applying(ctx, n); err != nil {
		return Rebooting, 0, err
	}
	return Rebooting, 0, a.journal.save()
}

// arrived tells whether the booted deployment is the plan's. One of the same image may be the one that the plan leaves:
// it has other kernel arguments.
func (a *Agent) arrived(ctx context.Context) (bool, error) {
	if a.journal.Boots == "" {
		return true, nil // A reboot for files only: any boot will do.
	}
	image, err := deploy.ParseImage(a.journal.Boots)
	if err != nil {
		return false, fmt.Errorf("read image: %w", err)
	}
	status, err := a.o.Deployer.Status(ctx)
	if err != nil {
		return false, fmt.Errorf("read deployments: %w", err)
	}
	return status.Booted != nil && status.Booted.Runs(image) &&
		(a.journal.From == "" || status.Booted.ID != a.journal.From), nil
}
