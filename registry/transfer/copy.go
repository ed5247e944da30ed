package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/containers/image/v5/copy"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/registry/quiet"
)

const (
	// defaultParallel is how many blobs are copied at once: what containers/image itself takes.
	defaultParallel = 6
	// defaultAttempts is how often a copy is tried when connections fail or a registry answers 5xx.
	defaultAttempts = 5
	// defaultBackoff is the pause before the second attempt; it doubles up to maxBackoff.
	defaultBackoff = time.Second
	// defaultSilence is far beyond what registries need to put a large blob together, when nothing moves either.
	defaultSilence = 10 * time.Minute

	maxBackoff       = 30 * time.Second
	progressInterval = 200 * time.Millisecond
)

// Progress is the state of one blob's copy.
type Progress struct {
	Digest digest.Digest
	// Done bytes of Size; Size is -1 when the source does not say it.
	Done, Size int64
	// Finished is set in the last report of a blob, Skipped when the destination had it already.
	Finished, Skipped bool
}

// Options of a copy. The zero value copies the whole image or index without reports.
type Options struct {
	// Platform is OS/ARCH[/VARIANT]: of an index only that image is copied. "" copies the index with all its images.
	Platform string
	// Parallel blobs at once; 0 is defaultParallel.
	Parallel int
	// Attempts in all; 0 is defaultAttempts, 1 never retries.
	Attempts int
	// Backoff before the second attempt; 0 is defaultBackoff.
	Backoff time.Duration
	// Silence is how long an attempt may go without a byte before it counts as failed; 0 is defaultSilence.
	Silence time.Duration
	// CacheDir keeps what is known about which repository has which blob, for mounts across runs; "" keeps nothing.
	CacheDir string
	// TempDir holds configuration and large intermediate files; "" is os.TempDir.
	TempDir string
	// OnProgress is called from one goroutine; it must not block for long.
	OnProgress func(Progress)
	// Log receives a line per retry; nil discards it.
	Log *logrus.Entry
	// signatures are copied, too.
	signatures bool
}

// Result says what the destination holds now.
type Result struct {
	Digest    digest.Digest `json:"digest"`
	MediaType string        `json:"mediaType"`
	// Bytes that were transferred, over all attempts.
	Bytes int64 `json:"bytes"`
	// BlobsCopied were transferred, BlobsSkipped were at the destination already or mounted there.
	BlobsCopied  int `json:"blobsCopied"`
	BlobsSkipped int `json:"blobsSkipped"`
	Attempts     int `json:"attempts"`
}

// Copy copies an image by digest: manifests are stored as they are, every blob is verified against its digest on the
// way. Blobs that an interrupted copy brought over are not copied again. Connection errors and 5xx answers are retried
// with backoff, nothing else is.
func Copy(ctx context.Context, src, dst Endpoint, o Options) (res Result, err error) {
	if strings.HasPrefix(dst.Reference, "docker-archive:") {
		return res, fmt.Errorf("copy to %s: a docker archive cannot keep digests; use oci:DIRECTORY", dst.Reference)
	}
	c, err := newCopier(src, dst, o)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	what := fmt.Sprintf("copy %s to %s", src.Reference, dst.Reference)
	m, err := retry(ctx, c.o, what, func() ([]byte, error) {
		res.Attempts++
		return c.once(ctx, &res)
	})
	if err != nil {
		return res, err
	}
	return c.verified(m, res)
}

// retry tries work again while it fails by what may go away by itself, and says what failed.
func retry[T any](ctx context.Context, o Options, what string, work func() (T, error)) (T, error) {
	var failure error
	attempts := 0
	attempt := func() (T, error) {
		attempts++
		out, err := work()
		if err == nil {
			return out, nil
		}
		failure = advise(fmt.Errorf("%s: %w", what, err))
		if !Temporary(failure) || ctx.Err() != nil {
			return out, backoff.Permanent(failure)
		}
		return out, failure
	}
	pauses := &backoff.ExponentialBackOff{InitialInterval: o.Backoff, Multiplier: 2, MaxInterval: maxBackoff}
	out, err := backoff.Retry(ctx, attempt, backoff.WithBackOff(pauses),
		backoff.WithMaxTries(uint(o.Attempts)), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, wait time.Duration) {
			o.Log.WithFields(logrus.Fields{"attempt": attempts, "wait": wait, "error": err}).
				Warn("copy of image failed, retrying")
		}))
	if err != nil {
		return out, errors.Join(failure, ctx.Err())
	}
	return out, nil
}

type copier struct {
	o        Options
	scratch  *scratch
	policy   *signature.PolicyContext
	src, dst types.ImageReference
	opts     copy.Options

	dstEndpoint Endpoint
}

func newCopier(src, dst Endpoint, o Options) (c *copier, err error) {
	c = &copier{o: o.withDefaults(), dstEndpoint: dst}
	if c.src, err = src.parse(); err != nil {
		return nil, err
	}
	if c.dst, err = dst.parse(); err != nil {
		return nil, err
	}
	if c.scratch, err = newScratch(o.TempDir); err != nil {
		return nil, err
	}
	made := c // what returns an error returns nil for c
	defer func() {
		if err != nil {
			err = errors.Join(err, made.close())
		}
	}()
	srcSys, err := c.scratch.system(src, "source", o.CacheDir)
	if err != nil {
		return nil, err
	}
	dstSys, err := c.scratch.system(dst, "destination", o.CacheDir)
	if err != nil {
		return nil, err
	}
	c.opts = copy.Options{
		SourceCtx: srcSys, DestinationCtx: dstSys, PreserveDigests: true, RemoveSignatures: !o.signatures,
		ImageListSelection: copy.CopyAllImages,
		// A manifest at the destination does not mean that its blobs are there: each is looked for, and a lost one copied.
		MaxParallelDownloads: uint(c.o.Parallel), ReportWriter: io.Discard, ProgressInterval: progressInterval,
	}
	if o.Platform != "" {
		c.opts.ImageListSelection = copy.CopySystemImage
		if err := setPlatform(srcSys, o.Platform); err != nil {
			return nil, err
		}
	}
	// Signatures are the admin's policy on the nodes; here the digest is what is trusted.
	c.policy, err = signature.NewPolicyContext(
		&signature.Policy{Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()}})
	if err != nil {
		return nil, fmt.Errorf("make copy policy: %w", err)
	}
	return c, nil
}

func (o Options) withDefaults() Options {
	if o.Parallel <= 0 {
		o.Parallel = defaultParallel
	}
	if o.Attempts <= 0 {
		o.Attempts = defaultAttempts
	}
	if o.Backoff <= 0 {
		o.Backoff = defaultBackoff
	}
	if o.Silence <= 0 {
		o.Silence = defaultSilence
	}
	o.Log = cmp.Or(o.Log, quiet.Log())
	return o
}

func setPlatform(sys *types.SystemContext, platform string) error {
	parts := strings.Split(platform, "/")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
		return fmt.Errorf("parse platform %q: want OS/ARCH or OS/ARCH/VARIANT, for example linux/arm64", platform)
	}
	sys.OSChoice, sys.ArchitectureChoice = parts[0], parts[1]
	if len(parts) == 3 {
		sys.VariantChoice = parts[2]
	}
	return nil
}

func (c *copier) close() error {
	var err error
	if c.policy != nil {
		err = c.policy.Destroy()
	}
	return errors.Join(err, c.scratch.remove())
}

func (c *copier) once(ctx context.Context, res *Result) ([]byte, error) {
	ctx, heard, stop := listen(ctx, c.o.Silence)
	defer stop()
	if err := c.mountBlobs(ctx); err != nil { // the copy below says what is wrong, or does without
		c.o.Log.WithField("image", c.dst.DockerReference()).WithError(err).Debug("blobs were not mounted")
	}
	opts := c.opts
	events := make(chan types.ProgressProperties)
	opts.Progress = events
	var done sync.WaitGroup
	done.Go(func() {
		for e := range events {
			heard()
			c.count(e, res)
		}
	})
	src := types.ImageReference(exact{c.src})
	if c.o.signatures {
		src = c.src // the library lets nobody pass on sigstore's signatures; the destination has the blobs
	}
	m, err := copy.Image(ctx, c.policy, c.dst, src, &opts)
	close(events)
	done.Wait()
	return m, orSilence(ctx, err)
}

func (c *copier) count(e types.ProgressProperties, res *Result) {
	p := Progress{Digest: e.Artifact.Digest, Size: e.Artifact.Size, Done: int64(e.Offset)}
	switch e.Event {
	case types.ProgressEventRead:
		res.Bytes += int64(e.OffsetUpdate)
	case types.ProgressEventDone:
		res.Bytes += int64(e.OffsetUpdate)
		if p.Size < 0 || p.Done >= p.Size { // the library says "done" of a blob that failed, too
			res.BlobsCopied++
			p.Finished = true
		}
	case types.ProgressEventSkipped:
		res.BlobsSkipped++
		p.Finished, p.Skipped, p.Done = true, true, e.Artifact.Size
	}
	if c.o.OnProgress != nil {
		c.o.OnProgress(p)
	}
}

// verified compares what was stored with the digest that the caller named.
func (c *copier) verified(m []byte, res Result) (Result, error) {
	d, err := manifest.Digest(m)
	if err != nil {
		return res, fmt.Errorf("read copied manifest: %w", err)
	}
	res.Digest, res.MediaType = d, manifest.GuessMIMEType(m)
	for _, ref := range []types.ImageReference{c.src, c.dst} {
		named := ref.DockerReference()
		if named == nil || c.o.Platform != "" && ref == c.src {
			continue
		}
		if want, ok := named.(reference.Digested); ok && want.Digest() != d {
			return res, fmt.Errorf("copy to %s: the stored digest is %s, not %s", c.dst.StringWithinTransport(), d,
				want.Digest())
		}
	}
	return res, nil
}
