package pull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/ostreerepo"
)

// Defaults of Options.
const (
	// DefaultParallelLayers: each layer keeps one core with unpacking and another with storing busy.
	defaultParallelLayers = 2
	// DefaultStallTimeout: a registry that sends not one byte of a layer for so long counts as unreachable.
	defaultStallTimeout = 2 * time.Minute
)

// The labels of which one must be there for an image to be a bootable OS image. Source: ostree-ext's require_bootable.
const (
	LabelOSTreeBootable = "ostree.bootable"
	LabelBootc          = "containers.bootc"
)

// Options of Import and Inspect; the zero value works on a node.
type Options struct {
	// Root is where etc/containers (registries.conf.d, certs.d) and the auth files are looked up; default "/".
	Root string
	// AuthFile is a containers-auth.json; default: the first of run/ostree, etc/ostree and usr/lib/ostree/auth.json below
	// Root; none: anonymous.
	AuthFile string
	// CertsDir replaces etc/containers/certs.d and etc/docker/certs.d (HOST:PORT/ca.crt inside).
	CertsDir string
	// RegistriesConfDir replaces etc/containers/registries.conf.d.
	RegistriesConfDir string
	// Policies are files in the form of containers-policy.json(5); Inspect refuses an image that one of them does not
	// allow. None: signatures are not looked at.
	Policies []string
	// SkipKeyFiles leaves requirements out whose keys are in files: those are on the nodes.
	SkipKeyFiles bool
	// Architecture the image must have, in Go's words; default: this program's.
	Architecture string
	// AllowUnbootable takes images without the bootable label or without a kernel.
	AllowUnbootable bool
	// Parallel bounds the layers fetched at once; default defaultParallelLayers.
	Parallel int
	// BytesPerSecond bounds what arrives of each layer; 0: no bound.
	BytesPerSecond int64
	// First is the Source of an earlier answer: it is asked before the others. "" keeps the order of registries.conf.
	First string
	// StallTimeout: default defaultStallTimeout.
	StallTimeout time.Duration
	// As names the image in the ref that is written, instead of the source ("docker://host/path@sha256:…").
	As string
	// Transfer counts what arrives; nil: no count.
	Transfer *deploy.Transfer
	// Log receives one line per layer; default: nothing.
	Log *logrus.Entry
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

// withDefaults fills in what the caller left out.
func (o Options) withDefaults() Options {
	o.Root = cmp.Or(o.Root, "/")
	o.Architecture = cmp.Or(o.Architecture, runtime.GOARCH)
	o.StallTimeout = cmp.Or(o.StallTimeout, defaultStallTimeout)
	o.Parallel = cmp.Or(o.Parallel, defaultParallelLayers)
	o.Log = cmp.Or(o.Log, report.NoLog())
	return o
}

// Import fetches the image source ("docker://host/path@sha256:…", "host/path@sha256:…" or "oci:DIR[:ref]") into the
// bare ostree repository repo and gives its commit. Layers are kept under the refs that ostree-ext writes
// (ostree/container/blob/…), the image under ostree/container/image/…; what is there already is not fetched again, so
// that an import that was cut off continues where it was. No ref appears before the digest of its content has been
// verified. Errors are Faults.
func Import(ctx context.Context, repo, source string, o Options) (Imported, error) {
	o = o.withDefaults()
	r := NewStore(repo)
	unlock, err := r.lock()
	if err != nil {
		return Imported{}, err
	}
	defer unlock()
	name := cmp.Or(o.As, canonicalName(source))
	if done, err := r.present(name); err != nil || done.Commit != "" {
		return done, err
	}
	return tryEach(ctx, source, o, func(c candidate) (Imported, error) { return importFrom(ctx, r, c, name, o) })
}

func importFrom(ctx context.Context, r Store, c candidate, name string, o Options) (done Imported,
	err error) {
	f, err := c.fetch(ctx, o.StallTimeout)
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
	o.Transfer.Begin(len(missing), done.BytesFetched)
	if err := importLayers(ctx, objects, f, missing, o); err != nil {
		return Imported{}, err
	}
	done.LayersFetched, done.LayersPresent = len(missing), len(f.layers)-len(missing)
	done.Ref = imageRef(name)
	if done.Commit, err = commitImage(ctx, objects, f, done.Ref, o.AllowUnbootable); err != nil {
		return Imported{}, err
	}
	return done, nil
}

func importLayers(ctx context.Context, objects *ostreerepo.Repository, f *fetched, missing []int,
	o Options) error {
	// One group after the other: the ref of the layer with the commit says that the whole commit is there, and what
	// layers over it bring does not count.
	for _, group := range [][]role{{plainLayer, objectsLayer}, {commitLayer}, {derivedLayer}} {
		of := slices.DeleteFunc(slices.Clone(missing), func(i int) bool { return !slices.Contains(group, f.role(i)) })
		if err := importTogether(ctx, objects, f, of, o); err != nil {
			return err
		}
	}
	return nil
}

func importTogether(ctx context.Context, objects *ostreerepo.Repository, f *fetched, layers []int, o Options) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.Parallel)
	if !f.source.HasThreadSafeGetBlob() {
		group.SetLimit(1)
	}
	for _, i := range layers {
		group.Go(func() error { return importOne(ctx, objects, f, i, o) })
	}
	return group.Wait()
}

func importOne(ctx context.Context, objects *ostreerepo.Repository, f *fetched, i int, o Options) error {
	start := time.Now()
	stats, err := importLayer(ctx, objects, f.source, f.layer(i), o)
	if err != nil {
		return classify(fmt.Sprintf("fetch layer %d of %d, %s", i+1, len(f.layers), f.layers[i].Digest), err)
	}
	o.Transfer.LayerDone()
	o.Log.WithFields(logrus.Fields{"layer": i + 1, "layers": len(f.layers), "bytes": f.layers[i].Size,
		"entries": stats.Entries, "dropped": stats.Dropped, "seconds": time.Since(start).Seconds()}).
		Info("layer is imported")
	return nil
}

// check refuses an image that this node could not boot, before its layers are fetched.
func (f *fetched) check(o Options) error {
	if arch := f.config.Architecture; arch != o.Architecture {
		return &deploy.Fault{Class: deploy.ClassArchitecture, Op: "check image",
			Err:  fmt.Errorf("image is for %q, this node is %q", arch, o.Architecture),
			Next: "build the image for this node's architecture"}
	}
	labels := f.config.Config.Labels
	_, bootable := labels[LabelOSTreeBootable]
	_, bootc := labels[LabelBootc]
	if !bootable && !bootc && !o.AllowUnbootable {
		return &deploy.Fault{Class: deploy.ClassNotBootable, Op: "check image",
			Err:  fmt.Errorf("it has neither of the labels %s and %s", LabelOSTreeBootable, LabelBootc),
			Next: "build it from a bootable OS image"}
	}
	return nil
}
