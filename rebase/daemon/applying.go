package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/daemon/hostfiles"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodedisk"
)

// applying stages the image and writes what the running system gets.
func (a *Agent) applying(ctx context.Context, n node) (State, time.Duration, error) {
	current, err := a.current()
	if err != nil {
		return Applying, 0, err
	}
	wanted, err := a.wanted(ctx)
	if err != nil {
		return Applying, 0, err
	}
	begun, err := a.begun(current)
	if err != nil {
		return Applying, 0, err
	}
	if err := a.settleTrust(ctx, n, wanted); err != nil { // before anything is pulled
		return Applying, 0, err
	}
	if err := a.writeFiles(ctx, begun, current, wanted); err != nil {
		return Applying, 0, err
	}
	if err := a.stage(ctx, n, append(begun, current), wanted); err != nil {
		return Applying, 0, err
	}
	if a.journal.Plan.Level == disruption.LevelReboot {
		return Rebooting, 0, a.noteReady(ctx)
	}
	return Acting, 0, nil
}

// noteReady notes from where the reboot is to lead away.
func (a *Agent) noteReady(ctx context.Context) error {
	boot, err := a.o.BootID()
	if err != nil {
		return err
	}
	a.journal.ReadyIn, a.journal.From = boot, ""
	if a.journal.Boots == "" {
		return nil
	}
	status, err := a.o.Deployer.Status(ctx)
	if err != nil {
		return fmt.Errorf("read deployments: %w", err)
	}
	if next := status.Next(); status.Booted != nil && next.ID != status.Booted.ID {
		a.journal.From = status.Booted.ID
	}
	return nil
}

// begun lists what former plans and this one may have brought onto the node beside what it has.
func (a *Agent) begun(current nodedisk.Current) ([]nodedisk.Current, error) {
	pending, err := nodedisk.ReadPending(a.o.Root)
	return slices.DeleteFunc(pending, current.Same), err
}

// writeFiles brings the wanted files onto a node that is not layered, or that does not reboot into the image which has
// them. What former plans brought goes, and so does what the node had.
func (a *Agent) writeFiles(ctx context.Context, begun []nodedisk.Current, current nodedisk.Current,
	wanted *mcfgv1.MachineConfig) error {
	after, err := parse(wanted)
	if err != nil {
		return err
	}
	// What the node had is noted, too: between the new record of that and the end of all this a kill may come.
	if err := nodedisk.AddPending(a.o.Root, current,
		nodedisk.Current{Config: wanted, Image: a.journal.Target.Image}); err != nil {
		return err
	}
	had := append(begun, current)
	if err := a.writeAccounts(had, after); err != nil {
		return err
	}
	layered := a.journal.Target.Image != ""
	if layered && !a.journal.Plan.Live {
		return nil
	}
	start, err := a.start(ctx, begun, current)
	if err != nil {
		return err
	}
	if err := a.files.Change(start, after); err != nil {
		return err
	}
	if err := fromEach(had, func(before ign35.Config) error { return a.enableUnits(ctx, before, after) }); err != nil {
		return err
	}
	if layered || !slices.ContainsFunc(had, func(c nodedisk.Current) bool { return c.Image != "" }) {
		return nil
	}
	// Back to the stock OS: what came with the image must go along as the node's own.
	return a.files.Carry(after)
}

// start is what a change of files begins from. What was begun is on disk in part, unless the node has booted the image
// that has all of it.
func (a *Agent) start(ctx context.Context, begun []nodedisk.Current, current nodedisk.Current) (hostfiles.Start,
	error) {
	var out hostfiles.Start
	status, err := a.o.Deployer.Status(ctx)
	if err != nil {
		return out, fmt.Errorf("read deployments: %w", err)
	}
	for _, have := range append(begun, current) {
		config, err := parse(have.Config)
		if err != nil {
			return out, err
		}
		image, err := deploy.ParseImage(have.Image)
		if have.Same(current) || have.Image != current.Image && err == nil && status.Booted.Runs(image) {
			out.Has = append(out.Has, config)
		} else {
			out.Begun = append(out.Begun, config)
		}
	}
	return out, nil
}

// writeAccounts brings what no image holds: the core user's SSH keys, in a home directory, and its password.
func (a *Agent) writeAccounts(had []nodedisk.Current, after ign35.Config) error {
	return fromEach(had, func(before ign35.Config) error {
		if err := a.files.ApplyKeys(before, after); err != nil {
			return err
		}
		return a.files.ApplyPassword(before, after, a.o.Now())
	})
}

// fromEach takes each config that a node had, or has, as what a change begins from: any of them may be on disk after an
// interruption.
func fromEach(had []nodedisk.Current, change func(before ign35.Config) error) error {
	for _, have := range had {
		before, err := parse(have.Config)
		if err != nil {
			return err
		}
		if err := change(before); err != nil {
			return err
		}
	}
	return nil
}

// enableUnits makes units start at boot, or not, where a config says so otherwise than the one before: presets are for
// first boots. It may be done again.
func (a *Agent) enableUnits(ctx context.Context, before, after ign35.Config) error {
	had := map[string]bool{}
	for _, u := range before.Systemd.Units {
		had[u.Name] = u.Enabled != nil && *u.Enabled
	}
	for _, u := range after.Systemd.Units {
		was := had[u.Name]
		delete(had, u.Name)
		switch {
		case u.Enabled == nil || *u.Enabled == was:
		case *u.Enabled:
			if err := a.o.Services.Systemctl(ctx, "--no-reload", "enable", u.Name); err != nil {
				return err
			}
		default:
			if _, err := a.files.Disable(u.Name); err != nil {
				return err
			}
		}
	}
	for name, enabled := range had {
		if !enabled {
			continue
		}
		if _, err := a.files.Disable(name); err != nil {
			return err
		}
	}
	return nil
}

// stage makes the plan's image the next boot's, or takes back what a former plan staged.
func (a *Agent) stage(ctx context.Context, n node, had []nodedisk.Current, wanted *mcfgv1.MachineConfig) error {
	if a.journal.Boots == "" {
		return a.unstage(ctx)
	}
	image, err := deploy.ParseImage(a.journal.Boots)
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	var former []string // of whatever the node may have booted with
	for _, have := range had {
		former = append(former, without(have.Config.Spec.KernelArguments, former)...)
	}
	var transfer deploy.Transfer
	end := a.report(ctx, n, &transfer)
	err = a.o.Deployer.Stage(ctx, image, deploy.StageOptions{
		AppendKernelArguments: wanted.Spec.KernelArguments,
		DeleteKernelArguments: without(former, wanted.Spec.KernelArguments),
		Transfer:              &transfer})
	end()
	if err == nil && a.o.CheckStaged != nil {
		err = a.o.CheckStaged(ctx)
	}
	return err
}

func (a *Agent) unstage(ctx context.Context) error {
	status, err := a.o.Deployer.Status(ctx)
	if err != nil {
		return fmt.Errorf("read deployments: %w", err)
	}
	u, can := a.o.Deployer.(deploy.Unstager)
	if status.Staged == nil || !can {
		return nil
	}
	return u.Unstage(ctx)
}

// parse reads the Ignition config of a rendered config.
func parse(mc *mcfgv1.MachineConfig) (ign35.Config, error) {
	c, err := machineconfig.ParseRendered(mc.Spec.Config.Raw)
	if err != nil {
		return c, fmt.Errorf("read rendered config %s: %w", mc.Name, err)
	}
	return c, nil
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
