package daemon

import (
	"context"
	"errors"
	"fmt"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/rebase/nodedisk"
)

// errUnlike marks that a node does not have what it has just been given.
var errUnlike = errors.New("the node is unlike its target")

// marked is an error of a kind; the kind is not in its words.
type marked struct {
	error
	kind error
}

// Is tells errors.Is of the kind.
func (m marked) Is(target error) bool { return target == m.kind }

// Unwrap gives what it says.
func (m marked) Unwrap() error { return m.error }

// verifying verifies the node. After a soft reboot that does not get there in time the hardware reboots, once, into the
// same image: the state that the running kernel and /run keep may be the cause. If that does not help, the node goes
// back to the deployment before.
func verifying(ctx context.Context, e *edges, in observed) (outcome, error) {
	out, err := verify(ctx, e, in)
	if err == nil || !in.waits(e, softHealthLimit) {
		return out, err
	}
	switch j := in.journal; {
	case j.Soft != nil:
		return fallBack(ctx, e, in, err)
	case j.Fell && j.Left == "":
		return goBack(ctx, e, in, err)
	}
	return out, err
}

// healthy asks whether the node is, and after a soft reboot, also one that failed, whether its kubelet runs.
func healthy(ctx context.Context, e *edges, j journal) error {
	if e.healthy != nil {
		if err := e.healthy(ctx); err != nil {
			return fmt.Errorf("the node is not healthy: %w", err)
		}
	}
	if j.Soft == nil && !j.Fell {
		return nil
	}
	if err := kubeletRuns(ctx, e); err != nil {
		return fmt.Errorf("the node is not healthy after a soft reboot: %w", err)
	}
	return nil
}

// verify compares the node with its target and records that it has it.
func verify(ctx context.Context, e *edges, in observed) (outcome, error) {
	if err := healthy(ctx, e, in.journal); err != nil {
		return outcome{}, err
	}
	wanted, err := targetConfig(ctx, e.configs, in)
	if err != nil {
		return outcome{}, err
	}
	config, err := parse(wanted)
	if err != nil {
		return outcome{}, err
	}
	files, err := e.trust.settle(ctx, in.away, wanted)
	if err != nil {
		return outcome{}, err
	}
	image := in.journal.Target.Image
	if image == "" {
		if err := files.host.Uncarry(config); err != nil {
			return outcome{}, err
		}
	}
	mismatches, err := files.compare(config)
	if err != nil {
		return outcome{}, err
	}
	if len(mismatches) > 0 {
		return outcome{}, marked{fmt.Errorf("the node is unlike %s: %s", wanted.Name, names(mismatches)), errUnlike}
	}
	if err := nodedisk.WriteCurrent(e.root, nodedisk.Current{Config: wanted, Image: image}); err != nil {
		return outcome{}, err
	}
	if image == "" || in.journal.Plan.Live {
		if err := forgetOriginals(e.root, files, config); err != nil {
			return outcome{}, err
		}
	}
	if err := nodedisk.EndPending(e.root); err != nil {
		return outcome{}, err
	}
	// What an agent that was killed on the way here had not finished goes.
	return outcome{next: Uncordoning}, errors.Join(nodedisk.Sweep(e.root), files.host.Sweep(config))
}

// forgetOriginals drops what was kept of the node's own files and was put back on the way here.
func forgetOriginals(root string, files nodeFiles, config ign35.Config) error {
	pending, err := nodedisk.ReadPending(root)
	if err != nil {
		return err
	}
	former, err := parseAll(pending)
	if err != nil {
		return err
	}
	return files.host.Forget(config, former...)
}
