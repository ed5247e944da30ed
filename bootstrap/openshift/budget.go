package openshift

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"dayone.dev/dayone/installconfig"
)

// Limits are how long the installer's programs wait (openshift/installer, cmd/openshift-install/create.go;
// cluster-bootstrap).
type Limits struct {
	// API is from the start of the node to an answer of the API server.
	API time.Duration
	// Soft is from there to the control plane's pods on the masters: then cluster-bootstrap starts over.
	Soft time.Duration
	// Hard is from there to the end of the bootstrap: then openshift-install gives up.
	Hard time.Duration
}

// InstallerLimits are those of a cluster: bare metal, vSphere, and AWS with a DNS of the user's own have 60 minutes for
// Hard.
func InstallerLimits(c installconfig.Cluster) Limits {
	l := Limits{API: 20 * time.Minute, Soft: 20 * time.Minute, Hard: 45 * time.Minute}
	if c.Platform == "baremetal" || c.Platform == "vsphere" || c.Platform == "aws" && c.UserProvisionedDNS {
		l.Hard = 60 * time.Minute
	}
	return l
}

// warning is what is said once half of a limit is gone.
type warning struct {
	name  string
	after time.Duration
	text  string
	// toTheEnd: it counts until the bootstrap is complete, not until the nodes get their configs.
	toTheEnd bool
}

// fromStart and fromAPI are the warnings, counted from the start of the node and from the API's first answer.
func (l Limits) fromStart() []warning {
	return []warning{{name: "api", after: l.API / 2,
		text: fmt.Sprintf(
			"the API server does not answer yet: openshift-install gives up %s after the node's start; dayone does not "+
				"hold it up, look at bootkube.service", l.API)}}
}

func (l Limits) fromAPI() []warning {
	return []warning{
		{name: "soft", after: l.Soft / 2,
			text: fmt.Sprintf(
				"half of %s is gone without a master: then cluster-bootstrap ends the bootstrap control plane once and "+
					"bootkube starts it again; the installation goes on, and nothing needs to be done", l.Soft)},
		{name: "hard", toTheEnd: true, after: l.Hard / 2,
			text: fmt.Sprintf(
				"half of %s is gone: then openshift-install reports a failed bootstrap (exit code 5), while this node goes "+
					"on; run openshift-install wait-for bootstrap-complete again", l.Hard)},
	}
}

// due gives the warnings that are to be said after a time.
func due(list []warning, after time.Duration) []warning {
	var out []warning
	for _, w := range list {
		if after >= w.after {
			out = append(out, w)
		}
	}
	return out
}

// watchBudget warns, each once, until the context ends. Once the gate is open no node waits for the image any more, but
// the end of the bootstrap is still to come.
func watchBudget(ctx context.Context, f flow, started time.Time, open *atomic.Bool) {
	said := map[string]bool{}
	var up time.Time
	ticks := time.NewTicker(f.Interval)
	defer ticks.Stop()
	for {
		if up.IsZero() && f.Cluster.Up(ctx) == nil {
			up = f.since("api-up")
		}
		list := due(f.Limits.fromStart(), time.Since(started))
		if !up.IsZero() {
			list = due(f.Limits.fromAPI(), time.Since(up))
		}
		for _, w := range list {
			if said[w.name] || open.Load() && !w.toTheEnd {
				continue
			}
			said[w.name] = true
			f.Log.WithField("limit", w.name).Warn(w.text)
			f.records.note("time-"+w.name, w.text)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}
