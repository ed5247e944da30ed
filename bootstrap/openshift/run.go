package openshift

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
)

// Run carries out the openshift flow and ends when the bootstrap node may go. A second run on the same state directory
// goes on where the first was cut off. With the policy fallback a failure before the gate opens lets the nodes boot the
// release's own OS image.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	o = o.withDefaults()
	done, err := day1.OpenState(o.Options)
	if err != nil {
		return err
	}
	defer done()
	records := &records{file: o.at(filepath.Join(recordsDir, recordsFile))}
	mark, err := day1.Ended(o.StateDir, phaseHandOver)
	if mark != nil {
		return afterwards(ctx, o, records, mark, err)
	}
	if err != nil {
		return err
	}
	return journal.WithOutcome(o.StateDir, o.Now, o.Log, func() error {
		records.begin()
		err := run(ctx, o, records)
		records.end(err)
		return err
	})
}

// afterwards is a run on a node that has been handed over: a reboot has shut the gate again.
func afterwards(ctx context.Context, o Options, records *records, mark *handover.Mark, err error) error {
	o.Log.WithField("time", mark.Time).Info("this bootstrap node has been handed over and has nothing left to do")
	_ = day1.Notify(day1.Ready)
	records.close()
	return errors.Join(err, o.Gate.Open(ctx), release(ctx, o))
}

func run(ctx context.Context, o Options, records *records) error {
	in, err := preflight.LoadLayering(o.Dir, o.Platform)
	if err != nil {
		return err
	}
	if o.Limits == (Limits{}) {
		o.Limits = InstallerLimits(in.Sidecar.Cluster)
	}
	f, err := newFlow(o, in, records)
	if err != nil {
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
	f.host.Warn()
	if why := misplaced(o.Root); why != "" {
		o.Log.Warn(why)
	}
	if err = day1.CheckDisk(o.Options, in.Sidecar.Config.Build); err == nil {
		err = f.run(ctx, j)
	}
	if err != nil && ctx.Err() == nil && in.Sidecar.Config.OnFailure == installconfig.OnFailureFallback && !opened(j) {
		return fallBack(ctx, f, j, err)
	}
	return err
}

// misplaced says why nothing will come of the flow on this host; empty: it may.
func misplaced(root string) string {
	if _, err := os.Stat(filepath.Join(root, installerDir)); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return "there is no " + installerDir + ": this host is not the bootstrap node of openshift-install, or its Ignition " +
		"config has not run. The flow waits for that node's programs; dayone ignition makes the node run it"
}

// newFlow finds how nodes reach this host.
func newFlow(o Options, in *preflight.Input, records *records) (flow, error) {
	images, err := hostSources(o)
	if err != nil {
		return flow{}, err
	}
	if in.Sidecar.Cluster.InPlace() {
		return inPlaceFlow(o, in, records, images)
	}
	c := in.Sidecar.Config.BootstrapRegistry
	host := c.Host
	if host == "" {
		if host, err = ownAddress(); err != nil {
			return flow{}, err
		}
	}
	port := strconv.Itoa(c.Port)
	return flow{Options: o, records: records, started: func() {}, host: day1.Host{Options: o.Options, In: in,
		Registry: net.JoinHostPort(host, port), Listen: ":" + port, Names: []string{host}, Together: true, ByMCO: true,
		Images: images}}, nil
}

// run carries out all steps. It watches the installer's limits, the gate and the registry meanwhile.
func (f flow) run(ctx context.Context, j *journal.Journal) error {
	watch, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	var open, serving atomic.Bool
	f.started = func() { serving.Store(true) }
	defer serving.Store(false)
	go watchBudget(watch, f, f.since("started"), &open)
	go watchGate(watch, f, &open)
	go day1.KeepAlive(ctx, func() bool { return !serving.Load() || answers(f.host.Listen) })
	if err := day1.Notify(day1.Ready); err != nil {
		f.Log.WithError(err).Warn("service manager is not notified that the build has begun")
	}
	observe := func(e journal.Event) {
		f.records.event(e)
		_ = day1.Notify("STATUS=" + e.Record.Title + ": " + string(e.Kind)) // for people only
		if e.Record.Name == phaseGate && e.Kind == journal.EventRecorded {
			open.Store(true)
		}
		f.Observe(e)
	}
	return day1.Run(ctx, journal.Begin(j, f.phases(), observe, f.Now, f.Log), f.host, f, f)
}

// aliveLimit bounds one check of the own registry.
const aliveLimit = 10 * time.Second

// answers reports whether the embedded registry takes connections on this host.
func answers(listen string) bool {
	c, err := net.DialTimeout("tcp", "127.0.0.1"+listen, aliveLimit)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

func opened(j *journal.Journal) bool {
	r := j.Find(phaseGate)
	return r != nil && r.Status == journal.StatusDone
}

// since is when something happened first on this node, whichever process saw it: now, when none has.
func (f flow) since(what string) time.Time {
	file := f.Path(what)
	if raw, err := os.ReadFile(file); err == nil {
		if t, err := time.Parse(time.RFC3339Nano, string(raw)); err == nil {
			return t
		}
	}
	now := time.Now()
	_ = renameio.WriteFile(file, []byte(now.Format(time.RFC3339Nano)), 0o600) // without it a later run counts from itself
	return now
}

// ownAddress is the IPv4 address from which this host reaches others: no packet is sent, the kernel only chooses a
// route.
func ownAddress() (string, error) {
	c, err := net.Dial("udp4", "192.0.2.1:9") // TEST-NET-1 (RFC 5737): an address of no host
	if err != nil {
		return "", fmt.Errorf("find this host's address (give bootstrapRegistry.host): %w", err)
	}
	defer c.Close()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	return host, err
}
