package daemon

import (
	"cmp"
	"context"
	"fmt"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/softreboot"
)

// maxReboots is how often a reboot is asked for: once, and once more when the power was cut before the staged image was
// finalized.
const maxReboots = 2

// rebooting asks for the reboot and sees, in the next boot, where it led.
func rebooting(ctx context.Context, e *edges, in observed) (outcome, error) {
	j := in.journal
	if nodedisk.SameBoot(j.AskedIn, in.boot) {
		return askAgain(in, e), nil
	}
	// The node has booted since, by the reboot that was asked for or by a power cut. An agent of a former version noted
	// only what it asked for.
	if !nodedisk.SameBoot(j.ReadyIn, in.boot) && (j.ReadyIn != "" || j.AskedIn != "") {
		return booted(ctx, e, in)
	}
	if !in.drained() {
		return outcome{next: Draining}, nil
	}
	j = prepareReboot(ctx, e, in)
	how := softreboot.Decision{Soft: j.Soft != nil, Why: j.Hard}.String()
	e.events.tell(ctx, in.node, in.of(eventReboot, "the node reboots into %s (%s)", j.Target, how).also(in.boot))
	j.AskedIn = in.boot
	j.Reboots++
	return outcome{next: Rebooting, after: waitInterval, journal: &j, reboot: true, record: func(r *nodestate.Record) {
		r.State, r.Reason, r.PostConfigAction, r.Progress = nodestate.StateRebooting, "", "Rebooting", string(Rebooting)
		if j.Policy != "" && j.Policy != softreboot.Hard {
			r.SetSoftReboot(how)
		}
	}}, nil
}

// booted sees where a boot has led. What was staged is lost when the power was cut before it was finalized: then it is
// staged again.
func booted(ctx context.Context, e *edges, in observed) (outcome, error) {
	in.journal.Forced = false // the reboot that was asked for has been
	there, err := arrived(ctx, e.deployer, in.journal)
	if err != nil {
		return outcome{}, err
	}
	var left error // what a soft reboot has left; it is looked for wherever the reboot has led
	soft := nodedisk.SoftRebooted(cmp.Or(in.journal.AskedIn, in.journal.ReadyIn), in.boot)
	switch {
	case soft:
		left = checkUserspace(ctx, e, in.journal)
	case in.journal.Soft != nil:
		if in.journal, err = hardInstead(e, in.journal); err != nil {
			return outcome{}, err
		}
	}
	j := in.journal
	switch {
	case there && left != nil:
		return fallBack(ctx, e, in, left)
	case there:
		return outcome{next: Verifying, journal: &j, record: cameBy(softreboot.Decision{Soft: soft, Why: j.Hard})}, nil
	case in.record.Desired() != j.Target:
		return outcome{next: Planning, journal: &j}, nil
	case j.Left != "" && j.AskedIn != "":
		j.AskedIn = "" // it is noted before it is a failure
		return outcome{next: Rebooting, journal: &j,
			record: cameBy(softreboot.Decision{Why: "back in the image before: " + j.Left})}, nil
	case j.Left != "":
		return stayBack(e, j)
	case j.Reboots >= maxReboots:
		return outcome{}, e.signs.cause(fmt.Errorf("the node did not come up with %s after %d reboots: it runs on with "+
			"what it had; give another config or image, or see the journal of ostree-finalize-staged", j.Boots, j.Reboots))
	}
	if soft {
		in.journal.Soft, in.journal.Fell, in.journal.Hard = nil, true, "a soft reboot did not lead to the image"
	}
	in.journal.AskedIn = ""
	out, err := applying(ctx, e, in)
	out.next = Rebooting
	return out, err
}

// cameBy says how the node came into what it runs.
func cameBy(d softreboot.Decision) func(*nodestate.Record) {
	return func(r *nodestate.Record) { r.SetLastBoot(d.String()) }
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
