package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/target"
)

// ForcePath is the file with which an administrator asks for a whole update of a node whatever is on its disk: the
// agent does not look for drift, puts every file back, and reboots. Source: MCO, pkg/daemon/constants/constants.go.
const ForcePath = "/run/machine-config-daemon-force"

// maxForced bounds what the node's annotation says of a forced update, in bytes.
const maxForced = 1 << 10

// forceAsked tells whether the file is there.
func forceAsked(root string) (bool, error) {
	_, err := os.Stat(filepath.Join(root, ForcePath))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", ForcePath, err)
	}
	return true, nil
}

// forceTaken removes the file: what it asks for is in the journal.
func forceTaken(root string) error {
	if err := os.Remove(filepath.Join(root, ForcePath)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", ForcePath, err)
	}
	return nil
}

// forced makes a plan one of a whole update, and says on the node, before anything is done, that this is more than it
// was promised.
func forced(ctx context.Context, e *edges, in observed, to target.Target, plan disruption.Plan) (disruption.Plan,
	error) {
	words := "nothing was promised"
	promise, err := disruption.PromiseOf(in.object.Annotations, to.Config, to.Image)
	if err != nil {
		words = err.Error()
	} else if promise != nil {
		words = "it was promised " + promise.Level.String()
	}
	settings, err := readPolicies(ctx, e)
	if err != nil {
		return plan, err
	}
	how, steps := "drains and reboots", []disruption.Action{{Type: disruption.Drain}, {Type: disruption.Reboot}}
	if settings.Undrained {
		how, steps = "reboots", steps[1:]
	}
	plan = disruption.Join(plan, disruption.Plan{Level: disruption.LevelReboot, Steps: steps})
	text := fmt.Sprintf("%s asks for all of %s: the node %s; %s", ForcePath, to, how, words)
	text = text[:min(len(text), maxForced)]
	if in.object.Annotations[manifests.AnnotationForced] == text {
		return plan, nil
	}
	e.events.tell(ctx, in.node, occasion{reason: "ForcedUpdate", message: text})
	return plan, e.record.annotate(ctx, map[string]*string{manifests.AnnotationForced: &text})
}

// lackedArguments is the booted image where it runs without kernel arguments of a config, so that it is deployed anew;
// else it is empty.
func lackedArguments(ctx context.Context, d deploy.Deployer, wanted *mcfgv1.MachineConfig) (string, error) {
	status, err := d.Status(ctx)
	if err != nil {
		return "", fmt.Errorf("read deployments: %w", err)
	}
	if status.Booted == nil || status.Booted.Image.IsZero() ||
		len(deploy.LacksKernelArguments(status.Booted.KernelArguments, wanted.Spec.KernelArguments)) == 0 {
		return "", nil
	}
	return status.Booted.Image.String(), nil
}

// restoreAll puts back what the running system has unlike its config: the target's, or where the next boot's image
// brings that, the node's own, so that the image's files take its place.
func restoreAll(ctx context.Context, files nodeFiles, in observed, wanted *mcfgv1.MachineConfig) error {
	if in.journal.Target.Image != "" && in.journal.Boots != "" {
		wanted = in.current.Config
	}
	config, err := parse(wanted)
	if err != nil {
		return err
	}
	mismatches, err := files.compare(config)
	if err != nil || len(mismatches) == 0 {
		return err
	}
	return files.repair(ctx, config, mismatches)
}
