package deploy

import (
	"context"
	"slices"
	"strconv"
)

// Unstage undeploys the staged deployment.
func (d *OSTree) Unstage(ctx context.Context) error {
	entries, err := d.entries(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(entries, func(e statusEntry) bool { return e.staged })
	if i < 0 {
		return nil
	}
	_, err = d.admin(ctx, "undeploy", strconv.Itoa(i))
	return err
}

// Unstage removes the staged deployment. rpm-ostree knows no difference to a pending one; where something is staged
// nothing is pending.
func (d *RPMOSTree) Unstage(ctx context.Context) error {
	s, err := d.Status(ctx)
	if err != nil || s.Staged == nil {
		return err
	}
	_, err = d.run(ctx, "rpm-ostree", "cleanup", "-p")
	return err
}

// Unstage undeploys the staged deployment with the ostree program: bootc has no command for it but a rollback, which
// turns the boot order around. ostree's sysroot is what bootc works on, too.
func (d *Bootc) Unstage(ctx context.Context) error {
	s, err := d.Status(ctx)
	if err != nil || s.Staged == nil {
		return err
	}
	_, err = d.run(ctx, "ostree", "admin", "undeploy", "0") // what is staged is always the first
	return err
}
