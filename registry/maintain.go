package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/registry/layout"
)

// Root is a registry's directory opened for maintenance, while no server uses it.
type Root struct {
	store *layout.Store
	lock  *os.File
}

// OpenRoot locks a root and mends what a crash left. It refuses a root that a server uses.
func OpenRoot(root string, log *logrus.Entry) (*Root, error) {
	if err := isRoot(root); err != nil {
		return nil, err
	}
	if log == nil {
		log = discard()
	}
	lock, err := lockRoot(root)
	if err != nil {
		return nil, err
	}
	r := &Root{lock: lock}
	report := func(d digest.Digest, away string) {
		log.WithFields(logrus.Fields{"digest": d, "quarantine": away}).
			Error("registry blob is corrupt on disk and was moved away, push its image again")
	}
	if r.store, err = layout.Open(root, layout.Options{Report: report}); err == nil {
		_, err = r.store.Check()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open registry root %s: %w", root, err), lock.Close())
	}
	return r, nil
}

// Close releases the root.
func (r *Root) Close() error { return errors.Join(r.store.Close(), r.lock.Close()) }

// Collect removes blobs that no manifest names.
func (r *Root) Collect(ctx context.Context, o layout.CollectOptions) (layout.CollectReport, error) {
	return r.store.Collect(ctx, o)
}

// Verify hashes every blob.
func (r *Root) Verify(ctx context.Context) (layout.VerifyReport, error) { return r.store.Verify(ctx) }

// Listed is one image of a root.
type Listed struct {
	Repository string        `json:"repository"`
	Tags       []string      `json:"tags"`
	Digest     digest.Digest `json:"digest"`
	MediaType  string        `json:"mediaType"`
	// Bytes of the manifest and of what it names, shared layers counted for each image.
	Bytes int64 `json:"bytes"`
}

// Usage is what a repository takes on disk.
type Usage struct {
	Repository string `json:"repository"`
	// Bytes of all its blobs, Own those that no other repository has.
	Bytes int64 `json:"bytes"`
	Own   int64 `json:"own"`
}

// List names the images below root. It needs no lock: a server may run.
func List(root string) ([]Listed, error) {
	store, repos, err := look(root)
	if err != nil {
		return nil, err
	}
	out := []Listed{}
	for _, repo := range repos {
		images, err := store.Images(repo)
		if err != nil {
			return nil, err
		}
		for _, i := range images {
			out = append(out, Listed{Repository: repo, Tags: i.Tags, Digest: i.Digest, MediaType: i.MediaType, Bytes: i.Bytes})
		}
	}
	return out, nil
}

// DiskUsage tells what each repository takes, largest first, and what all blobs take together. It needs no lock.
func DiskUsage(root string) (usage []Usage, total int64, err error) {
	store, repos, err := look(root)
	if err != nil {
		return nil, 0, err
	}
	sizes, err := store.BlobSizes()
	if err != nil {
		return nil, 0, err
	}
	for _, n := range sizes {
		total += n
	}
	held := map[digest.Digest]int{}
	usage = []Usage{} // what is empty is a list in JSON, too
	blobs := map[string][]digest.Digest{}
	for _, repo := range repos {
		if blobs[repo], err = store.BlobsOf(repo); err != nil {
			return nil, 0, err
		}
		for _, d := range blobs[repo] {
			held[d]++
		}
	}
	for _, repo := range repos {
		u := Usage{Repository: repo}
		for _, d := range blobs[repo] {
			u.Bytes += sizes[d]
			if held[d] == 1 {
				u.Own += sizes[d]
			}
		}
		usage = append(usage, u)
	}
	sort.SliceStable(usage, func(i, j int) bool { return usage[i].Bytes > usage[j].Bytes })
	return usage, total, nil
}

func look(root string) (*layout.Store, []string, error) {
	if err := isRoot(root); err != nil {
		return nil, nil, err
	}
	store, err := layout.Open(root, layout.Options{})
	if err != nil {
		return nil, nil, err
	}
	repos, err := store.Repositories()
	return store, repos, err
}

// isRoot keeps a mistyped directory from being filled with an empty registry.
func isRoot(root string) error {
	if _, err := os.Stat(filepath.Join(root, layout.Subdirectory)); err != nil {
		return fmt.Errorf("open registry root %s: it is not the root of a registry: %w", root, err)
	}
	return nil
}
