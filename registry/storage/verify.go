package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/opencontainers/go-digest"
	"golang.org/x/time/rate"
)

// VerifyReport says which blobs were read and which of them are corrupt.
type VerifyReport struct {
	Blobs   int             `json:"blobs"`
	Bytes   int64           `json:"bytes"`
	Corrupt []digest.Digest `json:"corrupt"`
	// Missing are blobs that manifests name and the disk does not have, as REPOSITORY@DIGEST.
	Missing []string `json:"missing"`
	// Damaged are manifests that are not well formed, as REPOSITORY@DIGEST.
	Damaged []string `json:"damaged"`
}

// VerifyOptions of a verification. The zero value reads as fast as the disk does.
type VerifyOptions struct {
	// BytesPerSecond that are read at most; 0 is no limit.
	BytesPerSecond int64
	// Read is called with the bytes of each piece that was read; nil is not.
	Read func(n int)
	// From is where one that was cut short goes on; the zero value is the beginning.
	From VerifyPoint
	// Reached is called after each blob; nil is not.
	Reached func(VerifyPoint)
}

// VerifyPoint is how far a verification is. Blobs are read in the order of their digests.
type VerifyPoint struct {
	After  digest.Digest `json:"after"`
	Report VerifyReport  `json:"report"`
}

// Verify hashes every blob as the disk has it, whatever was hashed before, and looks whether what manifests name is
// there with the size that they say. Corrupt blobs are moved away. Pulls and pushes go on.
func Verify(ctx context.Context, s *Store, o VerifyOptions) (VerifyReport, error) {
	r := VerifyReport{Corrupt: append([]digest.Digest{}, o.From.Report.Corrupt...), Missing: []string{},
		Damaged: []string{}, Blobs: o.From.Report.Blobs, Bytes: o.From.Report.Bytes}
	limit := rate.NewLimiter(rate.Inf, copyBuffer)
	if o.BytesPerSecond > 0 {
		limit.SetLimit(rate.Limit(o.BytesPerSecond))
	}
	read := func(in io.Reader) io.Reader {
		return readerFunc(func(p []byte) (int, error) {
			n, err := in.Read(p[:min(len(p), copyBuffer)])
			if n > 0 && o.Read != nil {
				o.Read(n)
			}
			if waitErr := limit.WaitN(ctx, n); waitErr != nil && err == nil {
				err = waitErr
			}
			return n, err
		})
	}
	err := eachBlob(ctx, s, func(d digest.Digest, _ fs.FileInfo) error {
		if d <= o.From.After {
			return ctx.Err()
		}
		size, err := s.driver.blobs.rehash(d, read)
		switch {
		case errors.Is(err, ErrCorrupt):
			r.Corrupt = append(r.Corrupt, d)
		case errors.Is(err, ErrNotFound), errors.Is(err, errReplaced): // another one is hashed when it is asked for
			return ctx.Err()
		case err != nil:
			return err
		}
		r.Blobs++
		r.Bytes += size
		if o.Reached != nil {
			o.Reached(VerifyPoint{d, r})
		}
		return ctx.Err()
	})
	if err != nil {
		return r, fmt.Errorf("verify blobs: %w", err)
	}
	return r, eachManifest(ctx, s, func(repository Repository, rev digest.Digest) error {
		verifyManifest(repository, rev, &r)
		return nil
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// verifyManifest looks whether an image is whole. A cached one need not be: the
// upstream has what it lacks.
func verifyManifest(r Repository, rev digest.Digest, report *VerifyReport) {
	if IsCached(r, rev) {
		return
	}
	lacks := func(d digest.Digest) { report.Missing = append(report.Missing, r.name+"@"+string(d)) }
	m, err := r.read(rev)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) {
		lacks(rev)
		return
	}
	var c *Content
	if err == nil {
		c, err = ParseContent(m.Body)
	}
	if err != nil {
		report.Damaged = append(report.Damaged, r.name+"@"+string(rev))
		return
	}
	for _, d := range c.Blobs() {
		if size, err := r.StatBlob(d.Digest); err != nil || size != d.Size {
			lacks(d.Digest)
		}
	}
	for _, d := range c.Manifests {
		if size, err := r.statManifest(d.Digest); err != nil || size != d.Size {
			lacks(d.Digest)
		}
	}
}
