package appendengine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"
)

// Layer is a new layer: a gzip blob.
type Layer struct {
	Blob []byte
	// DiffID is the digest of the unpacked tar.
	DiffID string
	// CreatedBy goes into the history.
	CreatedBy string
}

// Change is what becomes of an image. The zero value only cleans history and annotations.
type Change struct {
	Layers []Layer
	// Labels are set beside those of the image, which stay.
	Labels map[string]string
	// Env replaces the environment when it is not nil.
	Env []string
	// Empty are instructions that made no layer, for the history.
	Empty []string
	// Created is the time of image and history.
	Created time.Time
	// Base is the digest for the annotation org.opencontainers.image.base.digest; empty leaves it out.
	Base string
	// BaseLayers is how many layers come from the base: history and comments above them lose names of registries, so that
	// the digest does not hang on where the base was pulled from.
	BaseLayers int
}

// Pushed is an image in the target repository.
type Pushed struct {
	Digest string
	Image  *Image
}

// Append writes image plus change into the repository, under tag or, with an empty tag, by digest only. Layers of the
// image that lie in the same registry are mounted.
func (c *Client) Append(ctx context.Context, image *Image, repository, tag string, change Change) (*Pushed, error) {
	repo, err := name.NewRepository(repository, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("read repository: %w", err)
	}
	next, err := compose(image, change)
	if err != nil {
		return nil, err
	}
	digest, err := next.Digest()
	if err != nil {
		return nil, err
	}
	var ref name.Reference = repo.Digest(digest.String())
	if tag != "" {
		ref = repo.Tag(tag)
	}
	if err := c.push(ctx, repo, ref, next); err != nil {
		return nil, err
	}
	back, err := c.read(ctx, repo.Digest(digest.String()), nil)
	if err != nil {
		return nil, fmt.Errorf("read back what was pushed: %w", err)
	}
	return &Pushed{Digest: digest.String(), Image: back}, nil
}

// Tag gives an image of this client's registry a tag in its repository, in place of what is there.
func (c *Client) Tag(ctx context.Context, image *Image, tag string) error {
	if err := remote.Put(image.Ref.Context().Tag(tag), image.remote, c.options(ctx, nil)...); err != nil {
		return fmt.Errorf("tag image %s: %w", image.Ref, err)
	}
	return nil
}

// push sends what the repository lacks. Each blob is offered first: the library asks for the manifest and would take an
// image that is there as whole, also one whose blobs the registry has lost.
func (c *Client) push(ctx context.Context, repo name.Repository, ref name.Reference, image *composed) error {
	pusher, err := remote.NewPusher(c.options(ctx, nil)...)
	if err != nil {
		return fmt.Errorf("push image to %s: %w", repo, err)
	}
	layers, err := image.Layers()
	if err != nil {
		return fmt.Errorf("list layers: %w", err)
	}
	config, err := partial.ConfigLayer(image)
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	// The first mount makes the library change its client for all uploads; alone it does so before the others read it.
	first := min(1, len(layers))
	for _, blobs := range [][]v1.Layer{layers[:first], append(layers[first:], config)} {
		if err := upload(ctx, pusher, repo, blobs); err != nil {
			return fmt.Errorf("push layer to %s: %w", repo, err)
		}
	}
	if err := pusher.Push(ctx, ref, image); err != nil {
		return fmt.Errorf("push image to %s: %w", repo, err)
	}
	return nil
}

// upload offers blobs to the repository, as many at once as there are jobs.
func upload(ctx context.Context, pusher *remote.Pusher, repo name.Repository, blobs []v1.Layer) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(jobs())
	for _, l := range blobs {
		g.Go(func() error { return pusher.Upload(ctx, repo, l) })
	}
	return g.Wait()
}

// compose makes configuration and manifest. All that it does not know of is kept as it is.
func compose(image *Image, change Change) (*composed, error) {
	config, err := object(image.rawConfig)
	if err != nil {
		return nil, fmt.Errorf("decode configuration of %s: %w", image.Ref, err)
	}
	manifest, err := object(image.rawManif)
	if err != nil {
		return nil, fmt.Errorf("decode manifest of %s: %w", image.Ref, err)
	}
	created := change.Created.UTC().Truncate(time.Second).Format(time.RFC3339)
	config["created"] = created
	changeRuntime(config, change)
	changeHistory(config, change, created)
	out := &composed{media: image.MediaType, base: image.remote, added: map[v1.Hash]v1.Layer{}}
	layers, _ := manifest["layers"].([]any)
	rootfs, _ := config["rootfs"].(map[string]any)
	if rootfs == nil {
		rootfs = map[string]any{"type": "layers"}
		config["rootfs"] = rootfs
	}
	diffs, _ := rootfs["diff_ids"].([]any)
	for _, l := range change.Layers {
		blob := &blobLayer{data: l.Blob, media: layerType(image.MediaType)}
		if blob.diff, err = v1.NewHash(l.DiffID); err != nil {
			return nil, fmt.Errorf("read diff id of layer: %w", err)
		}
		blob.digest = hashOf(l.Blob)
		out.added[blob.digest] = blob
		diffs = append(diffs, l.DiffID)
		layers = append(layers, map[string]any{"mediaType": string(blob.media), "digest": blob.digest.String(),
			"size": len(l.Blob)})
	}
	rootfs["diff_ids"], manifest["layers"] = diffs, layers
	if out.config, err = json.Marshal(config); err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	descriptor, _ := manifest["config"].(map[string]any)
	if descriptor == nil {
		return nil, fmt.Errorf("decode manifest of %s: %w", image.Ref, errNoConfig)
	}
	descriptor["digest"], descriptor["size"] = hashOf(out.config).String(), len(out.config)
	annotate(manifest, image.MediaType, change, created)
	if out.manifest, err = json.Marshal(manifest); err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return out, nil
}

var errNoConfig = errors.New("it names no configuration")

func changeRuntime(config map[string]any, change Change) {
	runtime, _ := config["config"].(map[string]any)
	if runtime == nil {
		runtime = map[string]any{}
		config["config"] = runtime
	}
	labels, _ := runtime["Labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
	}
	for k, v := range change.Labels {
		labels[k] = v
	}
	if len(labels) > 0 {
		runtime["Labels"] = labels
	}
	if change.Env != nil {
		runtime["Env"] = change.Env
	}
}

// changeHistory drops comments that name the registry a base was pulled from and adds an entry per new layer and
// instruction.
func changeHistory(config map[string]any, change Change, created string) {
	history, _ := config["history"].([]any)
	layer := 0
	for _, h := range history {
		entry, _ := h.(map[string]any)
		if entry == nil {
			continue
		}
		if comment, _ := entry["comment"].(string); layer >= change.BaseLayers && strings.HasPrefix(comment, "FROM ") {
			delete(entry, "comment")
		}
		if empty, _ := entry["empty_layer"].(bool); !empty {
			layer++
		}
	}
	for _, l := range change.Layers {
		history = append(history, map[string]any{"created": created, "created_by": l.CreatedBy})
	}
	for _, text := range change.Empty {
		history = append(history, map[string]any{"created": created, "created_by": "/bin/sh -c #(nop) " + text,
			"empty_layer": true})
	}
	if len(history) > 0 {
		config["history"] = history
	}
}

// Annotations of the OCI image specification that tell of the base; the name would change with the registry's.
const (
	annotationBaseName   = "org.opencontainers.image.base.name"
	annotationBaseDigest = "org.opencontainers.image.base.digest"
	annotationCreated    = "org.opencontainers.image.created"
)

// annotate is for OCI manifests only: Docker's schema 2 has no annotations.
func annotate(manifest map[string]any, media types.MediaType, change Change, created string) {
	if media != types.OCIManifestSchema1 {
		return
	}
	annotations, _ := manifest["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
	}
	delete(annotations, annotationBaseName)
	annotations[annotationCreated] = created
	if change.Base != "" {
		annotations[annotationBaseDigest] = change.Base
	}
	manifest["annotations"] = annotations
}

func layerType(manifest types.MediaType) types.MediaType {
	if manifest == types.DockerManifestSchema2 {
		return types.DockerLayer
	}
	return types.OCILayer
}

func hashOf(data []byte) v1.Hash {
	sum := sha256.Sum256(data)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}

// blobLayer is a layer in memory.
type blobLayer struct {
	data         []byte
	digest, diff v1.Hash
	media        types.MediaType
}

func (b *blobLayer) Digest() (v1.Hash, error)            { return b.digest, nil }
func (b *blobLayer) DiffID() (v1.Hash, error)            { return b.diff, nil }
func (b *blobLayer) Size() (int64, error)                { return int64(len(b.data)), nil }
func (b *blobLayer) MediaType() (types.MediaType, error) { return b.media, nil }
func (b *blobLayer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(b.data)), nil
}
func (b *blobLayer) Uncompressed() (io.ReadCloser, error) {
	return nil, fmt.Errorf("layer %s is packed", b.digest)
}

// composed is an image whose manifest and configuration are given as bytes.
type composed struct {
	media            types.MediaType
	config, manifest []byte
	base             v1.Image
	added            map[v1.Hash]v1.Layer
}

func (c *composed) MediaType() (types.MediaType, error) { return c.media, nil }
func (c *composed) Size() (int64, error)                { return int64(len(c.manifest)), nil }
func (c *composed) ConfigName() (v1.Hash, error)        { return hashOf(c.config), nil }
func (c *composed) ConfigFile() (*v1.ConfigFile, error) {
	return v1.ParseConfigFile(bytes.NewReader(c.config))
}
func (c *composed) RawConfigFile() ([]byte, error) { return c.config, nil }
func (c *composed) Digest() (v1.Hash, error)       { return hashOf(c.manifest), nil }
func (c *composed) Manifest() (*v1.Manifest, error) {
	return v1.ParseManifest(bytes.NewReader(c.manifest))
}
func (c *composed) RawManifest() ([]byte, error) { return c.manifest, nil }
func (c *composed) LayerByDiffID(v1.Hash) (v1.Layer, error) {
	return nil, fmt.Errorf("look up by diff id: not kept")
}

// Layers gives the base's as mountable layers of their registry, then the new ones.
func (c *composed) Layers() ([]v1.Layer, error) {
	base, err := c.base.Layers()
	if err != nil {
		return nil, err
	}
	keys := slices.SortedFunc(maps.Keys(c.added), func(a, b v1.Hash) int { return strings.Compare(a.Hex, b.Hex) })
	for _, k := range keys {
		base = append(base, c.added[k])
	}
	return base, nil
}

// LayerByDigest finds a layer, or the configuration as a blob.
func (c *composed) LayerByDigest(h v1.Hash) (v1.Layer, error) {
	if l, ok := c.added[h]; ok {
		return l, nil
	}
	return c.base.LayerByDigest(h)
}
