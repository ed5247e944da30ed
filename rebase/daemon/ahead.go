package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodedisk"
)

// AheadPath is where the agent notes the image that it fetches, or has fetched, before the node is told to go to it;
// below the node's root.
const AheadPath = "/var/lib/dayone/daemon/ahead.json"

const (
	// aheadAttempts is how often a registry that cannot be reached is asked; between two attempts there is aheadPause.
	aheadAttempts = 3
	aheadPause    = 30 * time.Second
	// maxAheadError bounds the text of a failure, in bytes.
	maxAheadError = 500
)

// aheadNote is the file. While neither Fetched nor Error says something, the image is on its way.
type aheadNote struct {
	Image   string `json:"image,omitempty"`
	Fetched bool   `json:"fetched,omitempty"`
	Error   string `json:"error,omitempty"`
}

func (n aheadNote) ended() bool { return n.Fetched || n.Error != "" }

// ahead fetches an image beside the state machine, and only while that is idle: what it does never fails a step.
type ahead struct {
	path string
	// changed asks for a step: there is something to tell.
	changed chan struct{}
	// stop ends the transfer under way and waits for its end; nil: there is none.
	stop     func()
	transfer *deploy.Transfer

	mu   sync.Mutex
	note aheadNote
	read bool
}

func newAhead(root string) *ahead {
	return &ahead{path: filepath.Join(root, AheadPath), changed: make(chan struct{}, 1)}
}

// load gives the note, which another process of the agent may have left. One that cannot be read names nothing that is
// known.
func (h *ahead) load() aheadNote {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.read {
		raw, err := os.ReadFile(h.path)
		if err != nil || json.Unmarshal(raw, &h.note) != nil {
			h.note = aheadNote{}
		}
		h.read = true
	}
	return h.note
}

func (h *ahead) save(n aheadNote) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note, h.read = n, true
	if n == (aheadNote{}) {
		if err := os.Remove(h.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget what is fetched ahead: %w", err)
		}
		return nil
	}
	raw, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("note what is fetched ahead: %w", err)
	}
	return nodedisk.WriteFile(h.path, raw, 0o600)
}

// end stops a transfer; what has come of it stays for the next one.
func (h *ahead) end() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

func (h *ahead) poke() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// progress says how far the transfer under way is; empty: there is none, or nothing is known of it yet.
func (h *ahead) progress() string {
	if h.stop == nil || h.load().ended() {
		return ""
	}
	return progress("Fetching ahead", h.transfer.State())
}

// fetchAhead lets the node fetch the image that its controller names, before it is told to go to it; it answers on the
// node, and drops an image that is no longer wanted. What fails is said and left: the update itself fetches what is
// missing.
func (a *Agent) fetchAhead(ctx context.Context, n node) {
	if n.away {
		return
	}
	if err := a.followAhead(ctx, n.object.Annotations[manifests.AnnotationPrefetch], n.record.CurrentImage); err != nil {
		a.o.Log.WithError(err).Warn("fetching ahead does not get on")
	}
	if err := a.answerAhead(ctx, n); err != nil {
		a.o.Log.WithError(err).Warn("cannot say what is fetched ahead")
	}
}

func (a *Agent) followAhead(ctx context.Context, wanted, current string) error {
	note := a.ahead.load()
	if note.Image != wanted {
		a.ahead.end()
		if note.Image != current { // what the node has come to is its own now, staged or booted
			if err := a.forgetAhead(ctx, note.Image); err != nil {
				return err
			}
		}
		note = aheadNote{Image: wanted}
		if err := a.ahead.save(note); err != nil {
			return err
		}
	}
	if wanted == "" || note.ended() || a.ahead.stop != nil {
		return nil
	}
	image, err := deploy.ParseImage(wanted)
	if err != nil {
		return a.ahead.save(aheadNote{Image: wanted, Error: err.Error()})
	}
	fetcher, can := a.o.Deployer.(deploy.Fetcher)
	if !can {
		return a.ahead.save(aheadNote{Image: wanted,
			Error: "this host's deployer cannot fetch an image without staging it: the image comes with the update"})
	}
	a.beginAhead(ctx, fetcher, image)
	return nil
}

func (a *Agent) forgetAhead(ctx context.Context, name string) error {
	fetcher, can := a.o.Deployer.(deploy.Fetcher)
	image, err := deploy.ParseImage(name)
	if name == "" || !can || err != nil {
		return nil //nolint:nilerr // what is no image was never fetched
	}
	return fetcher.Forget(ctx, image)
}

// beginAhead starts the transfer; it ends by itself, by ahead.end, or with ctx.
func (a *Agent) beginAhead(ctx context.Context, fetcher deploy.Fetcher, image deploy.Image) {
	h := a.ahead
	h.transfer = &deploy.Transfer{}
	a.seen.fetching(h.transfer)
	log := a.o.Log.WithField("image", image.String())
	log.Info("image is fetched ahead of its time")
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	h.stop = func() {
		cancel()
		<-over
	}
	fetched := make(chan error, 1)
	o := deploy.FetchOptions{BytesPerSecond: a.o.AheadBytesPerSecond, Transfer: h.transfer}
	go func() { fetched <- fetchPatiently(ctx, fetcher, image, o) }()
	go func() {
		defer close(over)
		defer cancel()
		tick := time.NewTicker(reportInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				h.poke()
				continue
			case err := <-fetched:
				a.endAhead(ctx, image, err)
			}
			return
		}
	}()
}

// endAhead notes how a transfer ended; one that was stopped has not.
func (a *Agent) endAhead(ctx context.Context, image deploy.Image, err error) {
	note := aheadNote{Image: image.String(), Fetched: err == nil}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return
	default:
		a.o.Log.WithError(err).Warn("image could not be fetched ahead")
		text := err.Error()
		note.Error = text[:min(len(text), maxAheadError)]
	}
	if err := a.ahead.save(note); err != nil {
		a.o.Log.WithError(err).Warn("cannot note what is fetched ahead")
	}
	a.ahead.poke()
}

// fetchPatiently asks a registry that cannot be reached again.
func fetchPatiently(ctx context.Context, fetcher deploy.Fetcher, image deploy.Image, o deploy.FetchOptions) error {
	for attempt := 1; ; attempt++ {
		err := fetcher.Fetch(ctx, image, o)
		class := deploy.ClassOf(err)
		if err == nil || attempt == aheadAttempts || class != deploy.ClassUnreachable && class != deploy.ClassRegistry {
			return err
		}
		timer := time.NewTimer(aheadPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

// answerAhead writes the answer to the node, or takes one away that nobody asks for any more.
func (a *Agent) answerAhead(ctx context.Context, n node) error {
	note := a.ahead.load()
	answers := map[string]string{}
	if asked := n.object.Annotations[manifests.AnnotationPrefetch]; asked != "" && note.Image == asked {
		if note.Fetched {
			answers[manifests.AnnotationPrefetched] = note.Image
		}
		if note.Error != "" {
			answers[manifests.AnnotationPrefetchError] = note.Error
		}
	}
	changes := map[string]*string{}
	for _, key := range []string{manifests.AnnotationPrefetched, manifests.AnnotationPrefetchError} {
		have, there := n.object.Annotations[key]
		switch say, has := answers[key]; {
		case has && have != say:
			changes[key] = &say
		case !has && there:
			changes[key] = nil
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return a.patchAnnotations(ctx, changes)
}
