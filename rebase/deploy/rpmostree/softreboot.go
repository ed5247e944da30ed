package rpmostree

import (
	"context"

	"dayone.dev/dayone/rebase/deploy/ostree"
	"dayone.dev/dayone/rebase/deploy/program"
)

// PrepareSoft lets ostree prepare what rpm-ostree has staged: rpm-ostree has no command for it (its issue 4525), and
// works on ostree's sysroot.
func (d *Deployer) PrepareSoft(ctx context.Context) error {
	return ostree.New(ostree.Options{Root: d.root}).PrepareSoft(ctx)
}

// SoftReboot asks for the soft reboot.
func (d *Deployer) SoftReboot(ctx context.Context) error { return program.SoftReboot(ctx) }

// CancelSoft withdraws what is prepared.
func (d *Deployer) CancelSoft(ctx context.Context) error { return program.CancelSoft(ctx) }
