package openshift

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
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

// Run carries out the openshift flow and then keeps the registry until ctx ends. A second run on the same state directory goes on where
// the first was cut off. With the policy fallback a failure before the gate opens lets the nodes boot the stock image.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return err
	}
	in, err := preflight.LoadLayering(o.Dir, o.Platform)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	unlock, err := bootstrap.LockState(o.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	f := &flow{Options: o, in: in, records: &records{file: o.at(filepath.Join(recordsDir, recordsFile))}, early: make(chan struct{}),
		built: map[string]*build.Result{}}
	f.records.add(record{Phase: "service start"})
	err = f.run(ctx)
	f.records.end(err)
	return err
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
	journal, err := bootstrap.OpenJournal(f.StateDir)
	if err != nil {
		return err
	}
	for _, w := range f.in.Warnings {
		f.Log.WithField("place", w.Place()).WithField("rule", w.Rule).Warn(w.Message)
	}
	defer f.stop()
	err = f.pipeline(ctx, journal)
	if err != nil && ctx.Err() == nil && f.in.Sidecar.Config.OnFailure == installconfig.OnFailureFallback && !f.opened(journal) {
		return f.fallBack(ctx, err)
	}
	if err != nil {
		return err
	}
	journal.Endpoints = &bootstrap.Endpoints{Registry: f.registryHost, CAFile: f.id.CAFile}
	if err := journal.Save(); err != nil {
		return err
	}
	return f.wait(ctx)
}

// pipeline runs all phases; the budget is watched until the gate is open.
func (f *flow) pipeline(ctx context.Context, journal *bootstrap.Journal) error {
	watch, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	go f.watchBudget(watch, f.started())
	go bootstrap.KeepAlive(ctx, f.alive)
	if err := bootstrap.Notify(bootstrap.Ready); err != nil {
		f.Log.WithError(err).Warn("service manager not told that the build has begun")
	}
	return bootstrap.RunPhases(ctx, journal, f.phases(), func(e bootstrap.Event) {
		f.records.event(e)
		_ = bootstrap.Notify("STATUS=" + e.Record.Title + ": " + string(e.Kind)) // for people only
		if e.Record.Name == phaseGate && e.Kind == bootstrap.EventRecorded {
			stopWatch()
		}
		f.Observe(e)
	}, f.Log)
}

// started is when the first run on this node began: the age of the lock file, which every run keeps.
func (f *flow) started() time.Time {
	file := filepath.Join(f.StateDir, "started")
	if raw, err := os.ReadFile(file); err == nil {
		if t, err := time.Parse(time.RFC3339, string(raw)); err == nil {
			return t
		}
	}
	now := time.Now()
	_ = renameio.WriteFile(file, []byte(now.Format(time.RFC3339)), 0o600) // without it a later run counts from itself
	return now
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

func (f *flow) opened(j *bootstrap.Journal) bool {
	r := j.Find(phaseGate)
	return r != nil && r.Status == bootstrap.PhaseDone
}

// HandedOverFile is in the state directory from the moment on at which the bootstrap node may go.
const HandedOverFile = "handed-over"

// Hold waits until the bootstrap node may go: the installer's report of a complete bootstrap is held back by it.
func Hold(ctx context.Context, stateDir string, interval time.Duration) error {
	for {
		if _, err := os.Stat(filepath.Join(stateDir, HandedOverFile)); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("hold the end of the bootstrap: the images are not handed over yet: %w", ctx.Err())
		case <-time.After(interval):
		}
	}
}

func (f *flow) release(what string) error {
	if err := renameio.WriteFile(filepath.Join(f.StateDir, HandedOverFile), []byte(what+"\n"), 0o600); err != nil {
		return fmt.Errorf("note the hand-over: %w", err)
	}
	return nil
}

// fallBack undoes what was put among MCO's manifests and opens the gate: the nodes boot the stock image of the first rendering.
func (f *flow) fallBack(ctx context.Context, cause error) error {
	f.Log.WithError(cause).Error("no layered image: the nodes boot the stock OS image, as onFailure: fallback asks")
	f.records.note("fallback", cause.Error())
	if f.first.Pools == nil {
		if err := f.waitFirst(ctx); err != nil {
			return errors.Join(cause, err)
		}
	}
	if err := f.undoInputs(ctx); err != nil {
		return errors.Join(cause, err)
	}
	if err := errors.Join(f.Gate.Open(ctx), f.release("fallback: "+cause.Error())); err != nil {
		return errors.Join(cause, err)
	}
	return nil
}

// wait keeps the registry until the node is told to stop.
func (f *flow) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-f.registry.Err():
		return fmt.Errorf("serve the embedded registry: %w", err)
	}
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

// ownAddress is the IPv4 address from which this host reaches others: no packet is sent, the kernel only chooses a route.
func ownAddress() (string, error) {
	c, err := net.Dial("udp4", "192.0.2.1:9") // TEST-NET-1 (RFC 5737): nobody's address
	if err != nil {
		return "", fmt.Errorf("find this host's address (give bootstrapRegistry.host): %w", err)
	}
	defer c.Close()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	return host, err
}
