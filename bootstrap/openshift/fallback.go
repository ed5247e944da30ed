package openshift

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/journal"
)

// fallBack reverts what was put among MCO's manifests and opens the gate: the nodes boot the OS image of the first
// rendering. Pools that are built in the cluster are still layered, there.
func fallBack(ctx context.Context, f flow, j *journal.Journal, cause error) error {
	f.Log.WithError(cause).Error("no layered image: the nodes boot the release's OS image, as onFailure: fallback asks")
	f.records.note("fallback", cause.Error())
	if err := revert(ctx, f, j); err != nil {
		return errors.Join(cause, err)
	}
	err := errors.Join(openGate(ctx, f), giveOthers(ctx, f))
	if err == nil {
		err = day1.End(f.StateDir, f.host.Registry, "fallback: "+cause.Error())
	}
	if err != nil {
		return errors.Join(cause, err)
	}
	return nil
}

// giveOthers gives the cluster the MachineOSConfigs of the pools that it builds itself, and what builds need.
func giveOthers(ctx context.Context, f flow) error {
	set := others(f.host.In)
	if len(set.MachineOSConfigs) == 0 {
		return nil
	}
	return f.until(ctx, "fallback", f.Limits.API+f.Limits.Hard,
		func() error { return f.Cluster.Give(ctx, set, nil) })
}

// revert takes the renderings from the journal: this process may have failed before the phase that an earlier one has
// finished.
func revert(ctx context.Context, f flow, j *journal.Journal) error {
	var first firstRendering
	var second day1.Rendered
	found, err := j.Recorded(phaseRenderFirst, &first)
	if err != nil {
		return err
	}
	if _, err := j.Recorded(phaseRenderSecond, &second); err != nil {
		return err
	}
	if !found || first.Pools == nil {
		if first, err = waitFirst(ctx, f); err != nil {
			return err
		}
	}
	if err := revertInputs(ctx, f, first, second); err != nil {
		return err
	}
	return withdraw(ctx, f)
}

// revertInputs removes everything from MCO's manifests again and publishes the first rendering.
func revertInputs(ctx context.Context, f flow, first firstRendering, second day1.Rendered) error {
	if err := removeInputs(f.Options, f.pools(), moscFile, trustFile, imageFile); err != nil {
		return err
	}
	raw, err := os.ReadFile(f.Path(originalPullSecret))
	if err == nil {
		err = renameio.WriteFile(filepath.Join(f.at(mccDir), mccPullSecret), raw, 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restore MCO's pull secret: %w", err)
	}
	if second.Configs == nil {
		return nil // nothing was published
	}
	if err := renderOnce(ctx, f, first.MCO); err != nil {
		return err
	}
	configs := map[string]string{}
	for pool, p := range first.Pools {
		configs[pool] = p.Config
	}
	return publish(f.at(stagingDir), f.at(mcsDir), configs)
}

// withdraw deletes what the cluster got, so that its renderer makes the name of the first rendering, too. An API server
// that was never reached has got nothing.
func withdraw(ctx context.Context, f flow) error {
	if _, err := os.Stat(f.Path(appliedFile)); err != nil {
		return nil
	}
	set := withdrawn(f.pools())
	return f.until(ctx, "fallback", f.Limits.API+f.Limits.Hard,
		func() error { return f.Cluster.Withdraw(ctx, set, f.host.Registry) })
}
