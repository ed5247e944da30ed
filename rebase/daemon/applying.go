package daemon

import (
	"context"
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodedisk"
)

// applying stages the image and writes what the running system gets.
func applying(ctx context.Context, e *edges, in observed) (outcome, error) {
	wanted, err := targetConfig(ctx, e.configs, in)
	if err != nil {
		return outcome{}, err
	}
	files, err := e.trust.settle(ctx, in.away, wanted) // before anything is pulled
	if err != nil {
		return outcome{}, err
	}
	if err := writeFiles(ctx, e, files, in, wanted); err != nil {
		return outcome{}, err
	}
	if in.journal.Forced {
		if err := restoreAll(ctx, files, in, wanted); err != nil {
			return outcome{}, err
		}
	}
	if err := stage(ctx, e, in, wanted); err != nil {
		return outcome{}, err
	}
	if in.journal.Plan.Level != disruption.LevelReboot {
		return outcome{next: Acting}, nil
	}
	j, err := readyToReboot(ctx, e.deployer, in)
	return outcome{next: Rebooting, journal: &j}, err
}

// readyToReboot notes which boot and deployment the reboot leaves.
func readyToReboot(ctx context.Context, d deploy.Deployer, in observed) (journal, error) {
	j := in.journal
	j.ReadyIn, j.From = in.boot, ""
	if j.Boots == "" {
		return j, nil
	}
	status, err := d.Status(ctx)
	if err != nil {
		return j, fmt.Errorf("read deployments: %w", err)
	}
	if next := status.Next(); status.Booted != nil && next.ID != status.Booted.ID {
		j.From = status.Booted.ID
	}
	return j, nil
}

// readBegun lists what former plans and this one may have brought onto the node beside what it has.
func readBegun(root string, current nodedisk.Current) ([]nodedisk.Current, error) {
	pending, err := nodedisk.ReadPending(root)
	return slices.DeleteFunc(pending, current.Same), err
}

// had lists all of which something may be on the node.
func (in observed) had() []nodedisk.Current { return append(slices.Clone(in.begun), in.current) }

// writeFiles brings the target's files onto a node that is not layered, or that does not reboot into the image which
// has them. What former plans brought goes, and so does what the node had.
func writeFiles(ctx context.Context, e *edges, files nodeFiles, in observed, wanted *mcfgv1.MachineConfig) error {
	j := in.journal
	after, err := parse(wanted)
	if err != nil {
		return err
	}
	had, err := parseAll(in.had())
	if err != nil {
		return err
	}
	// What the node had is noted, too: a kill may come between the new record of that and the end of all this.
	if err := nodedisk.AddPending(e.root, in.current,
		nodedisk.Current{Config: wanted, Image: j.Target.Image}); err != nil {
		return err
	}
	if err := files.writeAccounts(ctx, had, after); err != nil {
		return err
	}
	layered := j.Target.Image != ""
	if layered && !j.Plan.Live {
		return nil
	}
	from, err := startOf(ctx, e.deployer, in)
	if err != nil {
		return err
	}
	if err := files.host.Change(from, after); err != nil {
		return err
	}
	if err := files.enableUnits(ctx, had, after); err != nil {
		return err
	}
	if layered || !slices.ContainsFunc(in.had(), func(c nodedisk.Current) bool { return c.Image != "" }) {
		return nil
	}
	// Back to the base OS: what came with the image must go along as the node's own.
	return files.host.Carry(after)
}

// stage makes the plan's image the next boot's, or takes back what a former plan staged.
func stage(ctx context.Context, e *edges, in observed, wanted *mcfgv1.MachineConfig) error {
	if in.journal.Boots == "" {
		e.metrics.pivoted(nil)
		return unstage(ctx, e.deployer)
	}
	if err := e.allowed(ctx, in.journal.Boots); err != nil { // the policy may have changed since the plan
		return err
	}
	image, err := deploy.ParseImage(in.journal.Boots)
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	var former []string // of all that the node may have booted with
	for _, have := range in.had() {
		former = append(former, without(have.Config.Spec.KernelArguments, former)...)
	}
	applied := e.tellStage(ctx, in, image)
	var transfer deploy.Transfer
	end := reportProgress(ctx, e, in.node, &transfer)
	err = e.deployer.Stage(ctx, image, deploy.StageOptions{
		AppendKernelArguments: wanted.Spec.KernelArguments,
		DeleteKernelArguments: without(former, wanted.Spec.KernelArguments),
		Transfer:              &transfer})
	end()
	if err == nil && e.checkStaged != nil {
		err = e.checkStaged(ctx)
	}
	e.metrics.pivoted(err)
	if err == nil {
		e.events.tell(ctx, in.node, applied, in.of(eventOSUpdateStaged, "%s is staged for the next boot", image))
	}
	return err
}

// allowed refuses an image that the node's signature policy does not allow; empty: the plan has none. What is booted
// stays: only its kernel arguments can change.
func (e *edges) allowed(ctx context.Context, boots string) error {
	if boots == "" {
		return nil
	}
	image, err := deploy.ParseImage(boots)
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	status, err := e.deployer.Status(ctx)
	if err != nil {
		return fmt.Errorf("read deployments: %w", err)
	}
	if status.Booted.Runs(image) {
		return nil
	}
	return e.verify(ctx, image)
}

// refusedBySignature tells a refusal from a registry that could not be asked.
func refusedBySignature(err error) bool {
	class := deploy.ClassOf(err)
	return err != nil && (class == deploy.ClassUnsigned || class == deploy.ClassConfig)
}

// tellStage tells that an image is about to be staged, and gives what there is to tell when it is.
func (e *edges) tellStage(ctx context.Context, in observed, image deploy.Image) (applied occasion) {
	status, err := e.deployer.Status(ctx)
	if err == nil && status.Booted != nil && status.Booted.Runs(image) {
		e.events.tell(ctx, in.node, in.of(eventOSUpdateStarted, "kernel arguments of %s change", in.journal.Target.Config))
		return in.of(eventOSUpgradeSkipped, "the image stays %s: only kernel arguments change", image)
	}
	e.events.tell(ctx, in.node, in.of(eventUpgrade, "the OS image changes to %s", image),
		in.of(eventOSUpdateStarted, "the image %s is being staged", image))
	return in.of(eventOSUpgradeApplied, "the OS image is now %s, from the next boot on", image)
}

func unstage(ctx context.Context, d deploy.Deployer) error {
	status, err := d.Status(ctx)
	if err != nil {
		return fmt.Errorf("read deployments: %w", err)
	}
	u, can := d.(deploy.Unstager)
	if status.Staged == nil || !can {
		return nil
	}
	return u.Unstage(ctx)
}

// without gives what of a is not in b.
func without(a, b []string) (out []string) {
	for _, s := range a {
		if !slices.Contains(b, s) {
			out = append(out, s)
		}
	}
	return out
}
