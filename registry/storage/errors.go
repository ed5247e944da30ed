package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/distribution/distribution/v3"
	storagedriver "github.com/distribution/distribution/v3/registry/storage/driver"
	"github.com/opencontainers/go-digest"
)

// Errors that callers branch on. They are wrapped with the name of what is concerned.
var (
	// ErrNotFound: the repository has no such blob, manifest, tag or upload.
	ErrNotFound = errors.New("not found")
	// ErrCorrupt: the bytes on disk do not have the digest of their name; they were moved to the quarantine.
	ErrCorrupt = errors.New("corrupt on disk")
	// ErrNoSpace: the disk budget or the disk itself would be exceeded.
	ErrNoSpace = errors.New("no space for more images")
	// ErrDigest: a digest is malformed or of an algorithm other than sha256 and sha512, or does not match the bytes.
	ErrDigest = errors.New("invalid digest")
	// ErrManifest: distribution cannot read the manifest.
	ErrManifest = errors.New("invalid manifest")
	// ErrBusy: another request is using the upload.
	ErrBusy = errors.New("upload is in use")
	// ErrTooManyUploads: the account has to finish or cancel uploads before it starts another.
	ErrTooManyUploads = errors.New("too many unfinished uploads of this account")
)

// MissingError lists what a manifest needs and its repository does not have.
type MissingError struct{ Digests []digest.Digest }

func (e *MissingError) Error() string { return fmt.Sprintf("the repository lacks %v", e.Digests) }

// known gives an error of distribution, its driver interface or the system the kind that callers branch on.
func known(err error) error {
	var path storagedriver.PathNotFoundError
	var badDigest distribution.ErrBlobInvalidDigest
	var tag distribution.ErrTagUnknown
	var repository distribution.ErrRepositoryUnknown
	kind := error(nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.As(err, &path), errors.As(err, &tag),
		errors.As(err, &repository), errors.Is(err, distribution.ErrBlobUnknown),
		errors.Is(err, distribution.ErrBlobUploadUnknown):
		kind = ErrNotFound
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		kind = ErrNoSpace
	case errors.As(err, &badDigest):
		kind = ErrDigest
	}
	if kind == nil || errors.Is(err, kind) {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
