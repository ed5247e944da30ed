package ostree

import (
	"context"
	"errors"
	"fmt"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/program"
)

// PrepareSoft lets ostree mount the staged deployment at /run/nextroot, and reads that it is this one that the next soft
// reboot takes. ostree refuses one with another kernel, initramfs or kernel arguments.
func (d *Deployer) PrepareSoft(ctx context.Context) error {
	err := d.prepareSoft(ctx)
	if err != nil {
		return errors.Join(err, program.CancelSoft(ctx))
	}
	return nil
}

func (d *Deployer) prepareSoft(ctx context.Context) error {
	if err := program.CancelSoft(ctx); err != nil { // a second mount would cover the first
		return err
	}
	before, err := d.entries(ctx)
	if err != nil {
		return err
	}
	if len(before) == 0 || !before[0].staged {
		return notPrepared("no deployment is staged")
	}
	if _, err := d.admin(ctx, "prepare-soft-reboot", "0"); err != nil { // the staged one is the first
		return err
	}
	after, err := d.entries(ctx)
	if err != nil {
		return err
	}
	if len(after) == 0 || !after[0].next || after[0].id() != before[0].id() {
		return notPrepared("ostree reported success, and its status names no such target")
	}
	mounted, err := program.NextRootMounted("/")
	if err == nil && !mounted {
		err = notPrepared("ostree reported success, and nothing is mounted at /run/nextroot")
	}
	return err
}

func notPrepared(why string) error {
	return &deploy.Fault{Class: deploy.ClassInternal, Op: "prepare the soft reboot", Err: fmt.Errorf("%s", why),
		Next: "look at ostree admin status on the node"}
}

// SoftReboot asks for the soft reboot.
func (d *Deployer) SoftReboot(ctx context.Context) error { return program.SoftReboot(ctx) }

// CancelSoft withdraws what is prepared.
func (d *Deployer) CancelSoft(ctx context.Context) error { return program.CancelSoft(ctx) }
