package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/rebase/daemon/hostfiles"
	"dayone.dev/dayone/rebase/nodedisk"
)

// maxNamed is how many paths a message names.
const maxNamed = 5

// verifying compares the node with its target and records that it has it.
func (a *Agent) verifying(ctx context.Context, n node) (State, time.Duration, error) {
	if n.target() != a.journal.Target {
		return Planning, 0, nil
	}
	if a.o.Healthy != nil {
		if err := a.o.Healthy(ctx); err != nil {
			return Verifying, 0, fmt.Errorf("the node is not healthy: %w", err)
		}
	}
	wanted, err := a.wanted(ctx)
	if err != nil {
		return Verifying, 0, err
	}
	config, err := parse(wanted)
	if err != nil {
		return Verifying, 0, err
	}
	if err := a.settleTrust(ctx, n, wanted); err != nil {
		return Verifying, 0, err
	}
	if a.journal.Target.Image == "" {
		if err := a.files.Uncarry(config); err != nil {
			return Verifying, 0, err
		}
	}
	mismatches, err := a.compare(config)
	if err != nil {
		return Verifying, 0, err
	}
	if len(mismatches) > 0 {
		return Verifying, 0, fmt.Errorf("the node is unlike %s: %s", wanted.Name, names(mismatches))
	}
	if err := nodedisk.WriteCurrent(a.o.Root, nodedisk.Current{Config: wanted,
		Image: a.journal.Target.Image}); err != nil {
		return Verifying, 0, err
	}
	if err := a.forget(config); err != nil {
		return Verifying, 0, err
	}
	if err := nodedisk.EndPending(a.o.Root); err != nil {
		return Verifying, 0, err
	}
	return Uncordoning, 0, a.sweep(config)
}

// forget drops what was kept of the node's own and has been given back on the way here.
func (a *Agent) forget(config ign35.Config) error {
	if a.journal.Target.Image != "" && !a.journal.Plan.Live {
		return nil // No file was written.
	}
	pending, err := nodedisk.ReadPending(a.o.Root)
	if err != nil {
		return err
	}
	return fromEach(pending, func(former ign35.Config) error { return a.files.Forget(config, former) })
}

// sweep removes what an agent that was killed on the way here had not finished.
func (a *Agent) sweep(config ign35.Config) error {
	return errors.Join(nodedisk.Sweep(a.o.Root), a.files.Sweep(config))
}

// wanted is the target's config: the node's own when it is the one that it has already, or what the plan has put on its
// disk, so that the cluster need not have it, or answer, any more.
func (a *Agent) wanted(ctx context.Context) (*mcfgv1.MachineConfig, error) {
	name := a.journal.Target.Config
	current, err := a.current()
	if err != nil || current.Config.Name == name {
		return current.Config, err
	}
	begun, err := a.begun(current)
	if err != nil {
		return nil, err
	}
	for _, have := range begun {
		if have.Config.Name == name {
			return have.Config, nil
		}
	}
	return a.o.Cluster.Config(ctx, name)
}

func names(mismatches []hostfiles.Mismatch) string {
	words := make([]string, 0, maxNamed+1)
	for i, m := range mismatches {
		if i == maxNamed {
			words = append(words, fmt.Sprintf("and %d more", len(mismatches)-maxNamed))
			break
		}
		words = append(words, m.Path+" "+m.Why)
	}
	return strings.Join(words, "; ")
}
