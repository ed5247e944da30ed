package daemon

import (
	"context"
	"fmt"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

// maxReboots is how often a reboot is asked for: once, and once more when the power was cut before the staged image was
// finalized.
const maxReboots = 2

// rebooting asks for the reboot and sees, in the next boot, where it led.
func rebooting(ctx context.Context, e *edges, in observed) (outcome, error) {
	j := in.journal
	if nodedisk.SameBoot(j.AskedIn, in.boot) {
		// An agent before this one noted that it asks, and may have been killed before it did. Asked for twice it is one
		// reboot.
		return outcome{next: Rebooting, after: waitInterval, reboot: !in.rebootAsked}, nil
	}
	// The node has booted since, by the reboot that was asked for or by a power cut. An agent of a former version noted
	// only what it asked for.
	if !nodedisk.SameBoot(j.ReadyIn, in.boot) && (j.ReadyIn != "" || j.AskedIn != "") {
		return booted(ctx, e, in)
	}
	if !in.drained() {
		return outcome{next: Draining}, nil
	}
	e.events.tell(ctx, in.node, in.of(eventReboot, "the node reboots into %s", j.Target).also(in.boot))
	j.AskedIn = in.boot
	j.Reboots++
	return outcome{next: Rebooting, after: waitInterval, journal: &j, reboot: true, record: func(r *nodestate.Record) {
		r.State, r.Reason, r.PostConfigAction, r.Progress = nodestate.StateRebooting, "", "Rebooting", string(Rebooting)
	}}, nil
}

// booted sees where a boot has led. What was staged is lost when the power was cut before it was finalized: then it is
// staged again.
func booted(ctx context.Context, e *edges, in observed) (outcome, error) {
	in.journal.Forced = false // the reboot that was asked for has been
	j := in.journal
	there, err := arrived(ctx, e.deployer, j)
	switch {
	case err != nil:
		return outcome{}, err
	case there:
		return outcome{next: Verifying, journal: &j}, nil
	case in.record.Desired() != j.Target:
		return outcome{next: Planning, journal: &j}, nil
	case j.Reboots >= maxReboots:
		return outcome{}, e.signs.cause(fmt.Errorf("the node did not come up with %s after %d reboots: it runs on with "+
			"what it had; give another config or image, or see the journal of ostree-finalize-staged", j.Boots, j.Reboots))
	}
	in.journal.AskedIn = ""
	out, err := applying(ctx, e, in)
	out.next = Rebooting
	return out, err
}

// arrived tells whether the booted deployment is the plan's. One of the same image may be the one that the plan leaves:
// it has other kernel arguments.
func arrived(ctx context.Context, d deploy.Deployer, j journal) (bool, error) {
	if j.Boots == "" {
		return true, nil // A reboot for files only: any boot will do.
	}
	image, err := deploy.ParseImage(j.Boots)
	if err != nil {
		return false, fmt.Errorf("read image: %w", err)
	}
	status, err := d.Status(ctx)
	if err != nil {
		return false, fmt.Errorf("read deployments: %w", err)
	}
	return status.Booted != nil && status.Booted.Runs(image) && (j.From == "" || status.Booted.ID != j.From), nil
}
