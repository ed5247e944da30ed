package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry"
)

const (
	// saveInterval is how often what is only seen is written. What a node reports is written before it gets its answer.
	saveInterval = time.Second
	// reportBurst and reportInterval bound the reports of one address: a node has about ten in its life, and one for each
	// attempt that fails.
	reportBurst    = 20
	reportInterval = 500 * time.Millisecond
)

// Options of a Tracker. StateDir is required.
type Options struct {
	StateDir string
	// Pools are the pools by the path of the repository from which their nodes pull.
	Pools map[string]string
	// ByMCO says that MCO's own first boot is at work on the nodes: they report nothing.
	ByMCO bool
	// Own are addresses of this host; what they do is no node's.
	Own []string
	// Scrub takes secrets out of what nodes report. Default: nothing.
	Scrub func(string) string
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	Log *logrus.Entry
}

// Tracker keeps the table of one bootstrap host. It is safe for concurrent use.
type Tracker struct {
	o       Options
	mu      sync.Mutex
	table   Table
	images  map[string]int64 // bytes by digest of a manifest
	reports map[string]allowance
	dirty   bool
	writing sync.Mutex // of two writes the later one stays
}

type allowance struct {
	left float64
	at   time.Time
}

// New goes on from the table that an earlier process left.
func New(o Options) *Tracker {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Scrub == nil {
		o.Scrub = func(s string) string { return s }
	}
	t := &Tracker{o: o, images: map[string]int64{}, reports: map[string]allowance{}}
	rows, err := Read(o.StateDir)
	if err != nil {
		o.Log.WithError(err).Warn("what was known of the nodes is lost; they are counted anew")
	}
	t.table.rows = map[string]Row{}
	for _, r := range rows {
		t.table.rows[r.Address] = r
	}
	return t
}

// Run writes what changes until ctx ends.
func (t *Tracker) Run(ctx context.Context) {
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			t.flush()
			return
		case <-tick.C:
			t.flush()
		}
	}
}

func (t *Tracker) flush() {
	if err := t.save(); err != nil {
		t.o.Log.WithError(err).Warn("state of the nodes is not written; dayone status shows an older one")
	}
}

// save writes the table where it has changed.
func (t *Tracker) save() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	t.mu.Lock()
	if !t.dirty {
		t.mu.Unlock()
		return nil
	}
	s := stored{Version: 1, Nodes: t.table.Rows(), Left: t.table.left}
	t.dirty = false
	t.mu.Unlock()
	raw, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = renameio.WriteFile(filepath.Join(t.o.StateDir, File), append(raw, '\n'), 0o600)
	}
	if err != nil {
		t.mu.Lock()
		t.dirty = true
		t.mu.Unlock()
		return fmt.Errorf("write nodes: %w", err)
	}
	return nil
}

// own says that a client is no node.
func (t *Tracker) own(address string) bool {
	if slices.Contains(t.o.Own, address) {
		return true
	}
	return address == ""
}

func (t *Tracker) change(address string, apply func(at time.Time, r Row) Row) {
	address = plain(address)
	if t.own(address) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.apply(address, apply)
}

// apply is change with the lock held, for any key.
func (t *Tracker) apply(key string, apply func(at time.Time, r Row) Row) {
	at := t.o.Now().UTC()
	if t.table.change(key, at, func(r Row) Row {
		r.ByMCO = t.o.ByMCO
		return apply(at, r)
	}) {
		t.dirty = true
	}
}

// Config is a request for a pool's config, as the config server answers it.
func (t *Tracker) Config(address, pool, refused string) {
	t.change(address, func(at time.Time, r Row) Row { return r.asked(at, bounded(pool), bounded(t.o.Scrub(refused))) })
}

// Pulled is what the registry sends to an account that pulls.
func (t *Tracker) Pulled(p registry.Pull) {
	if p.Manifest == nil {
		t.change(p.Client, func(at time.Time, r Row) Row { return r.got(at, p.Bytes) })
		return
	}
	total, known := t.size(p.Digest)
	if !known {
		if total = imageSize(p.Manifest); total == 0 {
			return // an index, or an artifact without layers
		}
		t.mu.Lock()
		if len(t.images) < maxNodes {
			t.images[p.Digest] = total
		}
		t.mu.Unlock()
	}
	t.change(p.Client, func(at time.Time, r Row) Row {
		return r.wants(at, t.o.Pools[p.Repository], p.Digest, total)
	})
}

func (t *Tracker) size(digest string) (int64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.images[digest]
	return n, ok
}

// imageSize adds up what an image's manifest names.
func imageSize(manifest []byte) int64 {
	type blob struct {
		Size int64 `json:"size"`
	}
	var m struct {
		Config blob   `json:"config"`
		Layers []blob `json:"layers"`
	}
	if json.Unmarshal(manifest, &m) != nil || len(m.Layers) == 0 {
		return 0
	}
	sum := m.Config.Size
	for _, l := range m.Layers {
		sum += l.Size
	}
	return max(0, sum)
}

// ServeHTTP takes a node's report. The registry has checked the account: it is the one with which nodes pull.
func (t *Tracker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	address = plain(address)
	if !t.allowed(address) {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many reports from this address", http.StatusTooManyRequests)
		return
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, firstboot.MaxReport))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		http.Error(w, "the report is too large", http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		http.Error(w, "the report was cut off", http.StatusBadRequest)
		return
	}
	report, err := firstboot.ParseReport(raw)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	report.Message = t.o.Scrub(report.Message)
	t.change(address, func(at time.Time, r Row) Row { return r.reported(at, report) })
	if err := t.save(); err != nil {
		t.o.Log.WithError(err).Warn("a node's report is not written")
		http.Error(w, "the report is not kept", http.StatusInsufficientStorage)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// allowed is a leaky bucket per address.
func (t *Tracker) allowed(address string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.o.Now()
	a, ok := t.reports[address]
	if !ok {
		if len(t.reports) >= maxNodes {
			return false
		}
		a = allowance{left: reportBurst, at: now}
	}
	a.left = min(reportBurst, a.left+float64(now.Sub(a.at))/float64(reportInterval))
	a.at = now
	ok = a.left >= 1
	if ok {
		a.left--
	}
	t.reports[address] = a
	return ok
}

// plain is an address without port and zone, IPv4 in its own form.
func plain(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	address, _, _ = strings.Cut(address, "%")
	if ip := net.ParseIP(address); ip != nil {
		return ip.String()
	}
	return ""
}

// maxField bounds what a client can put into a row, in bytes.
const maxField = 300

func bounded(s string) string {
	return strings.ToValidUTF8(firstboot.OneLine(s)[:min(len(firstboot.OneLine(s)), maxField)], "")
}
