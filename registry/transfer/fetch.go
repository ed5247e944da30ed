package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"
)

// Fetch opens the manifest or blob d of an endpoint's repository. mediaType is that of a manifest, "" for a blob. Who
// reads compares the bytes with the digest.
func Fetch(ctx context.Context, e Endpoint, d digest.Digest) (mediaType string, body io.ReadCloser, err error) {
	failed := func(err error) error { return advise(fmt.Errorf("fetch %s from %s: %w", d, e.Reference, err)) }
	named, err := namedBy(e)
	if err == nil && named == nil {
		err = errors.New("it is no registry")
	}
	if err != nil {
		return "", nil, failed(err)
	}
	repo, end, err := openRepository(ctx, e, named, transport.PullScope)
	if err != nil {
		return "", nil, failed(err)
	}
	found, err := repo.Resolve(ctx, d.String())
	switch {
	case err == nil:
		mediaType = found.MediaType
		body, err = repo.Fetch(ctx, found)
	case errors.Is(err, errdef.ErrNotFound):
		if found, err = repo.Blobs().Resolve(ctx, d.String()); err == nil {
			body, err = repo.Blobs().Fetch(ctx, found)
		}
	}
	if err != nil {
		end()
		return "", nil, failed(err)
	}
	return mediaType, fetched{body, end}, nil
}

// fetched ends its client's connections when it is closed: each Fetch logs in anew.
type fetched struct {
	io.ReadCloser
	end func()
}

func (f fetched) Close() error {
	defer f.end()
	return f.ReadCloser.Close()
}
