package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// tree is the directory of a root: links and names as they are on disk, without distribution.
type tree string

// full is a path of distribution's layout in the file system.
func (t tree) full(path string) string { return string(t) + path }

// repositories lists all repositories that have something in them, also uploads or blobs only, sorted.
func (t tree) repositories() ([]string, error) {
	var names []string
	start := t.full(repositories) + "/" // also where it is a link to another disk
	err := filepath.WalkDir(start, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return ignoreMissing(err)
		}
		if !e.IsDir() || !strings.HasPrefix(e.Name(), "_") {
			return nil
		}
		rel, err := filepath.Rel(start, filepath.Dir(path))
		if err == nil && (len(names) == 0 || names[len(names)-1] != rel) {
			names = append(names, rel)
		}
		return filepath.SkipDir
	})
	if err != nil {
		return nil, fmt.Errorf("list repositories: %w", err)
	}
	return names, nil
}

// readLink returns the digest that a link file names.
func (t tree) readLink(path string) (digest.Digest, error) {
	b, err := os.ReadFile(t.full(path))
	if err != nil {
		return "", known(err)
	}
	d, err := ParseDigest(strings.TrimSpace(string(b)))
	if err != nil {
		return "", fmt.Errorf("read link %s: %w", path, err)
	}
	return d, nil
}

// links lists the digests of the links below dir: layers, or revisions of manifests. Distribution's enumeration passes
// over manifests that cannot be read: their layers would be collected.
func (t tree) links(dir string) ([]digest.Digest, error) {
	var out []digest.Digest
	for _, a := range []digest.Algorithm{digest.SHA256, digest.SHA512} {
		entries, err := os.ReadDir(t.full(dir) + "/" + string(a))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list digests: %w", err)
		}
		for _, e := range entries {
			d := digest.NewDigestFromEncoded(a, e.Name())
			if d.Validate() != nil {
				continue
			}
			if _, err := os.Stat(t.full(linkBelow(dir, d))); err == nil {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

func (t tree) relative(full string) string {
	return strings.TrimPrefix(filepath.ToSlash(full), t.full(top)+"/")
}

// newestRevision is what a tag was last set to.
func (t tree) newestRevision(index string) (found digest.Digest, ok bool) {
	dir := path.Join(index, string(digest.SHA256))
	entries, err := os.ReadDir(t.full(dir))
	if err != nil {
		return "", false
	}
	var newest time.Time
	for _, e := range entries {
		fi, err := e.Info()
		d := digest.NewDigestFromEncoded(digest.SHA256, e.Name())
		if err == nil && d.Validate() == nil && fi.ModTime().After(newest) {
			newest, found = fi.ModTime(), d
		}
	}
	return found, found != ""
}
