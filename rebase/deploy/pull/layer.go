package pull

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containers/image/v5/pkg/blobinfocache/none"
	"github.com/containers/image/v5/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/layertar"
	"dayone.dev/dayone/rebase/deploy/ostreerepo"
)

// errStalled and errBroken say that the registry, or the way to it, is at fault.
var (
	errStalled = errors.New("the registry stopped sending")
	errBroken  = errors.New("the connection to the registry broke")
)

// importLayer streams one layer from the registry into the repository. Its objects are kept aside until both digests
// (of the blob and of its uncompressed content) have been verified; before that nothing of it is seen.
func importLayer(ctx context.Context, objects *ostreerepo.Repository, src types.ImageSource, layer layerSource,
	o Options) (stats layertar.Stats, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(o.StallTimeout, func() {
		cancel(fmt.Errorf("no answer for %s: %w", o.StallTimeout, errStalled))
	})
	blob, _, err := src.GetBlob(ctx, layer.info, none.NoCache)
	late.Stop()
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
			return stats, cause
		}
		return stats, err
	}
	defer func() { err = errors.Join(err, blob.Close()) }()
	arriving := o.Transfer.Counting(newStallReader(blob, o.StallTimeout, cancel))
	in := newVerifiedBlob(paced(ctx, arriving, o.BytesPerSecond), layer.info, layer.diffID)
	plain, err := in.decompress()
	if err != nil {
		return stats, in.explain(err)
	}
	tx, err := objects.Begin(ctx)
	if err != nil {
		return stats, err
	}
	defer func() { err = errors.Join(err, tx.Close()) }()
	ahead := newReadAhead(plain)
	content := newContent(objects, tx, layer)
	stats, err = content.read(ahead)
	ahead.stop()
	if err == nil {
		err = in.verify()
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return stats, cause
		}
		return stats, in.explain(err)
	}
	commit, err := content.write()
	if err != nil {
		return stats, err
	}
	return stats, tx.Install(map[string]ostreerepo.Checksum{layerRef(layer.info.Digest): commit})
}

// layerSource is a layer as the manifest and the configuration name it.
type layerSource struct {
	info   types.BlobInfo
	diffID digest.Digest
	role   role
	// Of the layer with the commit: what the image says the commit is, "" when it does not say, and the layers with more
	// of its objects.
	commit  string
	objects []types.BlobInfo
}

// verifiedBlob computes the digests of a layer while it is read.
type verifiedBlob struct {
	raw     io.Reader
	info    types.BlobInfo
	diffID  digest.Digest
	read    int64
	broken  error // what ended the transfer before its end
	blobSum digest.Digester
	diffSum digest.Digester
}

func newVerifiedBlob(r io.Reader, info types.BlobInfo, diffID digest.Digest) *verifiedBlob {
	v := &verifiedBlob{info: info, diffID: diffID, blobSum: digest.Canonical.Digester(),
		diffSum: digest.Canonical.Digester()}
	v.raw = bufio.NewReaderSize(io.TeeReader(transferReader{r, v}, v), 256<<10)
	return v
}

// transferReader keeps what ended a transfer: what unpacks the bytes may say it in its own words.
type transferReader struct {
	in io.Reader
	of *verifiedBlob
}

// Read reads on until the first failure, which it repeats.
func (t transferReader) Read(p []byte) (int, error) {
	if t.of.broken != nil {
		return 0, t.of.broken
	}
	n, err := t.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		t.of.broken = fmt.Errorf("%w: %w", errBroken, err)
		err = t.of.broken
	}
	return n, err
}

// Write counts and hashes what was read of the blob.
func (v *verifiedBlob) Write(p []byte) (int, error) {
	v.read += int64(len(p))
	return v.blobSum.Hash().Write(p)
}

// decompress gives the uncompressed content; the first bytes tell the compression (registries differ in media types,
// not in magic numbers).
func (v *verifiedBlob) decompress() (io.Reader, error) {
	in := v.raw.(*bufio.Reader)
	magic, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var plain io.Reader = in
	switch {
	case len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b: // RFC 1952 2.3.1
		if plain, err = gzip.NewReader(in); err != nil {
			return nil, err
		}
	case len(magic) == 4 && string(magic) == "\x28\xb5\x2f\xfd": // RFC 8878 3.1.1
		// One decoder thread: the reader is then synchronous and its memory is bounded by the frame's window.
		if plain, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20)); err != nil {
			return nil, err
		}
	}
	return io.TeeReader(plain, v.diffSum.Hash()), nil
}

// verify reads what is left of the blob and compares both digests.
func (v *verifiedBlob) verify() error {
	if _, err := io.Copy(io.Discard, v.raw); err != nil {
		return fmt.Errorf("read layer to its end: %w", err)
	}
	if got := v.blobSum.Digest(); got != v.info.Digest {
		return corrupted("verify layer", v.info.Digest, got, v.sizes())
	}
	if got := v.diffSum.Digest(); got != v.diffID {
		return corrupted("verify uncompressed layer", v.diffID, got, " (the image's configuration does not fit its layers)")
	}
	return nil
}

func (v *verifiedBlob) sizes() string {
	if v.info.Size >= 0 && v.read != v.info.Size {
		return fmt.Sprintf(" (%d bytes arrived, of %d)", v.read, v.info.Size)
	}
	return ""
}

// explain finds out whether an error of unpacking comes from damaged bytes: then that is what to say.
func (v *verifiedBlob) explain(err error) error {
	if v.broken != nil {
		return v.broken
	}
	var known *deploy.Fault
	if errors.As(err, &known) || errors.Is(err, layertar.ErrHostile) || errors.Is(err, ostreerepo.ErrEntry) ||
		isDiskFull(err) || errors.Is(err, layertar.ErrEncapsulated) || isNetwork(err) {
		return err
	}
	if _, drainErr := io.Copy(io.Discard, v.raw); drainErr != nil {
		return drainErr
	}
	if got := v.blobSum.Digest(); got != v.info.Digest {
		return corrupted("verify layer", v.info.Digest, got, v.sizes())
	}
	return &deploy.Fault{Class: deploy.ClassCorrupted, Op: "unpack layer " + v.info.Digest.String(), Err: err,
		Next: "build the image again; the registry's copy is what was pushed"}
}
