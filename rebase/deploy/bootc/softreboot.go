package bootc

import (
	"context"
	"errors"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/program"
)

// PrepareSoft asks bootc whether the staged deployment can be taken by a soft reboot, which compares kernels, kernel
// arguments and SELinux policies, and lets it prepare that. Without ostree bootc has no public command to withdraw what
// it has prepared: such a host is refused.
func (d *Deployer) PrepareSoft(ctx context.Context) error {
	if err := program.CancelSoft(ctx); err != nil { // a second mount would cover the first
		return err
	}
	s, err := d.entries(ctx)
	if err != nil {
		return err
	}
	refused := func(why string) error {
		return &deploy.Fault{Class: deploy.ClassInternal, Op: "prepare the soft reboot", Err: errors.New(why),
			Next: "look at bootc status --verbose on the node"}
	}
	switch staged := s.Status.Staged; {
	case staged == nil || staged.DownloadOnly:
		return refused("no deployment is staged")
	case staged.Composefs != nil:
		return refused("bootc booted this node without ostree")
	case !staged.SoftRebootCapable:
		return refused("bootc says that the staged deployment cannot be taken by a soft reboot")
	}
	// It changes nothing of what is staged. Source: bootc, crates/lib/src/cli.rs, upgrade.
	if _, err = d.run(ctx, "bootc", "upgrade", "--from-downloaded", "--soft-reboot=required"); err != nil {
		return errors.Join(err, program.CancelSoft(ctx))
	}
	mounted, err := program.NextRootMounted(d.root)
	if err == nil && !mounted {
		err = refused("bootc reported success, and nothing is mounted at /run/nextroot")
	}
	return err
}

// SoftReboot asks for the soft reboot.
func (d *Deployer) SoftReboot(ctx context.Context) error { return program.SoftReboot(ctx) }

// CancelSoft withdraws what is prepared; bootc has no command for it, and what it prepares is ostree's.
func (d *Deployer) CancelSoft(ctx context.Context) error { return program.CancelSoft(ctx) }
