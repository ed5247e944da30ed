package standalone

import (
	"context"
	"crypto/sha512"
	"net"
	"strconv"
	"sync"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

// flow fills in day1's steps.
type flow struct {
	Options
	host day1.Host
	// baseDigest is what the base image's source says.
	baseDigest string
	// config is the address on which the Ignition server listens.
	config string
	// agentHash is the SHA-512 of the nodes' agent in hex.
	agentHash func() (string, error)
}

// Phases of this flow beside day1's.
const (
	phaseBase        = "base"
	phaseRenderFirst = "render-first"
	phaseExtensions  = "extensions"
	phaseRenderFinal = "render-final"
	phaseServe       = "serve"
	phaseHandOver    = "handover"
)

func phases(f flow) []journal.Phase {
	first := []journal.Phase{{Name: phaseBase, Title: "import the base image"},
		{Name: phaseRenderFirst, Title: "render the first configs"}}
	if extends(f.host.In) {
		first = append(first, journal.Phase{Name: phaseExtensions, Title: "import the extension packages"})
	}
	after := []journal.Phase{{Name: phaseRenderFinal, Title: "render the final configs"},
		{Name: phaseServe, Title: "serve Ignition configs"}}
	if f.HandOver.Kubeconfig != "" {
		after = append(after, journal.Phase{Name: phaseHandOver, Title: "hand over to the cluster"})
	}
	return day1.Phases(f.host.In, first, after)
}

// Run carries out Day 1 on the bootstrap host and then serves until ctx ends, a service fails or the hand-over is done.
// A second run on the same state directory goes on where the first was cut off. It checks every refusal before it
// starts anything.
func Run(ctx context.Context, o Options) error {
	o.Options = o.Options.WithDefaults()
	if err := o.Validate(); err != nil {
		return err
	}
	done, err := day1.OpenState(o.Options)
	if err != nil {
		return err
	}
	defer done()
	return journal.WithOutcome(o.StateDir, o.Now, o.Log, func() error { return run(ctx, o) })
}

func run(ctx context.Context, o Options) error {
	in, err := preflight.Load(o.Dir, o.Platform)
	if err != nil {
		return err
	}
	if in.Sidecar.Config.Flow != installconfig.FlowStandalone {
		return report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".flow", Rule: "flow",
			Message: "dayone bootstrap on a host of its own is the standalone flow",
			Next: "patch the installer's bootstrap host with dayone ignition, or set flow: standalone for a cluster whose " +
				"bootstrap host dayone owns"}
	}
	if err := o.checkPrograms(in.Sidecar.Config); err != nil {
		return err
	}
	mark, err := day1.Ended(o.StateDir, phaseHandOver)
	if err != nil {
		return err
	}
	if mark != nil {
		o.Log.WithField("time", mark.Time).
			Info("this bootstrap has been handed over and has nothing left to do; another --state-dir installs another cluster")
		return nil
	}
	f := newFlow(o, in)
	registry, config := o.listeners(in.Sidecar.Config)
	if err := checkPorts(registry, config); err != nil {
		return err
	}
	f.host.Listen, f.config = registry.address, config.address
	if err := day1.UseProxy(in.Nodes.Proxy); err != nil {
		return err
	}
	if err := day1.ExemptFromProxy(f.host.Registry); err != nil {
		return err
	}
	j, err := journal.Open(o.StateDir)
	if err != nil {
		return err
	}
	if err := j.BelongTo(in.Sidecar.Cluster.FullName()); err != nil {
		return err
	}
	if err := day1.CheckDisk(o.Options, in.Sidecar.Config.Build); err != nil {
		return err
	}
	if f.baseDigest, err = f.inspectBase(ctx, j); err != nil {
		return err
	}
	f.host.Warn()
	return day1.Run(ctx, journal.Begin(j, phases(f), o.Observe, o.Now, o.Log), f.host, f, f)
}

// newFlow knows the host by its names in the install directory.
func newFlow(o Options, in *preflight.Input) flow {
	cfg := in.Sidecar.Config
	names := []string{cfg.BootstrapRegistry.Host, cfg.ConfigServer.Host}
	if c := in.Sidecar.Cluster; c.Name != "" && c.BaseDomain != "" {
		names = append(names, "api-int."+c.Name+"."+c.BaseDomain)
	}
	address := net.JoinHostPort(cfg.BootstrapRegistry.Host, strconv.Itoa(cfg.BootstrapRegistry.Port))
	return flow{Options: o, host: day1.Host{Options: o.Options, In: in, Registry: address, Names: names, ProveName: true},
		agentHash: sync.OnceValues(func() (string, error) { return hashOfFile(o.DaemonBinary, sha512.New()) })}
}
