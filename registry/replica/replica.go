package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"

	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/quiet"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/wanted"
)

const (
	// defaultEvery is the pause between two looks at the files. A change of the list is seen by then.
	defaultEvery = 10 * time.Second
	// DefaultBytesPerSecond leaves the better part of a common network card, and of etcd's disk, to others.
	DefaultBytesPerSecond = 100 << 20
	// DefaultGrace is how long an image stays that nothing wants.
	DefaultGrace = 24 * time.Hour
	// freshFor is how long a list counts as the cluster's word after it last changed: its maker renews it more often.
	freshFor = time.Hour
	// attachedEvery is how often peers are asked for signatures and referrers of images that are here.
	attachedEvery = 5 * time.Minute
)

// Options of a replica. Dir is required.
type Options struct {
	// Dir has the files of package wanted, and what the replica remembers.
	Dir string
	// Peers are the cluster's registries now; nil: there are none.
	Peers func() (peers.List, error)
	// Self is this node's name among the peers, which is not asked; "" asks all.
	Self string
	// CAFile is PEM of the CAs that sign the peers' certificates.
	CAFile string
	// NodeCAFile counts in the place of CAFile where it is there. It may have a key, too.
	NodeCAFile string
	// AuthFile is a pull secret; its first account may pull from every peer.
	AuthFile string
	// NodeAuthFile counts before AuthFile where it is there: the account that the cluster's controller gives the node.
	NodeAuthFile string
	// Accounts is the wanted.AccountsHash of what the server accepts, for the report; nil: it has none of these.
	Accounts func() string
	// Shared is the hash of what all registries share, as the server works by it, for the report; nil: it says nothing.
	Shared func() string
	// Every is the pause between two looks; 0 is ten seconds.
	Every time.Duration
	// BytesPerSecond bounds what is fetched; 0 is DefaultBytesPerSecond.
	BytesPerSecond int64
	// Grace is how long an image stays that nothing wants; 0 is DefaultGrace. Only time counts during which the replica
	// runs and has a list that its maker renews.
	Grace time.Duration
	// Silence is how long a peer may send nothing; 0 is ten seconds.
	Silence time.Duration
	// Log takes what is fetched and dropped; nil discards it.
	Log *logrus.Entry
}

func (o Options) withDefaults() Options {
	o.Every = cmp.Or(o.Every, defaultEvery)
	o.BytesPerSecond = cmp.Or(o.BytesPerSecond, DefaultBytesPerSecond)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.Silence = cmp.Or(o.Silence, defaultSilence)
	if o.Peers == nil {
		o.Peers = func() (peers.List, error) { return peers.List{}, nil }
	}
	if o.Accounts == nil {
		o.Accounts = func() string { return "" }
	}
	if o.Shared == nil {
		o.Shared = func() string { return "" }
	}
	o.Log = cmp.Or(o.Log, quiet.Log())
	return o
}

// authFile is the one that counts.
func (o Options) authFile() string {
	if _, err := os.Stat(o.NodeAuthFile); err == nil {
		return o.NodeAuthFile
	}
	return o.AuthFile
}

// caFile is the one that counts.
func (o Options) caFile() string {
	if _, err := os.Stat(o.NodeCAFile); err == nil {
		return o.NodeCAFile
	}
	return o.CAFile
}

func (o Options) file(name string) string { return filepath.Join(o.Dir, name) }

// replica is what one run knows between two looks.
type replica struct {
	o     Options
	store *storage.Store
	limit *rate.Limiter
	// list is the last one that could be read.
	list wanted.List
	// known: there is one.
	known bool
	// looked is when the last look began: the monotonic clock counts.
	looked time.Time
	// asked is when peers were last asked for what is attached, and for which list.
	asked     time.Time
	askedList string
	// said is the last report, so that a log has each once.
	said wanted.Report
}

// Run keeps a store filled until ctx ends. A kill at any point loses nothing that the store has answered, and the next
// run goes on in the middle of a blob.
func Run(ctx context.Context, store *storage.Store, o Options) {
	o = o.withDefaults()
	r := &replica{o: o, store: store, looked: time.Now(),
		limit: rate.NewLimiter(rate.Limit(o.BytesPerSecond), copyBytes)}
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			o.Log.WithError(err).Warn("registry could not look after its images, it tries again")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Fill fetches what a store lacks of a list once, with signatures and referrers, drops nothing, and gives what is still
// missing. Options.Dir remembers a blob that was cut short. The error says what attached to an image could not be
// fetched.
func Fill(ctx context.Context, store *storage.Store, l wanted.List, o Options) ([]wanted.Missing, error) {
	o = o.withDefaults()
	list, err := o.Peers()
	if err != nil {
		return nil, err
	}
	f := newFetcher(&replica{o: o, store: store, limit: rate.NewLimiter(rate.Limit(o.BytesPerSecond), copyBytes)}, list)
	defer f.close()
	missing, _ := f.all(ctx, l)
	if err := ctx.Err(); err != nil {
		return missing, err
	}
	return missing, f.attachAll(ctx, l)
}

// look does what there is to do once: fetch, drop, report.
func (r *replica) look(ctx context.Context) error {
	changed, err := r.read()
	problem := ""
	if err != nil {
		r.o.Log.WithError(err).Error("list of wanted images is not usable, the one before stays")
	}
	if errors.Is(err, wanted.ErrNewer) {
		problem = err.Error()
	}
	if !r.known {
		return wanted.WriteReport(r.o.file(wanted.ReportFile), wanted.Report{Accounts: r.o.Accounts(),
			Shared: r.o.Shared(), Problem: cmp.Or(problem, "the registry has no list of wanted images yet: the node's agent "+
				"brings it")})
	}
	list, err := r.o.Peers()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.o.Log.WithError(err).Error("addresses of the other registries are not usable")
	}
	f := newFetcher(r, list)
	defer f.close()
	missing, fetched := f.all(ctx, r.list)
	if ctx.Err() != nil {
		return nil
	}
	if fetched || r.askedList != r.list.Hash() || time.Since(r.asked) > attachedEvery {
		if err := f.attachAll(ctx, r.list); err != nil {
			r.o.Log.WithError(err).Warn("registry does not have all that is attached to its images, it tries again")
		}
		r.asked, r.askedList = time.Now(), r.list.Hash()
	}
	err = r.drop(ctx, changed)
	return errors.Join(err, r.report(missing, problem))
}

// read takes a changed list over and says when it last changed.
func (r *replica) read() (changed time.Time, err error) {
	path := r.o.file(wanted.ListFile)
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return changed, nil
	}
	if err != nil {
		return changed, fmt.Errorf("read list of wanted images: %w", err)
	}
	list, err := wanted.ReadFile(path)
	if err != nil {
		return changed, err
	}
	r.list, r.known = list, true
	return fi.ModTime(), nil
}

// report says what is here. A problem is why the registry does not work by the newest list.
func (r *replica) report(missing []wanted.Missing, problem string) error {
	free, err := r.store.Free()
	if err != nil {
		return fmt.Errorf("report of the registry: %w", err)
	}
	left, err := r.store.Left()
	if err != nil {
		return fmt.Errorf("report of the registry: %w", err)
	}
	out := wanted.NewReport(r.list, missing, free, r.store.Used()-r.store.Reserved())
	out.Problem, out.Accounts, out.Shared = problem, r.o.Accounts(), r.o.Shared()
	out.SetRoom(left)
	if out.Held != r.said.Held || out.List != r.said.List || len(out.Missing) != len(r.said.Missing) {
		log := r.o.Log.WithFields(logrus.Fields{"wanted": out.Wanted, "held": out.Held})
		for i, m := range out.Missing {
			log = log.WithField(fmt.Sprintf("missing_%d", i), m.Image+": "+m.Why)
		}
		log.Info("registry has looked for wanted images")
	}
	r.said = out
	return wanted.WriteReport(r.o.file(wanted.ReportFile), out)
}
