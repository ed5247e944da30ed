package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/route"
	"dayone.dev/dayone/registry/storage"
)

// repairRounds are a manifest, what it names, and what an image of an index names.
const repairRounds = 3

// Source opens a manifest or blob of a repository of another registry. mediaType is "" for a blob.
type Source func(ctx context.Context, repository string, d digest.Digest) (mediaType string, body io.ReadCloser,
	err error)

// Repair verifies all blobs and takes what is missing from another registry. It returns what is still not whole, what
// was restored as REPOSITORY@DIGEST, and why others were not.
func (r *Root) Repair(ctx context.Context, from Source) (report storage.VerifyReport, restored []string, failed []error,
	err error) {
	corrupt := []digest.Digest{}
	for range repairRounds {
		if report, err = r.Verify(ctx); err != nil {
			return report, restored, failed, err
		}
		corrupt = append(corrupt, report.Corrupt...)
		before := len(restored)
		failed = nil
		for _, missing := range report.Missing {
			if err := r.restore(ctx, missing, from); err != nil {
				failed = append(failed, err)
				continue
			}
			restored = append(restored, missing)
		}
		if len(restored) == before {
			break
		}
	}
	report.Corrupt = corrupt
	return report, restored, failed, nil
}

// restore brings one manifest or blob back, named as REPOSITORY@DIGEST.
func (r *Root) restore(ctx context.Context, missing string, from Source) error {
	name, ref, _ := strings.Cut(missing, "@")
	d, err := storage.ParseDigest(ref)
	if err != nil {
		return fmt.Errorf("restore %s: %w", missing, err)
	}
	mediaType, body, err := from(ctx, name, d)
	if err != nil {
		return fmt.Errorf("restore %s: %w", missing, err)
	}
	defer func() { _ = body.Close() }() // it was only read
	if r.server == nil {
		err = storage.Restore(ctx, r.store.Repository(name), d, mediaType, body)
	} else {
		q := url.Values{"repository": {name}, "digest": {ref}, "mediaType": {mediaType}}
		_, err = send[struct{}](ctx, r.server, "/restore?"+q.Encode(), body)
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", missing, err)
	}
	return nil
}

// serveRestore takes what a repair brings.
func serveRestore(s *service, w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	d, err := storage.ParseDigest(q.Get("digest"))
	switch {
	case err != nil:
	case s.readOnly:
		err = errRootReadOnly
	case !route.ValidName(q.Get("repository")):
		err = fmt.Errorf("%q is no repository name", q.Get("repository"))
	default:
		err = storage.Restore(r.Context(), s.store.Repository(q.Get("repository")), d, q.Get("mediaType"), r.Body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, "application/json", struct{}{})
}
