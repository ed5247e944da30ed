package day1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
)

// HandOver says how the bootstrap host gives what it made to the cluster. The zero value leaves it out: the host then
// serves until it is stopped, and dayone handover does it later.
type HandOver struct {
	// Kubeconfig of a cluster administrator; the file may appear while the masters install.
	Kubeconfig string
	// Context of the kubeconfig; default its current one.
	Context string
	// Policy and Deadline bound it; default: those of install-config.yaml.
	Policy   handover.Policy
	Deadline time.Duration
	// OlderCluster takes a cluster that was made before this bootstrap began (see handover.Options).
	OlderCluster bool
	// FinalCAFile is PEM of CAs that sign the final registries, beside this host's.
	FinalCAFile string
	// Nodes is how many nodes of a pool must have joined. Default: controlPlane.replicas for master, else 1 where an image
	// was built here.
	Nodes map[string]int
}

// Options are those of the hand-over of a plan from a state directory, without source and end.
func (o HandOver) Options(stateDir string, plan *handover.Plan, log *logrus.Entry) (handover.Options, error) {
	out := handover.Options{Plan: plan, Connect: handover.Kubeconfig(o.Kubeconfig, o.Context),
		FinalCAFile: o.FinalCAFile, Policy: o.Policy, Deadline: o.Deadline, Log: log.WithField("phase", "handover")}
	if o.OlderCluster {
		return out, nil
	}
	var err error
	out.Began, err = certs.MadeAt(identityFiles(stateDir).CAFile)
	return out, err
}

// Source is the embedded registry as the hand-over reads it.
func (r *Registry) Source() handover.Source {
	return handover.Source{Host: r.Address, CAFile: r.Identity.CAFile, AuthFile: r.Identity.PullAuth}
}

// HandOverOptions are those of a hand-over in a process of its own.
type HandOverOptions struct {
	HandOver
	// StateDir is the bootstrap's. Default: DefaultStateDir.
	StateDir string
	// Observe receives the events; nil drops them.
	Observe func(handover.Event)
	// Log takes its messages; nil discards them.
	Log *logrus.Entry
}

// RunHandOver hands over what a bootstrap on this host has made. A bootstrap that works on the same state directory
// goes on serving meanwhile and ends when it is done; without one, the images are read from the state directory.
func RunHandOver(ctx context.Context, o HandOverOptions) error {
	dir := Options{StateDir: o.StateDir}.WithDefaults()
	o.Log = cmp.Or(o.Log, report.NoLog())
	mark, err := handover.ReadMark(dir.StateDir)
	if err != nil {
		return err
	}
	if mark != nil {
		o.Log.WithField("time", mark.Time).Info("handed over already")
		return removeAccounts(dir.StateDir)
	}
	plan, err := handover.Read(dir.PlanDir())
	if err != nil {
		return fmt.Errorf("hand over from %s: %w", dir.StateDir, err)
	}
	expect(plan.Pools, o.Nodes)
	source, stop, err := readImages(ctx, dir, plan.Registry, o.Log)
	if err != nil {
		return err
	}
	defer stop()
	run, err := o.HandOver.Options(dir.StateDir, plan, o.Log)
	if err != nil {
		return err
	}
	run.Source, run.Observe = source, o.Observe
	// The next process empties it, should this one be killed: copies need the push credentials in files.
	run.TempDir = filepath.Join(dir.StateDir, scratchDir)
	if err := os.MkdirAll(run.TempDir, 0o700); err != nil {
		return fmt.Errorf("make scratch directory: %w", err)
	}
	run.Revoke = func(context.Context) error { return End(dir.StateDir, plan.Registry, "") }
	return handover.Run(ctx, run)
}

// expect gives the pools that are named the number of nodes that must have their image; the others keep the plan's.
func expect(pools []handover.Pool, nodes map[string]int) {
	for i, p := range pools {
		if n, ok := nodes[p.Name]; ok {
			pools[i].Nodes = n
		}
	}
}

// readImages reaches the embedded registry: that of a bootstrap that runs, or one on loopback for the time of the
// hand-over.
func readImages(ctx context.Context, o Options, address string, log *logrus.Entry) (handover.Source, func(), error) {
	id := identityFiles(o.StateDir)
	from := handover.Source{Host: address, CAFile: id.CAFile, AuthFile: id.PullAuth}
	running, err := journal.Running(o.StateDir)
	if err != nil {
		return from, nil, err
	}
	if running {
		log.WithField("registry", address).Info("a bootstrap runs here, its registry is read")
		return from, func() {}, ExemptFromProxy(address)
	}
	unlock, err := OpenState(o)
	if err != nil {
		return from, nil, err
	}
	from, shutdown, err := serveImages(ctx, o, address, log)
	if err != nil {
		unlock()
		return from, nil, err
	}
	return from, func() { shutdown(); unlock() }, ExemptFromProxy(from.Host)
}

// serveImages serves the embedded registry for this process alone.
func serveImages(ctx context.Context, o Options, address string, log *logrus.Entry) (handover.Source, func(), error) {
	var none handover.Source
	id, err := loadIdentity(o.StateDir, address)
	if err != nil {
		return none, nil, err
	}
	server, err := registry.New(registry.Options{Root: o.Path(RegistryDir), Listen: "127.0.0.1:0",
		TLSDir: IdentityDir(o.StateDir), Hosts: []string{hostOf(address)}, Users: id.Users,
		Log: log.WithField("component", "registry")})
	if err != nil {
		return none, nil, err
	}
	if err := server.Start(); err != nil {
		return none, nil, err
	}
	auth := id.PullAuth + loopbackEnd
	stop := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			log.WithError(err).Warn("registry did not stop cleanly")
		}
		if err := os.Remove(auth); err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.WithError(err).Warn("credential of the hand-over was not removed")
		}
	}
	if err := id.pull().WriteAuthFile(auth, server.Addr()); err != nil {
		stop()
		return none, nil, err
	}
	return handover.Source{Host: server.Addr(), CAFile: id.CAFile, AuthFile: auth}, stop, nil
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return installconfig.Repository(address)
	}
	return host
}
