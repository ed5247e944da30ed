package openshift

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/bootstrap"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry"
)

// flow is one run on the bootstrap node.
type flow struct {
	Options
	in           *preflight.Input
	registryHost string
	id           *bootstrap.Identity
	registry     *registry.Server
	records      *records
	// listening is where the embedded registry listens on this host, nil before it does.
	listening atomic.Pointer[string]
	// early is closed when nothing is copied ahead any more.
	early chan struct{}
	// mu guards built, which phases fill that run together.
	mu sync.Mutex

	first  firstResult
	base   baseResult
	built  map[string]*build.Result
	second secondResult
}

// Run carries out the openshift flow and ends when nobody needs the bootstrap node any more. A second run on the same
// state directory goes on where the first was cut off. With the policy fallback a failure before the gate opens lets
// the nodes boot the stock image.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	unlock, err := journal.Lock(o.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	if done, err := handover.ReadMark(o.StateDir); err != nil || done != nil {
		return o.afterwards(ctx, done, err)
	}
	return journal.WithOutcome(o.StateDir, time.Now, o.Log, func() error { return o.run(ctx) })
}

func (o Options) run(ctx context.Context) error {
	f := &flow{Options: o, records: o.records(), early: make(chan struct{}), built: map[string]*build.Result{}}
	f.records.begin()
	var err error
	if f.in, err = preflight.LoadLayering(o.Dir, o.Platform); err == nil {
		if f.Limits == (Limits{}) {
			f.Limits = InstallerLimits(f.in.Sidecar.Cluster.Platform)
		}
		err = f.run(ctx)
	}
	f.records.end(err)
	return err
}

func (o Options) records() *records {
	return &records{file: o.at(filepath.Join(recordsDir, recordsFile))}
}

// afterwards is a run on a node that has been handed over: a reboot has shut the gate again.
func (o Options) afterwards(ctx context.Context, done *handover.Mark, err error) error {
	if err != nil {
		return err
	}
	o.Log.WithField("time", done.Time).Info("this bootstrap node has been handed over and is needed by nobody")
	_ = bootstrap.Notify(bootstrap.Ready)
	o.records().close()
	return errors.Join(bootstrap.SettleHandedOver(o.StateDir, phaseHandOver, done), o.Gate.Open(ctx))
}

func (f *flow) run(ctx context.Context) error {
	c := f.in.Sidecar.Config.BootstrapRegistry
	host := f.Host
	if host == "" {
		host = c.Host
	}
	if host == "" {
		var err error
		if host, err = ownAddress(); err != nil {
			return err
		}
	}
	f.registryHost = net.JoinHostPort(host, strconv.Itoa(c.Port))
	if err := bootstrap.ExemptFromProxy(f.registryHost); err != nil {
		return err
	}
	j, err := journal.Open(f.StateDir)
	if err != nil {
		return err
	}
	for _, w := range f.in.Warnings {
		f.Log.WithField("place", w.Place()).WithField("rule", w.Rule).Warn(w.Message)
	}
	defer f.stop()
	err = f.pipeline(ctx, j)
	if err != nil && ctx.Err() == nil && f.in.Sidecar.Config.OnFailure == installconfig.OnFailureFallback &&
		!f.opened(j) {
		return f.fallBack(ctx, j, err)
	}
	if err != nil {
		return err
	}
	j.Endpoints = &journal.Endpoints{Registry: f.registryHost, CAFile: f.id.CAFile}
	return j.Save()
}

// pipeline runs all phases; the budget is watched meanwhile.
func (f *flow) pipeline(ctx context.Context, j *journal.Journal) error {
	watch, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	var open atomic.Bool
	go f.watchBudget(watch, f.since("started"), &open)
	go f.watchGate(watch, &open)
	go bootstrap.KeepAlive(ctx, f.alive)
	if err := bootstrap.Notify(bootstrap.Ready); err != nil {
		f.Log.WithError(err).Warn("service manager not told that the build has begun")
	}
	return journal.NewRunner(j, func(e journal.Event) {
		f.records.event(e)
		_ = bootstrap.Notify("STATUS=" + e.Record.Title + ": " + string(e.Kind)) // for people only
		if e.Record.Name == phaseGate && e.Kind == journal.EventRecorded {
			open.Store(true)
		}
		f.Observe(e)
	}, time.Now, f.Log).Run(ctx, f.phases())
}

// aliveLimit bounds one look at the own registry.
const aliveLimit = 10 * time.Second

// alive says whether the embedded registry, once it is there, takes connections.
func (f *flow) alive() bool {
	address := f.listening.Load()
	if address == nil {
		return true
	}
	c, err := net.DialTimeout("tcp", *address, aliveLimit)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

func (f *flow) opened(j *journal.Journal) bool {
	r := j.Find(phaseGate)
	return r != nil && r.Status == journal.StatusDone
}

// fallBack undoes what was put among MCO's manifests and opens the gate: the nodes boot the stock image of the first
// rendering.
func (f *flow) fallBack(ctx context.Context, j *journal.Journal, cause error) error {
	f.Log.WithError(cause).Error("no layered image: the nodes boot the stock OS image, as onFailure: fallback asks")
	f.records.note("fallback", cause.Error())
	// This process may have failed before it came to what an earlier one has shown.
	if err := errors.Join(recall(j, "render-first", &f.first),
		recall(j, "render-second", &f.second)); err != nil {
		return errors.Join(cause, err)
	}
	if f.first.Pools == nil {
		if err := f.waitFirst(ctx); err != nil {
			return errors.Join(cause, err)
		}
	}
	if err := f.undoInputs(ctx); err != nil {
		return errors.Join(cause, err)
	}
	if err := f.withdraw(ctx); err != nil {
		return errors.Join(cause, err)
	}
	if err := errors.Join(f.openGate(ctx), bootstrap.MarkHandedOver(f.StateDir, f.registryHost,
		"fallback: "+cause.Error())); err != nil {
		return errors.Join(cause, err)
	}
	return nil
}

// recall takes a phase's result from the journal, where it has one.
func recall(j *journal.Journal, phase string, out any) error {
	r := j.Find(phase)
	if r == nil || r.Status != journal.StatusDone || len(r.Output) == 0 {
		return nil
	}
	return json.Unmarshal(r.Output, out)
}

// withdraw takes back what the cluster was given, so that its renderer comes to the name of the first rendering, too.
// An API server that was never reached has got nothing.
func (f *flow) withdraw(ctx context.Context) error {
	if _, err := os.Stat(f.path(givenFile)); err != nil {
		return nil
	}
	set := &manifests.Set{}
	for _, pool := range f.pools() {
		for _, name := range []string{trustName(pool), manifests.PreBuiltComponentPrefix + pool} {
			set.MachineConfigs = append(set.MachineConfigs,
				manifests.NewItem(f.component(name, pool, mcfgv1.MachineConfigSpec{})))
		}
		set.MachineOSConfigs = append(set.MachineOSConfigs, f.pool(pool).MachineOSConfig)
	}
	return f.until(ctx, "fallback", f.Limits.API+f.Limits.Hard,
		func() error { return f.Cluster.Withdraw(ctx, set, f.registryHost) })
}

// stopLimit is how long the registry may take to finish requests.
const stopLimit = 10 * time.Second

func (f *flow) stop() {
	if f.registry == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := f.registry.Shutdown(ctx); err != nil {
		f.Log.WithError(err).Warn("embedded registry did not stop cleanly")
	}
}

// ownAddress is the IPv4 address from which this host reaches others: no packet is sent, the kernel only chooses a
// route.
func ownAddress() (string, error) {
	c, err := net.Dial("udp4", "192.0.2.1:9") // TEST-NET-1 (RFC 5737): nobody's address
	if err != nil {
		return "", fmt.Errorf("find this host's address (give bootstrapRegistry.host): %w", err)
	}
	defer c.Close()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	return host, err
}
