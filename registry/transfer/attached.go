package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/manifest"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
)

// cosignSuffixes are of the tags under which cosign keeps what it attaches to an image: sha256-HEX.sig and so on.
// Nodes look for signatures there.
var cosignSuffixes = [...]string{".sig", ".att", ".sbom"}

// Attach copies what is attached to an image that both have: its referrers with what refers to them, and signatures,
// attestations and bills of materials under cosign's tags; of an index those of its images, too. It returns how many
// were found. A tag at the destination that names more than that of the source is left as it is. Where the destination
// has no referrers, they get the specification's tag for them. The source may be a layout, as that of a release. A
// layout as the destination gets nothing: who names it without a REF wants the one image in it. Archives have none.
func Attach(ctx context.Context, src, dst Endpoint, image digest.Digest, o Options) (found int, err error) {
	a := attacher{o: o.withDefaults(), src: src, dst: dst}
	ref, err := src.parse()
	if err == nil {
		a.to, err = namedBy(dst)
	}
	if err != nil || ref.Transport().Name() == "docker-archive" || a.to == nil {
		return 0, err
	}
	what := fmt.Sprintf("copy what is attached to %s from %s", image, src.Reference)
	return retry(ctx, a.o, what, func() (int, error) {
		listening, heard, stop := listen(ctx, a.o.Silence)
		defer stop()
		found, err := a.once(listening, image, heard)
		return found, orSilence(listening, err)
	})
}

// namedBy is the repository of an endpoint, nil when it is no registry.
func namedBy(e Endpoint) (reference.Named, error) {
	ref, err := e.parse()
	if err != nil || ref.Transport().Name() != "docker" {
		return nil, err
	}
	return reference.TrimNamed(ref.DockerReference()), nil
}

// attacher is one run of Attach.
type attacher struct {
	o        Options
	src, dst Endpoint
	to       reference.Named
}

func (a attacher) once(ctx context.Context, image digest.Digest, heard func()) (found int, err error) {
	in, closeIn, err := a.openSource(ctx)
	if err != nil {
		return 0, err
	}
	defer closeIn()
	trees, tags, found, err := findAttached(ctx, in, image)
	if err != nil || found == 0 {
		return 0, err
	}
	out, closeOut, err := openRepository(ctx, a.dst, a.to, transport.PushScope)
	if err != nil {
		return 0, err
	}
	defer closeOut()
	opts := oras.CopyGraphOptions{Concurrency: a.o.Parallel, PostCopy: func(context.Context, v1.Descriptor) error {
		heard()
		return nil
	}}
	for _, subject := range trees {
		if err := oras.ExtendedCopyGraph(ctx, in, out, subject,
			oras.ExtendedCopyGraphOptions{CopyGraphOptions: opts}); err != nil {
			return 0, err
		}
	}
	for tag, d := range tags {
		if err := a.copyTag(ctx, in, out, tag, d, opts); err != nil {
			return 0, err
		}
	}
	return found, nil
}

// findAttached lists those of an image and an index's images that have referrers, the tags of cosign that there are,
// and how many referrers and tags that makes.
func findAttached(ctx context.Context, in oras.ReadOnlyGraphTarget, image digest.Digest) (trees []v1.Descriptor,
	tags map[string]v1.Descriptor, found int, err error) {
	subjects, err := subjectsOf(ctx, in, image)
	if err != nil {
		return nil, nil, 0, err
	}
	tags = map[string]v1.Descriptor{}
	for _, subject := range subjects {
		direct, err := in.Predecessors(ctx, subject)
		if err != nil {
			return nil, nil, 0, fmt.Errorf("list referrers: %w", err)
		}
		if found += len(direct); len(direct) > 0 {
			trees = append(trees, subject)
		}
		for _, suffix := range cosignSuffixes {
			tag := string(subject.Digest.Algorithm()) + "-" + subject.Digest.Encoded() + suffix
			d, err := in.Resolve(ctx, tag)
			if errors.Is(err, errdef.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, nil, 0, fmt.Errorf("find tag %s: %w", tag, err)
			}
			tags[tag] = d
		}
	}
	return trees, tags, found + len(tags), nil
}

// openSource opens a layout or a repository.
func (a attacher) openSource(ctx context.Context) (oras.ReadOnlyGraphTarget, func(), error) {
	if name, ok := strings.CutPrefix(a.src.Reference, "oci:"); ok {
		dir, _, _ := strings.Cut(name, ":")
		store, err := oci.NewFromFS(ctx, os.DirFS(dir))
		if err != nil {
			return nil, nil, fmt.Errorf("open layout %s: %w", dir, err)
		}
		return layout{store}, func() {}, nil
	}
	from, err := namedBy(a.src)
	if err != nil {
		return nil, nil, err
	}
	return openRepository(ctx, a.src, from, transport.PullScope)
}

// layout is a directory with images. Of all that names a manifest in it, its index too, only referrers are attached.
type layout struct{ *oci.ReadOnlyStore }

// Predecessors implements content.PredecessorFinder.
func (l layout) Predecessors(ctx context.Context, d v1.Descriptor) ([]v1.Descriptor, error) {
	found, err := registry.Referrers(ctx, l.ReadOnlyStore, d, "")
	if errors.Is(err, errdef.ErrUnsupported) { // the directory has the manifest under no name of its own
		return nil, nil
	}
	return found, err
}

// openRepository opens a repository for oras, whose answers for referrers have pages and a fallback.
func openRepository(ctx context.Context, e Endpoint, named reference.Named, action string) (*remote.Repository, func(),
	error) {
	at, err := e.login(ctx, named, action)
	if err != nil {
		return nil, nil, err
	}
	repo, err := remote.NewRepository(at.name.RegistryStr() + "/" + at.name.RepositoryStr())
	if err != nil {
		return nil, nil, fmt.Errorf("name repository %s: %w", named, err)
	}
	repo.Client, repo.PlainHTTP = at.client, at.scheme == "http"
	return repo, at.client.CloseIdleConnections, nil
}

// subjectsOf are an image, or an index and its images.
func subjectsOf(ctx context.Context, in oras.ReadOnlyGraphTarget, image digest.Digest) ([]v1.Descriptor, error) {
	d, err := in.Resolve(ctx, image.String())
	if err != nil {
		return nil, fmt.Errorf("find image: %w", err)
	}
	subjects := []v1.Descriptor{d}
	if !manifest.MIMETypeIsMultiImage(d.MediaType) {
		return subjects, nil
	}
	index, err := read[v1.Index](ctx, in, d)
	if err != nil {
		return nil, err
	}
	for _, m := range index.Manifests {
		if there, err := in.Exists(ctx, m); err != nil {
			return nil, fmt.Errorf("find image %s: %w", m.Digest, err)
		} else if there { // of a sparse index not all are
			subjects = append(subjects, m)
		}
	}
	return subjects, nil
}

func read[T any](ctx context.Context, from content.Fetcher, d v1.Descriptor) (out T, err error) {
	raw, err := content.FetchAll(ctx, from, d)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		return out, fmt.Errorf("read manifest %s: %w", d.Digest, err)
	}
	return out, nil
}

// copyTag copies what a tag of cosign's names, unless the destination has signatures of its own there: who signs reads
// the tag, adds a layer and writes it.
func (a attacher) copyTag(ctx context.Context, in oras.ReadOnlyTarget, out *remote.Repository, tag string,
	d v1.Descriptor, opts oras.CopyGraphOptions) error {
	have, err := out.Resolve(ctx, tag)
	if err == nil && have.Digest == d.Digest {
		return nil
	}
	if err == nil {
		more, err := hasMore(ctx, in, d, out, have)
		if err != nil {
			return err
		}
		if more {
			a.o.Log.WithField("image", a.to.Name()).WithField("tag", tag).
				Warn("tag has signatures of its own at the destination and stays as it is")
			return nil
		}
	}
	if err != nil && !errors.Is(err, errdef.ErrNotFound) {
		return fmt.Errorf("find tag %s: %w", tag, err)
	}
	_, err = oras.Copy(ctx, in, tag, out, tag, oras.CopyOptions{CopyGraphOptions: opts})
	return err
}

// hasMore reports whether the destination's manifest has a layer that the source's lacks.
func hasMore(ctx context.Context, in content.Fetcher, d v1.Descriptor, out *remote.Repository,
	have v1.Descriptor) (bool, error) {
	of, err := read[v1.Manifest](ctx, in, d)
	if err != nil {
		return false, err
	}
	there, err := read[v1.Manifest](ctx, out, have)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(there.Layers, func(l v1.Descriptor) bool {
		return !slices.ContainsFunc(of.Layers, func(s v1.Descriptor) bool { return s.Digest == l.Digest })
	}), nil
}
