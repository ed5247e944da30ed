package testnode

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/hack/cache"
	"dayone.dev/dayone/hack/runlock"
	"dayone.dev/dayone/hack/statefile"
	"dayone.dev/dayone/installconfig/report"
)

// defaultStateDir holds a directory per run; it is a tmpfs, so that nothing survives a reboot of the machine.
const defaultStateDir = "/run/dayone-testnode"

// Options describe a run. The zero value works for tests.
type Options struct {
	// ID names the run: six or more of a-z0-9; default: random.
	ID string
	// StateDir has the runs of this machine; default defaultStateDir. Runs in different state directories do not see each
	// other.
	StateDir string
	// CacheDir has sysroots (on disk) and templates of them; default cache.Dir().
	CacheDir string
	// LogDir gets <node>.log with all that a node's console showed; default: the run's state directory, gone after Close.
	LogDir string
	// Program plays the nodes' stages: a program whose main calls Init, such as testnode. A node starts it four times or
	// more, so a small one boots faster. Default: this program.
	Program string
	// Prefix is the nodes' network; the bootstrap host gets its first address; default 192.168.77.0/24. Several runs may
	// use the same.
	Prefix netip.Prefix
	// Keep lets nodes live on when this process ends. Sweep and the testnode program know them then.
	Keep bool
	// Log gets a line per step; default: nothing.
	Log *logrus.Entry
}

// Lab is one run: a network and its nodes. All that it makes is named after its ID and removed by Close, or, when the
// process died before, by the next run's Sweep.
type Lab struct {
	ID      string
	Network *Network

	options Options
	dir     string // state
	work    string // sysroots
	cgroups string
	lock    *os.File

	mu    sync.Mutex
	nodes []*Node
}

// runRecord is what a later process must know to clean up.
type runRecord struct {
	ID   string `json:"id"`
	PID  int    `json:"pid"` // for people; the lock tells who lives
	Work string `json:"work"`
}

const (
	recordFile = "run.json"
	lockFile   = "lock"
)

// New sweeps what dead runs left and sets up a new one: its directories and its network. It needs root.
func New(ctx context.Context, o Options) (*Lab, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := Missing(); err != nil {
		return nil, err
	}
	if err := Sweep(ctx, o); err != nil {
		o.Log.WithError(err).Warn("cannot remove what dead runs left") // no reason not to begin a new one
	}
	l := &Lab{ID: o.ID, options: o, dir: filepath.Join(o.StateDir, o.ID), work: filepath.Join(o.CacheDir, "testnode",
		"runs", o.ID)}
	if l.cgroups, err = cgroupRoot(); err != nil {
		return nil, err
	}
	if err := allowWatches(watchLimit); err != nil {
		o.Log.WithError(err).Warn("only a few nodes can run at the same time") // enough for a demo
	}
	if err := l.claim(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(l.work, 0o700); err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	if l.Network, err = newNetwork(ctx, o.ID, o.Prefix); err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	return l, nil
}

func (o Options) withDefaults() (Options, error) {
	if o.ID == "" {
		random := make([]byte, 4)
		_, _ = rand.Read(random) // never fails, see its documentation
		o.ID = hex.EncodeToString(random)
	}
	if o.StateDir == "" {
		o.StateDir = defaultStateDir
	}
	if o.CacheDir == "" {
		dir, err := cache.Dir()
		if err != nil {
			return o, err
		}
		o.CacheDir = dir
	}
	if !o.Prefix.IsValid() {
		o.Prefix = netip.MustParsePrefix("192.168.77.0/24")
	}
	if o.Log == nil {
		o.Log = report.NoLog()
	}
	return o, nil
}

// claim makes the run's state directory and takes its lock; no sweep looks at it meanwhile.
func (l *Lab) claim() error {
	guard, err := l.options.guard()
	if err != nil {
		return err
	}
	defer guard.Close()
	if err := os.Mkdir(l.dir, 0o700); err != nil {
		return fmt.Errorf("create run: %w", err)
	}
	if l.lock, err = runlock.Take(filepath.Join(l.dir, lockFile)); err != nil {
		return err
	}
	return statefile.Write(filepath.Join(l.dir, recordFile), runRecord{ID: l.ID, PID: os.Getpid(), Work: l.work})
}

// Nodes lists the run's nodes in the order they were made.
func (l *Lab) Nodes() []*Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*Node(nil), l.nodes...)
}

// Close cuts every node's power and removes all that the run made. Logs in Options.LogDir stay. A second call is
// harmless.
func (l *Lab) Close(ctx context.Context) error {
	var errs []error
	for _, n := range l.Nodes() {
		errs = append(errs, n.PowerCut(ctx))
	}
	errs = append(errs, cleanUp(ctx, runRecord{ID: l.ID, Work: l.work}, l.dir))
	if l.lock != nil {
		errs = append(errs, ignore(l.lock.Close(), os.ErrClosed))
	}
	return errors.Join(errs...)
}

// Dir is the run's state directory.
func (l *Lab) Dir() string { return l.dir }
