package daemon

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/rebase/disruption"
)

// acting carries out the plan's steps that need no reboot. A step may be done again after a crash: none of them does
// harm twice.
func (a *Agent) acting(ctx context.Context, n node) (State, time.Duration, error) {
	if !a.drained(n) {
		return Draining, 0, nil
	}
	for _, s := range a.journal.Plan.Steps {
		var err error
		switch s.Type {
		case disruption.DaemonReload:
			err = a.o.Services.Systemctl(ctx, "daemon-reload")
		case disruption.Restart:
			err = a.disturb(ctx, "restart", s.Service)
		case disruption.Reload:
			err = a.disturb(ctx, "reload", s.Service)
		default:
			continue
		}
		if err != nil {
			return Acting, 0, fmt.Errorf("carry out %s: %w", s, err)
		}
	}
	return Verifying, 0, nil
}

// disturb restarts or reloads a service. What this very change has taken from the node, or masked, cannot be: then it
// is stopped, which is all that a restart can mean, and the step is done.
func (a *Agent) disturb(ctx context.Context, verb, service string) error {
	err := a.o.Services.Systemctl(ctx, verb, service)
	if err == nil {
		return nil
	}
	gone, lookErr := a.takesAway(ctx, service)
	if lookErr != nil || !gone {
		return err //nolint:wrapcheck // systemctl's, the caller says for what
	}
	log := a.o.Log.WithField("service", service).WithField("verb", verb)
	if stopErr := a.o.Services.Systemctl(ctx, "stop", service); stopErr != nil {
		log = log.WithField("stop", stopErr.Error()) // systemd has forgotten it: nothing of it runs
	}
	log.WithField("cause", err.Error()).
		Info("the same change removes the service: it is stopped, and the step counts as done")
	return nil
}

// takesAway tells whether the node had a service's unit by its config and, with the one that it goes to, has not, or
// has it masked.
func (a *Agent) takesAway(ctx context.Context, service string) (bool, error) {
	current, err := a.current()
	if err != nil {
		return false, err
	}
	wanted, err := a.wanted(ctx)
	if err != nil {
		return false, err
	}
	before, err := parse(current.Config)
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
