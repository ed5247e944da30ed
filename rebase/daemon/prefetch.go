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

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/util/wait"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodedisk"
)

// PrefetchPath is where the agent notes the image that it prefetches, or has prefetched; below the node's root.
const PrefetchPath = "/var/lib/dayone/daemon/ahead.json"

const (
	// prefetchAttempts is how often a registry that cannot be reached is asked, with prefetchPause between two attempts.
	prefetchAttempts = 3
	prefetchPause    = 30 * time.Second
	// maxPrefetchError bounds the text of a failure, in bytes.
	maxPrefetchError = 500
)

// prefetchNote is the file. While neither Fetched nor Error says something, the image is on its way.
type prefetchNote struct {
	Image   string `json:"image,omitempty"`
	Fetched bool   `json:"fetched,omitempty"`
	Error   string `json:"error,omitempty"`
}

func (n prefetchNote) ended() bool { return n.Fetched || n.Error != "" }

// prefetcher fetches an image beside the state machine, and only while that is idle: what it does never fails a step.
type prefetcher struct {
	path           string
	deployer       deploy.Deployer
	verify         func(context.Context, deploy.Image) error
	bytesPerSecond int64
	metrics        *metrics
	log            *logrus.Entry
	bell           bell
	// end cancels the transfer under way and waits for its end; nil: there is none.
	end      func()
	transfer *deploy.Transfer

	mu   sync.Mutex
	note prefetchNote
	read bool
}

func newPrefetcher(o Options, m *metrics, b bell) *prefetcher {
	return &prefetcher{path: filepath.Join(o.Root, PrefetchPath), deployer: o.Deployer, verify: o.Verify,
		bytesPerSecond: o.PrefetchBytesPerSecond, metrics: m, log: o.Log, bell: b}
}

// load gives the note, which another process of the agent may have left. One that cannot be read names no image.
func (p *prefetcher) load() prefetchNote {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.read {
		raw, err := os.ReadFile(p.path)
		if err != nil || json.Unmarshal(raw, &p.note) != nil {
			p.note = prefetchNote{}
		}
		p.read = true
	}
	return p.note
}

func (p *prefetcher) save(n prefetchNote) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note, p.read = n, true
	if n == (prefetchNote{}) {
		if err := os.Remove(p.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove note of prefetched image: %w", err)
		}
		return nil
	}
	raw, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("note prefetched image: %w", err)
	}
	return nodedisk.WriteFile(p.path, raw, 0o600)
}

// stop ends a transfer; what has come of it stays for the next one.
func (p *prefetcher) stop() {
	if p.end != nil {
		p.end()
		p.end = nil
	}
}

// progress says how far the transfer under way is; empty: there is none, or its size is not known yet.
func (p *prefetcher) progress() string {
	if p.end == nil || p.load().ended() {
		return ""
	}
	return progress("Prefetching", p.transfer.State())
}

// follow starts fetching the wanted image and drops another one that was fetched; empty: none is wanted. current is the
// image that the node runs or has staged.
func (p *prefetcher) follow(ctx context.Context, wanted, current string) error {
	note := p.load()
	if note.Image != wanted {
		p.stop()
		if note.Image != current { // the node's own image stays
			if err := p.forget(ctx, note.Image); err != nil {
				return err
			}
		}
		note = prefetchNote{Image: wanted}
		if err := p.save(note); err != nil {
			return err
		}
	}
	if wanted == "" || note.ended() || p.end != nil {
		return nil
	}
	image, err := deploy.ParseImage(wanted)
	if err != nil {
		return p.save(prefetchNote{Image: wanted, Error: err.Error()})
	}
	fetcher, can := p.deployer.(deploy.Fetcher)
	if !can {
		return p.save(prefetchNote{Image: wanted,
			Error: "this host's deployer cannot fetch an image without staging it: the image comes with the update"})
	}
	p.start(ctx, fetcher, image)
	return nil
}

func (p *prefetcher) forget(ctx context.Context, name string) error {
	fetcher, can := p.deployer.(deploy.Fetcher)
	image, err := deploy.ParseImage(name)
	if name == "" || !can || err != nil {
		return nil //nolint:nilerr // what is no image was never fetched
	}
	return fetcher.Forget(ctx, image)
}

// start starts the transfer; it ends by itself, by stop, or with ctx.
func (p *prefetcher) start(ctx context.Context, fetcher deploy.Fetcher, image deploy.Image) {
	p.transfer = &deploy.Transfer{}
	p.metrics.prefetches(p.transfer)
	p.log.WithField("image", image.String()).Info("prefetching the image")
	o := deploy.FetchOptions{BytesPerSecond: p.bytesPerSecond, Transfer: p.transfer}
	p.end = background(ctx, func(ctx context.Context) {
		fetched := make(chan error, 1)
		go func() { fetched <- p.fetchPatiently(ctx, fetcher, image, o) }()
		tick := time.NewTicker(reportInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.bell.ring()
				continue
			case err := <-fetched:
				if err == nil || ctx.Err() == nil { // one that was stopped goes on later
					p.finish(image, err)
				}
			}
			return
		}
	})
}

// finish notes how a transfer ended.
func (p *prefetcher) finish(image deploy.Image, failure error) {
	note := prefetchNote{Image: image.String(), Fetched: failure == nil}
	if failure != nil {
		p.log.WithError(failure).Warn("could not prefetch the image")
		text := failure.Error()
		note.Error = text[:min(len(text), maxPrefetchError)]
	}
	if err := p.save(note); err != nil {
		p.log.WithError(err).Warn("cannot note the prefetched image")
	}
	p.bell.ring()
}

// fetchPatiently asks a registry that cannot be reached again. What the node's policy does not allow is not fetched.
func (p *prefetcher) fetchPatiently(ctx context.Context, fetcher deploy.Fetcher, image deploy.Image,
	o deploy.FetchOptions) error {
	var last error
	_ = wait.ExponentialBackoffWithContext(ctx, wait.Backoff{Duration: prefetchPause, Steps: prefetchAttempts},
		func(ctx context.Context) (bool, error) {
			if last = p.verify(ctx, image); last == nil {
				last = fetcher.Fetch(ctx, image, o)
			}
			class := deploy.ClassOf(last)
			return last == nil || class != deploy.ClassUnreachable && class != deploy.ClassRegistry, nil
		}) // last says more
	return last
}

// answer gives the node's annotations that report how the prefetch of the asked image has ended. They are empty for
// another image, and while it is under way.
func (p *prefetcher) answer(asked string) map[string]string {
	words := map[string]string{manifests.AnnotationPrefetched: "", manifests.AnnotationPrefetchError: ""}
	note := p.load()
	if asked == "" || note.Image != asked {
		return words
	}
	words[manifests.AnnotationPrefetchError] = note.Error
	if note.Fetched {
		words[manifests.AnnotationPrefetched] = note.Image
	}
	return words
}
