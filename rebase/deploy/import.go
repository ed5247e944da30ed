package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"dayone.dev/dayone/rebase/deploy/bare"
)

// Defaults of ImportOptions.
const (
	// DefaultParallelLayers: each layer keeps one core with unpacking and another with storing busy.
	DefaultParallelLayers = 2
	// DefaultStallTimeout: a registry that sends not one byte of a layer for so long counts as unreachable.
	DefaultStallTimeout = 2 * time.Minute
)

// The labels of which one must be there for an image to be a bootable OS image. Source: ostree-ext's require_bootable.
const (
	LabelOSTreeBootable = "ostree.bootable"
	LabelBootc          = "containers.bootc"
)

// ImportOptions tune Import and Inspect; the zero value works on a node.
type ImportOptions struct {
	// Root is where etc/containers (registries.conf.d, certs.d) and the auth files are looked up; default "/".
	Root string
	// AuthFile is a containers-auth.json; default: the first of run/ostree, etc/ostree and usr/lib/ostree/auth.json below
	// Root; none: anonymous.
	AuthFile string
	// CertsDir replaces etc/containers/certs.d and etc/docker/certs.d (HOST:PORT/ca.crt inside).
	CertsDir string
	// RegistriesConfDir replaces etc/containers/registries.conf.d.
	RegistriesConfDir string
	// PolicyFile is a containers-policy.json that Inspect applies to a registry's image; empty: signatures are not looked
	// at.
	PolicyFile string
	// Architecture the image must have, in Go's words; default: this program's.
	Architecture string
	// AllowUnbootable takes images without the bootable label or without a kernel.
	AllowUnbootable bool
	// Parallel bounds the layers fetched at once; default DefaultParallelLayers.
	Parallel int
	// BytesPerSecond bounds what comes of each layer; 0: no bound.
	BytesPerSecond int64
	// StallTimeout: default DefaultStallTimeout.
	StallTimeout time.Duration
	// As names the image in the ref that is written, instead of the source ("docker://host/path@sha256:…").
	As string
	// Transfer counts what comes; nil: nobody wants to know.
	Transfer *Transfer
	// Log receives one line per layer; default: nothing.
	Log *logrus.Entry
	// beforeWriting is asked when the image is known and before anything is written; its error ends the import.
	beforeWriting func() error
}

// Imported says what Import did.
type Imported struct {
	Commit         string        // ostree commit of the whole image
	Ref            string        // ref that names it
	ManifestDigest digest.Digest // of the image manifest (of this architecture's, when the source is an index)
	Labels         map[string]string
	Source         string // where it came from: a mirror or the registry itself; "" when it was there already
	LayersFetched  int
	LayersPresent  int
	BytesFetched   int64 // compressed, of the layers fetched
	Reused         bool  // the image was there already; nothing was asked of the registry
}

func (o ImportOptions) root() string {
	if o.Root == "" {
		return "/"
	}
	return o.Root
}

func (o ImportOptions) architecture() string {
	if o.Architecture == "" {
		return runtime.GOARCH
	}
	return o.Architecture
}

func (o ImportOptions) log() *logrus.Entry {
	if o.Log != nil {
		return o.Log
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	return logrus.NewEntry(quiet)
}

// Import brings the image source ("docker://host/path@sha256:…", "host/path@sha256:…" or "oci:DIR[:ref]") into the bare
// ostree repository repo and gives its commit. Layers are kept under the refs that ostree-ext writes
// (ostree/container/blob/…), the image under ostree/container/image/…; what is there already is not fetched again, so
// that a broken import goes on where it was. No ref appears before the digest of its content has been verified. Errors
// are Faults.
func Import(ctx context.Context, repo, source string, o ImportOptions) (Imported, error) {
	r := repository{path: repo}
	unlock, err := r.lock()
	if err != nil {
		return Imported{}, err
	}
	defer unlock()
	name := o.As
	if name == "" {
		name = canonicalName(source)
	}
	if done, err := r.present(name); err != nil || done.Commit != "" {
		return done, err
	}
	all, err := candidates(source, o)
	if err != nil {
		return Imported{}, &Fault{Class: ClassConfig, Op: "find image " + source, Err: err}
	}
	var failures []error
	for _, c := range all {
		done, err := importFrom(ctx, r, c, name, o)
		if err == nil {
			return done, nil
		}
		failures = append(failures, err)
		if !worthAnotherRegistry(ClassOf(err)) || ctx.Err() != nil {
			break
		}
		o.log().WithError(err).WithField("source", c.name).Debug("image is not to be had here")
	}
	return Imported{}, firstOf(failures)
}

// firstOf gives the failures of all sources with the class of the first: the mirror configured for this image tells
// more than the registry behind it, which may not exist yet.
func firstOf(failures []error) error {
	if len(failures) == 1 {
		return failures[0]
	}
	var f *Fault
	if !errors.As(failures[0], &f) {
		return errors.Join(failures...)
	}
	text := failures[0].Error()
	for _, other := range failures[1:] {
		text += "; also: " + other.Error()
	}
	return &Fault{Class: f.Class, Op: "fetch image", Err: joined{text, failures}}
}

type joined struct {
	text string
	errs []error
}

func (j joined) Error() string   { return j.text }
func (j joined) Unwrap() []error { return j.errs }

func worthAnotherRegistry(c Class) bool {
	switch c {
	case ClassUnreachable, ClassUnauthorized, ClassForbidden, ClassNotFound, ClassRegistry, ClassUntrusted, ClassExpired,
		ClassCorrupted:
		return true
	default:
		return false
	}
}

func importFrom(ctx context.Context, r repository, c candidate, name string, o ImportOptions) (done Imported,
	err error) {
	f, err := c.fetch(ctx)
	if err != nil {
		return Imported{}, err
	}
	defer func() { err = errors.Join(err, f.source.Close()) }()
	if err := f.check(o); err != nil {
		return Imported{}, err
	}
	done = Imported{ManifestDigest: f.manifestDigest, Labels: f.config.Config.Labels, Source: c.name}
	missing, err := r.missingLayers(f.layers)
	if err != nil {
		return Imported{}, err
	}
	if err := r.checkSpace(f, missing); err != nil {
		return Imported{}, err
	}
	if o.beforeWriting != nil {
		if err := o.beforeWriting(); err != nil {
			return Imported{}, err
		}
	}
	if err := r.removeLeftovers(); err != nil {
		return Imported{}, err
	}
	objects, err := r.open()
	if err != nil {
		return Imported{}, err
	}
	for _, i := range missing {
		done.BytesFetched += max(f.layers[i].Size, 0)
	}
	o.Transfer.begin(len(missing), done.BytesFetched)
	if err := importLayers(ctx, r, objects, f, missing, o); err != nil {
		return Imported{}, err
	}
	done.LayersFetched, done.LayersPresent = len(missing), len(f.layers)-len(missing)
	done.Ref = imageRef(name)
	if done.Commit, err = r.commitImage(ctx, objects, f, done.Ref, o); err != nil {
		return Imported{}, err
	}
	return done, nil
}

func importLayers(ctx context.Context, r repository, objects *bare.Repository, f *fetched, missing []int,
	o ImportOptions) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.parallel(f.source.HasThreadSafeGetBlob()))
	for _, i := range missing {
		group.Go(func() error {
			start := time.Now()
			stats, err := r.importLayer(ctx, objects, f.source, layerSource{f.layers[i], f.config.RootFS.DiffIDs[i]}, o)
			if err != nil {
				return classify(fmt.Sprintf("fetch layer %d of %d, %s", i+1, len(f.layers), f.layers[i].Digest), err)
			}
			o.Transfer.layerDone()
			o.log().WithFields(logrus.Fields{"layer": i + 1, "layers": len(f.layers), "bytes": f.layers[i].Size,
				"entries": stats.Entries, "dropped": stats.Dropped, "seconds": time.Since(start).Seconds()}).
				Info("layer is imported")
			return nil
		})
	}
	return group.Wait()
}

func (o ImportOptions) parallel(threadSafe bool) int {
	switch {
	case !threadSafe:
		return 1
	case o.Parallel > 0:
		return o.Parallel
	default:
		return DefaultParallelLayers
	}
}

// check refuses an image that this node could not boot, before its layers are fetched.
func (f *fetched) check(o ImportOptions) error {
	if arch := f.config.Architecture; arch != o.architecture() {
		return &Fault{Class: ClassArchitecture, Op: "check image", Err: fmt.Errorf("image is for %q, this node is %q", arch,
			o.architecture()),
			Next: "build the image for this node's architecture"}
	}
	labels := f.config.Config.Labels
	_, bootable := labels[LabelOSTreeBootable]
	_, bootc := labels[LabelBootc]
	if !bootable && !bootc && !o.AllowUnbootable {
		return &Fault{Class: ClassNotBootable, Op: "check image", Err: fmt.Errorf("it has neither of the labels %s and %s",
			LabelOSTreeBootable, LabelBootc),
			Next: "build it from a bootable OS image"}
	}
	return nil
}
