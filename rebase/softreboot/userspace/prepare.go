package userspace

import (
	"context"
	"errors"
	"fmt"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/softreboot"
)

// Prepare prepares a soft reboot into image, which is staged. Its error is why the reboot must be hard, and nothing is
// prepared then. Changes are described with Facts.
func (n Node) Prepare(ctx context.Context, d deploy.Deployer, image deploy.Image, policy softreboot.Policy,
	changes []string) (Switch, error) {
	soft, able := d.(deploy.SoftRebooter)
	if !able {
		return Switch{}, errors.New("the node's deployer knows no soft reboot")
	}
	if d := n.system(ctx, policy).Userspace(); !d.Soft { // most nodes of today: their deployments need no look
		return Switch{}, errors.New(d.Why)
	}
	before, err := n.decide(ctx, d, image, policy, changes)
	if err != nil {
		return Switch{}, err
	}
	if err := soft.PrepareSoft(ctx); err != nil {
		return Switch{}, err //nolint:wrapcheck // a Fault says what was done
	}
	// Somebody may have staged something else meanwhile, or changed what the decision was about.
	after, err := n.decide(ctx, d, image, policy, changes)
	if err == nil && after.Staged.ID != before.Staged.ID {
		err = fmt.Errorf("%s is staged instead of %s now", after.Staged.ID, before.Staged.ID)
	}
	var s Switch
	if err == nil {
		s, err = n.begin(before.Booted)
	}
	if err != nil {
		return Switch{}, errors.Join(err, soft.CancelSoft(ctx))
	}
	return s, nil
}

// decide reads what the node has, and gives it if a soft reboot is right.
func (n Node) decide(ctx context.Context, d deploy.Deployer, image deploy.Image, policy softreboot.Policy,
	changes []string) (deploy.Status, error) {
	status, err := d.Status(ctx)
	if err != nil {
		return status, fmt.Errorf("read deployments: %w", err)
	}
	if !status.Staged.Runs(image) {
		return status, fmt.Errorf("%s is not what is staged", image)
	}
	facts, err := n.Facts(ctx, policy, status, changes)
	if err != nil {
		return status, err
	}
	if d := facts.Decide(); !d.Soft {
		return status, errors.New(d.Why)
	}
	return status, nil
}
