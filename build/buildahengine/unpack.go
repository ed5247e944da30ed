package buildahengine

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/containers/image/v5/types"
	"github.com/containers/storage"
	"github.com/containers/storage/pkg/archive"
	"github.com/opencontainers/go-digest"
)

// unpackingReference is an image in the storage whose layers are unpacked while they arrive. The library's own
// destination writes each to a file first, unpacks it in memory to know its digest, and then a second time to disk:
// of a base of a gigabyte from a registry on this host that is most of the time.
type unpackingReference struct {
	types.ImageReference
	store  storage.Store
	places map[digest.Digest]place
	// also gets what is unpacked, unless it is nil.
	also *layerWriter
}

// place is where a layer belongs: what its manifest and config say of it. Nothing of that is trusted before the layer
// has been read.
type place struct {
	layer      int
	id, parent string
	diffID     digest.Digest
}

// places are those of an image's layers by the digests of their blobs. IDs are those that the library's destination
// gives: it finds the layers by them, and would unpack again what it does not find. A blob that an image has twice
// has its first place.
func places(blobs []types.BlobInfo, diffIDs []digest.Digest) map[digest.Digest]place {
	out := map[digest.Digest]place{}
	strange := func(d digest.Digest) bool { return d.Validate() != nil || d.Algorithm() != digest.Canonical }
	if len(blobs) != len(diffIDs) || slices.ContainsFunc(diffIDs, strange) {
		return out // the library says what is wrong with it
	}
	parent := ""
	for i, blob := range blobs {
		id := diffIDs[i].Encoded()
		if parent != "" {
			id = digest.FromString(parent + "+" + id).Encoded()
		}
		if _, twice := out[blob.Digest]; !twice {
			out[blob.Digest] = place{i, id, parent, diffIDs[i]}
		}
		parent = id
	}
	return out
}

// NewImageDestination implements types.ImageReference.
func (r unpackingReference) NewImageDestination(ctx context.Context, system *types.SystemContext) (
	types.ImageDestination, error) {
	inner, err := r.ImageReference.NewImageDestination(ctx, system)
	if err != nil {
		return nil, err
	}
	return unpackingDestination{inner, r}, nil
}

// unpackingDestination is the library's but for blobs of layers.
type unpackingDestination struct {
	types.ImageDestination
	to unpackingReference
}

// HasThreadSafePutBlob lets layers come one after the other: each needs the one below.
func (unpackingDestination) HasThreadSafePutBlob() bool { return false }

// PutBlob unpacks a layer where it belongs. It leaves to the library what it cannot unpack in this way.
func (d unpackingDestination) PutBlob(ctx context.Context, stream io.Reader, info types.BlobInfo,
	cache types.BlobInfoCache, isConfig bool) (types.BlobInfo, error) {
	at, known := d.to.places[info.Digest]
	if isConfig || !known || d.to.store.Exists(at.id) || at.parent != "" && !d.to.store.Exists(at.parent) {
		return d.ImageDestination.PutBlob(ctx, stream, info, cache, isConfig)
	}
	counted := &countingReader{Reader: stream}
	unpacked, err := archive.DecompressStream(counted)
	if err != nil {
		return types.BlobInfo{}, fmt.Errorf("unpack layer %s: %w", info.Digest, err)
	}
	defer unpacked.Close()
	size := info.Size
	options := &storage.LayerOptions{OriginalDigest: info.Digest, UncompressedDigest: at.diffID}
	if size >= 0 {
		options.OriginalSize = &size
	}
	content := d.to.also.tee(at.layer, &verified{Reader: unpacked, packed: counted, verifier: at.diffID.Verifier(),
		diffID: at.diffID})
	if _, _, err = d.to.store.PutLayer(at.id, at.parent, nil, "", false, options, content); err != nil {
		return types.BlobInfo{}, fmt.Errorf("unpack layer %s: %w", info.Digest, err)
	}
	d.to.also.end(at.layer)
	cache.RecordDigestUncompressedPair(info.Digest, at.diffID)
	return types.BlobInfo{Digest: info.Digest, Size: counted.n}, nil
}

// verified ends without an error only where the layer is what its blob's digest and its config's diff ID say: the
// storage keeps no layer whose reader failed, so a process that is killed leaves none under a wrong name.
type verified struct {
	io.Reader
	packed   io.Reader
	verifier digest.Verifier
	diffID   digest.Digest
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.Reader.Read(p)
	_, _ = v.verifier.Write(p[:n]) // a hash takes everything
	if err != io.EOF {
		return n, err
	}
	// The blob's digest is checked at its very end, which a decompressor need not read.
	if _, err := io.Copy(io.Discard, v.packed); err != nil {
		return n, err
	}
	if !v.verifier.Verified() {
		return n, fmt.Errorf("its content is not %s, as the image's config says: the image is damaged, or was made by "+
			"a faulty program: push it again", v.diffID)
	}
	return n, io.EOF
}

// countingReader counts bytes.
type countingReader struct {
	io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}
