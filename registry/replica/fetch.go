package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/renameio/v2"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/wanted"
)

const (
	// owner is whose the uploads are that the replica makes. No account can have this name.
	owner = ":replica"
	// fetchingFile remembers the upload that a kill has cut short.
	fetchingFile = "fetching.json"
	// maxDepth of indexes in indexes, and of referrers of referrers.
	maxDepth = 4
	// copyBytes is how much is asked of the rate limiter at once.
	copyBytes = 256 << 10
)

// errNobody says that no peer gave what was asked for.
var errNobody = errors.New("no other registry has it whole")

// fetcher is one look's work with the peers.
type fetcher struct {
	*replica
	peers []*peer
}

func newFetcher(r *replica, list peers.List) *fetcher { return &fetcher{r, r.dial(list)} }

func (f *fetcher) close() {
	for _, p := range f.peers {
		p.site.CloseIdleConnections()
	}
}

// all fetches what is missing of a list, one image after the other, and names what is still missing.
func (f *fetcher) all(ctx context.Context, l wanted.List) (missing []wanted.Missing, fetched bool) {
	for _, i := range l.Fetched() {
		repository := f.store.Repository(i.Repository)
		lacks := whole(repository, i.Digest, 0)
		if lacks == nil {
			continue
		}
		err := f.manifest(ctx, i.Repository, i.Digest, nil, 0)
		if ctx.Err() != nil {
			return missing, fetched
		}
		if err != nil {
			missing = append(missing, wanted.Missing{Image: i.Name(), Why: reason(err)})
			continue
		}
		fetched = true
		f.o.Log.WithFields(logrus.Fields{"image": i.Name(), "by": i.By}).Info("registry fetched a wanted image")
	}
	return missing, fetched
}

// reason is what an administrator reads about a missing image.
func reason(err error) string {
	if errors.Is(err, storage.ErrNoSpace) {
		return err.Error() + ": free disk space on the node, or give it a larger disk"
	}
	return err.Error()
}

// whole is nil when the store has a manifest and everything that it names. The bytes are those of their digests: the
// storage hashes each once in a process, and again when the file has changed.
func whole(r storage.Repository, d digest.Digest, depth int) error {
	m, err := r.Manifest(d)
	if err != nil {
		return err
	}
	c, err := storage.ParseContent(m.Body)
	if err != nil {
		return err
	}
	for _, blob := range c.Blobs() {
		if size, err := r.StatBlob(blob.Digest); err != nil || size != blob.Size {
			return errors.Join(err, fmt.Errorf("blob %s is not whole", blob.Digest))
		}
	}
	if len(c.Manifests) > 0 && depth >= maxDepth {
		return errDepth
	}
	for _, below := range c.Manifests {
		if err := whole(r, below.Digest, depth+1); err != nil {
			return err
		}
	}
	return nil
}

var errDepth = fmt.Errorf("indexes lie more than %d deep in each other", maxDepth)

// manifest makes sure that the store has a manifest with everything that it names, and gives it tags.
func (f *fetcher) manifest(ctx context.Context, repository string, d digest.Digest, tags []string, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	to := f.store.Repository(repository)
	var mediaType string
	var body []byte
	if m, err := to.Manifest(d); err == nil {
		mediaType, body = m.MediaType, m.Body
	} else if mediaType, body, err = f.fetchManifest(ctx, repository, d); err != nil {
		return fmt.Errorf("fetch manifest %s: %w", d, err)
	}
	c, err := storage.ParseContent(body)
	if err != nil {
		return fmt.Errorf("fetch manifest %s: %w", d, err)
	}
	for _, below := range c.Manifests {
		if err := f.manifest(ctx, repository, below.Digest, nil, depth+1); err != nil {
			return err
		}
	}
	for _, blob := range c.Blobs() {
		if err := f.blob(ctx, repository, blob); err != nil {
			return fmt.Errorf("fetch blob %s: %w", blob.Digest, err)
		}
	}
	if err := to.PutManifest(ctx, storage.Put{Digest: d, MediaType: mediaType, Body: body, Tags: tags}); err != nil {
		return fmt.Errorf("keep manifest %s: %w", d, err)
	}
	return nil
}

// fetchManifest asks the peers for a manifest. What one of them says is believed when it has the digest.
func (f *fetcher) fetchManifest(ctx context.Context, repository string, d digest.Digest) (mediaType string,
	body []byte, err error) {
	errs := []error{errNobody}
	for _, p := range f.anyOrder() {
		mediaType, body, err = p.manifest(ctx, repository, string(d))
		if err == nil && digest.FromBytes(body) != d {
			err = fmt.Errorf("%s sent another manifest", p.name)
			f.o.Log.WithError(err).WithField("digest", d).Error("registry got other bytes than it asked for")
		}
		if err == nil {
			return mediaType, body, nil
		}
		errs = append(errs, err)
	}
	return "", nil, errors.Join(errs...)
}

// blob makes sure that a repository has a blob. What one peer breaks off another one goes on with; where the whole then
// has another digest, each peer is asked for all of it.
func (f *fetcher) blob(ctx context.Context, repository string, d v1.Descriptor) error {
	to := f.store.Repository(repository)
	if size, err := to.TouchBlob(d.Digest); err == nil && size == d.Size {
		return nil
	}
	if there, err := to.Mount(ctx, "", d.Digest); err != nil || there {
		return err
	}
	u, err := f.upload(ctx, to, repository, d)
	if err != nil {
		return err
	}
	err = f.receive(ctx, u, f.anyOrder(), repository, d)
	if !errors.Is(err, storage.ErrDigest) {
		return err
	}
	f.o.Log.WithError(err).Error("registry got other bytes than it asked for, it asks each registry alone")
	errs := []error{err}
	for _, p := range f.anyOrder() {
		if u, err = to.NewUpload(ctx, owner); err != nil {
			return err
		}
		err := f.receive(ctx, u, []*peer{p}, repository, d)
		if err == nil || ctx.Err() != nil {
			return err
		}
		errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
	}
	return errors.Join(errs...)
}

// receive fills an upload from one peer after the other and commits it. What was received stays for the next look,
// unless it has the wrong digest or the disk is full.
func (f *fetcher) receive(ctx context.Context, u *storage.Upload, from []*peer, repository string,
	d v1.Descriptor) (err error) {
	defer func() {
		if errors.Is(err, storage.ErrDigest) || errors.Is(err, storage.ErrNoSpace) {
			err = errors.Join(err, u.Cancel(context.WithoutCancel(ctx)))
		}
		err = errors.Join(err, u.Release())
	}()
	if err := f.store.Room(d.Size - u.Size()); err != nil {
		return err
	}
	errs := []error{errNobody}
	for _, p := range from {
		if u.Size() == d.Size {
			break
		}
		err := p.blob(ctx, repository, d, u, f.limit)
		if errors.Is(err, storage.ErrNoSpace) {
			return err
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if u.Size() != d.Size {
		return errors.Join(errs...)
	}
	return u.Commit(ctx, d.Digest)
}

// fetching is the upload of the blob that is being fetched.
type fetching struct {
	Repository string        `json:"repository"`
	Digest     digest.Digest `json:"digest"`
	Upload     string        `json:"upload"`
}

// upload goes on with the upload of a blob that was cut short, or begins one and remembers it.
func (f *fetcher) upload(ctx context.Context, to storage.Repository, repository string,
	d v1.Descriptor) (*storage.Upload, error) {
	path := f.o.file(fetchingFile)
	var last fetching
	raw, err := os.ReadFile(path)
	if err == nil && json.Unmarshal(raw, &last) == nil && last.Repository == repository && last.Digest == d.Digest {
		u, err := to.Upload(ctx, last.Upload, owner)
		if err == nil && u.Size() <= d.Size {
			return u, nil
		}
		if err == nil {
			err = errors.Join(u.Cancel(ctx), u.Release())
		}
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return nil, err
		}
	}
	u, err := to.NewUpload(ctx, owner)
	if err != nil {
		return nil, err
	}
	if raw, err = json.Marshal(fetching{repository, d.Digest, u.ID()}); err == nil {
		err = renameio.WriteFile(path, raw, 0o600)
	}
	if err != nil { // it is begun anew after a kill then
		f.o.Log.WithError(err).Warn("registry cannot remember how far a blob is")
	}
	return u, nil
}

// readAtMost reads an answer that has no more than a number of bytes.
func readAtMost(r io.Reader, most int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(body)) > most {
		err = fmt.Errorf("the answer has more than %d bytes", most)
	}
	return body, err
}
