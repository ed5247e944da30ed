package appendengine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
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

// Append writes image plus change into the repository, under tag or, with an empty tag, by digest only. It mounts
// layers of the image that lie in the same registry.
func (c *Client) Append(ctx context.Context, image *Image, repository, tag string, change Change) (*Image, error) {
	repo, err := name.NewRepository(repository, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("read repository: %w", err)
	}
	manifest, blobs, err := compose(image, change)
	if err != nil {
		return nil, err
	}
	base, err := image.remote.Layers()
	if err != nil {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	digest := repo.Digest(hashOf(manifest.raw).String())
	var ref name.Reference = digest
	if tag != "" {
		ref = repo.Tag(tag)
	}
	if err := c.upload(ctx, repo, append(base, blobs...)); err != nil {
		return nil, fmt.Errorf("push layer to %s: %w", repo, err)
	}
	if err := remote.Put(ref, manifest, c.options(ctx, nil)...); err != nil {
		return nil, fmt.Errorf("push image to %s: %w", repo, err)
	}
	back, err := c.read(ctx, digest, nil)
	if err != nil {
		return nil, fmt.Errorf("read back what was pushed: %w", err)
	}
	return back, nil
}

// Tag gives an image of this client's registry a tag in its repository, in place of what is there.
func (c *Client) Tag(ctx context.Context, image *Image, tag string) error {
	if err := remote.Put(image.Ref.Context().Tag(tag), image.remote, c.options(ctx, nil)...); err != nil {
		return fmt.Errorf("tag image %s: %w", image.Ref, err)
	}
	return nil
}

// upload offers every blob to the repository, which takes what it lacks: also those that it has lost of an image whose
// manifest is there.
func (c *Client) upload(ctx context.Context, repo name.Repository, blobs []v1.Layer) error {
	pusher, err := remote.NewPusher(c.options(ctx, nil)...)
	if err != nil {
		return err
	}
	// The first mount makes the library change its client for all uploads; alone it does so before the others read it.
	if err := pusher.Upload(ctx, repo, blobs[0]); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(jobs())
	for _, l := range blobs[1:] {
		g.Go(func() error { return pusher.Upload(ctx, repo, l) })
	}
	return g.Wait()
}

// rawManifest is a manifest as bytes.
type rawManifest struct {
	raw   []byte
	media types.MediaType
}

func (m rawManifest) RawManifest() ([]byte, error)        { return m.raw, nil }
func (m rawManifest) MediaType() (types.MediaType, error) { return m.media, nil }

// compose makes the manifest and the blobs that the image has not got: new layers and, last, the configuration. Keys
// that it does not know stay.
func compose(image *Image, change Change) (rawManifest, []v1.Layer, error) {
	out := rawManifest{media: image.MediaType}
	config, err := object(image.rawConfig)
	if err != nil {
		return out, nil, fmt.Errorf("decode configuration of %s: %w", image.Ref, err)
	}
	manifest, err := object(image.rawManif)
	if err != nil {
		return out, nil, fmt.Errorf("decode manifest of %s: %w", image.Ref, err)
	}
	created := change.Created.UTC().Truncate(time.Second).Format(time.RFC3339)
	config["created"] = created
	changeRuntime(config, change)
	changeHistory(config, change, created)
	layers, _ := manifest["layers"].([]any)
	rootfs, _ := config["rootfs"].(map[string]any)
	if rootfs == nil {
		rootfs = map[string]any{"type": "layers"}
		config["rootfs"] = rootfs
	}
	diffs, _ := rootfs["diff_ids"].([]any)
	var blobs []v1.Layer
	for _, l := range change.Layers {
		media := layerType(image.MediaType)
		diffs = append(diffs, l.DiffID)
		layers = append(layers, map[string]any{"mediaType": string(media), "digest": hashOf(l.Blob).String(),
			"size": len(l.Blob)})
		blobs = append(blobs, static.NewLayer(l.Blob, media))
	}
	rootfs["diff_ids"], manifest["layers"] = diffs, layers
	rawConfig, err := json.Marshal(config)
	if err != nil {
		return out, nil, fmt.Errorf("encode configuration: %w", err)
	}
	descriptor, _ := manifest["config"].(map[string]any)
	if descriptor == nil {
		return out, nil, fmt.Errorf("decode manifest of %s: it names no configuration", image.Ref)
	}
	descriptor["digest"], descriptor["size"] = hashOf(rawConfig).String(), len(rawConfig)
	annotate(manifest, image.MediaType, change, created)
	if out.raw, err = json.Marshal(manifest); err != nil {
		return out, nil, fmt.Errorf("encode manifest: %w", err)
	}
	return out, append(blobs, static.NewLayer(rawConfig, types.MediaType(fmt.Sprint(descriptor["mediaType"])))), nil
}

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
