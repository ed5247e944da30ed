package daemon

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/rebase/disruption"
)

// acting carries out the plan's steps that need no reboot. A step may be done again after a crash: none of them does
// harm twice.
func acting(ctx context.Context, e *edges, in observed) (outcome, error) {
	if !in.drained() {
		return outcome{next: Draining}, nil
	}
	acted := false
	for _, s := range in.journal.Plan.Steps {
		var err error
		done, failed := eventServiceReload, eventReloadFailed
		switch s.Type {
		case disruption.DaemonReload:
			err = e.services.Systemctl(ctx, "daemon-reload")
		case disruption.Restart:
			done, failed = eventServiceRestart, eventRestartFailed
			err = disturb(ctx, e, in, "restart", s.Service)
		case disruption.Reload:
			err = disturb(ctx, e, in, "reload", s.Service)
		default:
			continue
		}
		if err != nil {
			e.events.tell(ctx, in.node, in.of(failed, "%s: %v", s, err).also(s.String()).warns())
			return outcome{}, fmt.Errorf("carry out %s: %w", s, err)
		}
		acted = true
		e.events.tell(ctx, in.node, in.of(done, "the change to %s needs no reboot: done: %s", in.journal.Target, s).
			also(s.String()))
	}
	if !acted {
		e.events.tell(ctx, in.node, in.of(eventSkipReboot, "the change to %s needs no reboot", in.journal.Target))
	}
	return outcome{next: Verifying}, nil
}

// disturb restarts or reloads a service. If this very change has removed or masked it, systemd can do neither: then the
// agent stops the service, which is all that a restart can mean, and the step is done.
func disturb(ctx context.Context, e *edges, in observed, verb, service string) error {
	err := e.services.Systemctl(ctx, verb, service)
	if err == nil {
		return nil
	}
	gone, lookErr := removes(ctx, e.configs, in, service)
	if lookErr != nil || !gone {
		return err //nolint:wrapcheck // systemctl's, the caller says for what
	}
	log := e.log.WithField("service", service).WithField("verb", verb)
	if stopErr := e.services.Systemctl(ctx, "stop", service); stopErr != nil {
		log = log.WithField("stop", stopErr.Error()) // systemd has forgotten it: nothing of it runs
	}
	log.WithField("cause", err.Error()).
		Info("the same change removes the service: it is stopped, and the step counts as done")
	return nil
}

// removes tells whether the node's config has a service's unit and the target's has it no more, or masks it.
func removes(ctx context.Context, configs nodeConfigs, in observed, service string) (bool, error) {
	wanted, err := targetConfig(ctx, configs, in)
	if err != nil {
		return false, err
	}
	before, err := parse(in.current.Config)
	if err != nil {
		return false, err
	}
	after, err := parse(wanted)
	if err != nil {
		return false, err
	}
	name := service
	if template, _, instance := strings.Cut(service, "@"); instance && !hasUnit(before, service) {
		name = template + "@" + path.Ext(service)
	}
	return masks(after, name) || hasUnit(before, name) && !hasUnit(after, name), nil
}

// masks tells whether a config makes a unit one that cannot be started.
func masks(c ign35.Config, name string) bool {
	return slices.ContainsFunc(c.Systemd.Units, func(u ign35.Unit) bool {
		return u.Name == name && u.Mask != nil &&
			*u.Mask
	})
}

// hasUnit tells whether a config brings a unit that can be started, as a unit or as a plain file.
func hasUnit(c ign35.Config, name string) bool {
	unit := func(u ign35.Unit) bool { return u.Name == name && u.Contents != nil && *u.Contents != "" }
	return !masks(c, name) && slices.ContainsFunc(c.Systemd.Units, unit) ||
		slices.ContainsFunc(c.Storage.Files, func(f ign35.File) bool { return f.Path == "/etc/systemd/system/"+name })
}
