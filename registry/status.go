package registry

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"dayone.dev/dayone/registry/storage"
)

// Status is how a running server is.
type Status struct {
	ReadOnly bool `json:"readOnly"`
	// Uploads under way, also those whose client is silent.
	Uploads int `json:"uploads"`
	// StoredBytes of blobs and uploads, and ReservedBytes that uploads hold beside.
	StoredBytes   int64 `json:"storedBytes"`
	ReservedBytes int64 `json:"reservedBytes"`
	// MaxBytes may be stored, 0 is no limit; of FreeBytes of the disk MinFreeBytes are kept.
	MaxBytes     int64 `json:"maxBytes"`
	FreeBytes    int64 `json:"freeBytes"`
	MinFreeBytes int64 `json:"minFreeBytes"`
	// LastCollection and LastScrub are nil before the first one; the collection is that of this process.
	LastCollection *Collection `json:"lastCollection"`
	LastScrub      *Scrub      `json:"lastScrub"`
	// Scrub is how far a scrub is, nil while none runs.
	Scrub *ScrubProgress `json:"scrub"`
	// Upstream is nil unless the server is a pull-through registry.
	Upstream *UpstreamStatus `json:"upstream,omitempty"`
}

// UpstreamStatus is how the upstream of a pull-through registry answered since the server started.
type UpstreamStatus struct {
	// Name is HOST[:PORT][/PREFIX].
	Name string `json:"name"`
	// LastAnswer is when it last answered a request with what it has, or that it lacks it; zero before that.
	LastAnswer time.Time `json:"lastAnswer,omitzero"`
	// Fault is why the last request failed, empty if it did not, and FaultAt when one last failed.
	Fault   string    `json:"fault,omitempty"`
	FaultAt time.Time `json:"faultAt,omitzero"`
	// Fetches are the blobs on their way.
	Fetches int `json:"fetches"`
}

// Collection is what the last garbage collection did.
type Collection struct {
	At      time.Time `json:"at"`
	Kept    int       `json:"kept"`
	Removed int       `json:"removed"`
	Bytes   int64     `json:"bytes"`
	Damaged []string  `json:"damaged"`
	Error   string    `json:"error,omitempty"`
}

// ScrubProgress has the bytes that were read of those that were stored at the beginning.
type ScrubProgress struct {
	Since     time.Time `json:"since"`
	ReadBytes int64     `json:"readBytes"`
	OfBytes   int64     `json:"ofBytes"`
}

// house is what a running server knows of its housekeeping.
type house struct {
	maxBytes, minFree int64

	mu        sync.Mutex
	collected *Collection
	scrubbed  *Scrub
	scrubbing []*scrubRun // the schedule's and commands', oldest first
}

type scrubRun struct {
	since time.Time
	of    int64
	read  atomic.Int64
}

func (h *house) noteCollection(r storage.CollectReport, err error) {
	c := &Collection{At: time.Now().UTC(), Kept: r.Kept, Removed: len(r.Removed), Bytes: r.Bytes, Damaged: r.Damaged}
	if err != nil {
		c.Error = err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.collected = c
}

func (h *house) noteScrub(last *Scrub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.scrubbed = last
}

func (h *house) lastCollection() *Collection {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.collected
}

func (h *house) last() *Scrub {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.scrubbed
}

// beginScrub notes a scrub until done is called; read counts what it reads.
func (h *house) beginScrub(since time.Time, of int64) (read func(n int), done func()) {
	run := &scrubRun{since: since.UTC(), of: of}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.scrubbing = append(h.scrubbing, run)
	return func(n int) { run.read.Add(int64(n)) }, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.scrubbing = slices.DeleteFunc(h.scrubbing, func(r *scrubRun) bool { return r == run })
	}
}

// progress is that of the oldest scrub that runs, nil without one.
func (h *house) progress() *ScrubProgress {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.scrubbing) == 0 {
		return nil
	}
	run := h.scrubbing[0]
	return &ScrubProgress{Since: run.since, ReadBytes: run.read.Load(), OfBytes: run.of}
}

// readStatus adds what the store knows.
func readStatus(s *service) (Status, error) {
	free, err := s.store.Free()
	if err != nil {
		return Status{}, fmt.Errorf("read status: %w", err)
	}
	reserved := s.store.Reserved()
	out := Status{ReadOnly: s.readOnly, Uploads: s.store.Uploads(), StoredBytes: s.store.Used() - reserved,
		ReservedBytes: reserved, MaxBytes: s.house.maxBytes, FreeBytes: free, MinFreeBytes: s.house.minFree}
	out.LastCollection, out.LastScrub, out.Scrub = s.house.lastCollection(), s.house.last(), s.house.progress()
	out.Upstream = s.through.status()
	return out, nil
}
