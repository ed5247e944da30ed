package storage

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
)

// maxRestoredManifest is the largest manifest that a repair brings back: clients do not read larger ones.
const maxRestoredManifest = 4 << 20

// Restore stores a manifest of a media type, or a blob when that is "", which the repository had and has no more. What
// a manifest names may be missing too: it is restored after it.
func Restore(ctx context.Context, r Repository, d digest.Digest, mediaType string, in io.Reader) (err error) {
	if mediaType == "" {
		u, err := r.NewUpload(ctx, "")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, u.Release()) }()
		if err = u.Append(in); err == nil {
			err = u.Commit(ctx, d)
		}
		if err != nil {
			return errors.Join(err, u.Cancel(context.WithoutCancel(ctx)))
		}
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(in, maxRestoredManifest+1))
	if err != nil {
		return fmt.Errorf("read manifest %s: %w", d, err)
	}
	if len(body) > maxRestoredManifest || d.Algorithm().FromBytes(body) != d {
		return fmt.Errorf("%w: what came for manifest %s is another one", ErrDigest, d)
	}
	return r.PutManifest(ctx, Put{Digest: d, MediaType: mediaType, Body: body, Sparse: true})
}
