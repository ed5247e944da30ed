package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/containers/image/v5/pkg/blobinfocache/none"
	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"
)

// Whole is an image with what its configuration says of its layers.
type Whole struct {
	Image
	Created time.Time
	// CreatedBy are the commands of the image's history that made a layer, lowest first.
	CreatedBy []string
	// Open opens the bytes of a layer. Closing reads what is left.
	Open func(context.Context, Layer) (io.ReadCloser, error)
}

// Read lets use have an image; what it read of layers counts only when Read returns nil, because the digests are
// compared at their ends. Layers may be read at the same time. Errors are as those of Inspect.
func Read(ctx context.Context, e Endpoint, platform string, use func(context.Context, Whole) error) error {
	return open(ctx, e, platform, inspectLimit, func(at opened) error {
		var w Whole
		parsed, err := w.read(at.ctx, at.src, at.sys)
		if err != nil {
			return err
		}
		config, err := parsed.OCIConfig(at.ctx)
		if err != nil {
			return fmt.Errorf("read configuration: %w", err)
		}
		if config.Created != nil {
			w.Created = *config.Created
		}
		for _, h := range config.History {
			if !h.EmptyLayer {
				w.CreatedBy = append(w.CreatedBy, h.CreatedBy)
			}
		}
		var wrong mismatches
		w.Open = func(ctx context.Context, l Layer) (io.ReadCloser, error) {
			if err := l.Digest.Validate(); err != nil {
				return nil, err
			}
			body, _, err := at.src.GetBlob(ctx, types.BlobInfo{Digest: l.Digest, Size: l.Size, MediaType: l.MediaType},
				none.NoCache)
			if err != nil {
				return nil, fmt.Errorf("read layer %s: %w", l.Digest, err)
			}
			return &verified{ReadCloser: body, digest: l.Digest, verifier: l.Digest.Verifier(), heard: at.heard,
				wrong: &wrong}, nil
		}
		return errors.Join(use(at.ctx, w), wrong.err())
	})
}

// mismatches are layers whose bytes have another digest.
type mismatches struct {
	mu   sync.Mutex
	errs []error
}

func (m *mismatches) add(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errs = append(m.errs, err)
}

func (m *mismatches) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(m.errs...)
}

// verified hashes a layer while it is read.
type verified struct {
	io.ReadCloser
	digest   digest.Digest
	verifier digest.Verifier
	heard    func()
	wrong    *mismatches
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	if n > 0 {
		v.heard()
		_, _ = v.verifier.Write(p[:n]) // a hash takes everything
	}
	return n, err
}

func (v *verified) Close() error {
	_, err := io.Copy(io.Discard, v)
	if err == nil && !v.verifier.Verified() {
		err = fmt.Errorf("read layer %s: its bytes have another digest: the registry or a proxy before it is broken",
			v.digest)
	}
	if err != nil {
		v.wrong.add(err)
	}
	return errors.Join(err, v.ReadCloser.Close())
}
