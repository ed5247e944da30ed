package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/distribution/distribution/v3"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Repository is one repository of a Store.
type Repository struct {
	s    *Store
	name string
}

// open is distribution's repository.
func (r Repository) open(ctx context.Context) (distribution.Repository, error) {
	named, err := reference.WithName(r.name)
	if err != nil {
		return nil, fmt.Errorf("name repository %s: %w", r.name, err)
	}
	return r.s.registry.Repository(r.s.context(ctx), named)
}

// StatBlob returns the size of a blob. The link decides what is visible, and the bytes must have the digest.
func (r Repository) StatBlob(d digest.Digest) (int64, error) {
	target, err := r.s.driver.readLink(layerLink(r.name, d))
	if err != nil {
		return 0, fmt.Errorf("find blob %s in %s: %w", d, r.name, err)
	}
	fi, err := r.s.driver.blobs.stat(target)
	if err != nil {
		return 0, fmt.Errorf("find blob %s in %s: %w", d, r.name, err)
	}
	return fi.Size(), nil
}

// TouchBlob is StatBlob for a client that does not push what it found: the blob is marked as used now.
func (r Repository) TouchBlob(d digest.Digest) (int64, error) {
	r.s.maintenance.RLock()
	defer r.s.maintenance.RUnlock()
	target, err := r.s.driver.readLink(layerLink(r.name, d))
	if err != nil {
		return 0, fmt.Errorf("find blob %s in %s: %w", d, r.name, err)
	}
	r.s.pins.add(target)
	return r.s.driver.blobs.touch(target)
}

// OpenBlob opens a blob. Bytes that were not hashed since they last changed are hashed first.
func (r Repository) OpenBlob(d digest.Digest) (*os.File, error) {
	target, err := r.s.driver.readLink(layerLink(r.name, d))
	if err != nil {
		return nil, fmt.Errorf("open blob %s of %s: %w", d, r.name, err)
	}
	f, _, err := r.s.driver.blobs.open(target)
	if err != nil {
		return nil, fmt.Errorf("open blob %s of %s: %w", d, r.name, err)
	}
	return f, nil
}

// DeleteBlob removes a blob from the repository. Its bytes stay until Collect.
func (r Repository) DeleteBlob(ctx context.Context, d digest.Digest) error {
	r.s.maintenance.RLock()
	defer r.s.maintenance.RUnlock()
	if err := r.s.driver.unlink(ctx, layerLink(r.name, d)); err != nil {
		return fmt.Errorf("delete blob %s of %s: %w", d, r.name, err)
	}
	return nil
}

// unlink deletes a link with its directory.
func (d *driver) unlink(ctx context.Context, link string) error {
	if _, err := d.Stat(ctx, link); err != nil {
		return known(err)
	}
	return known(d.Delete(ctx, path.Dir(link)))
}

// mount is an option of distribution's Create: the blob is known, only its link is made.
type mount struct {
	from reference.Canonical
	stat v1.Descriptor
}

func (m mount) Apply(v any) error {
	o, ok := v.(*distribution.CreateOptions)
	if !ok {
		return fmt.Errorf("mount blob: unexpected options %T", v)
	}
	o.Mount.ShouldMount, o.Mount.From, o.Mount.Stat = true, m.from, &m.stat
	return nil
}

// Mount links a blob of another repository, or of any when from is "", into this one. It reports whether the blob was
// there.
func (r Repository) Mount(ctx context.Context, from string, d digest.Digest) (bool, error) {
	r.s.maintenance.RLock()
	defer r.s.maintenance.RUnlock()
	target, err := r.s.driver.mountable(from, d)
	var size int64
	if err == nil {
		r.s.pins.add(target)
		size, err = r.s.driver.blobs.touch(target)
	}
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) {
		return false, nil
	}
	if err == nil {
		err = link(ctx, r, v1.Descriptor{Digest: target, Size: size})
	}
	if err == nil && d != target {
		err = r.s.writeLink(ctx, layerLink(r.name, d), target)
	}
	if err != nil {
		return false, fmt.Errorf("mount blob %s: %w", d, known(err))
	}
	return true, nil
}

// link mounts a blob by its sha256: distribution's mount of a sha512 makes a link that leads nowhere.
func link(ctx context.Context, r Repository, blob v1.Descriptor) error {
	repo, err := r.open(ctx)
	if err != nil {
		return err
	}
	from, err := reference.WithDigest(repo.Named(), blob.Digest)
	if err != nil {
		return err
	}
	w, err := repo.Blobs(r.s.context(ctx)).Create(r.s.context(ctx), mount{from, blob})
	if mounted := (distribution.ErrBlobMounted{}); errors.As(err, &mounted) {
		return nil
	}
	if err != nil {
		return err
	}
	// Distribution opens an upload when it cannot make the link, and keeps its reason for itself.
	return errors.Join(errors.New("the link could not be written"), w.Cancel(r.s.context(ctx)))
}

// mountable finds the bytes of a blob by its digest in a repository, or anywhere when from is "". Bytes are stored by
// their sha256, so the link of some repository has to tell which ones a sha512 means.
func (t tree) mountable(from string, d digest.Digest) (digest.Digest, error) {
	switch {
	case from != "":
		return t.readLink(layerLink(from, d))
	case d.Algorithm() == digest.SHA256:
		return d, nil
	}
	names, err := t.repositories()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if target, err := t.readLink(layerLink(name, d)); err == nil {
			return target, nil
		}
	}
	return "", ErrNotFound
}
