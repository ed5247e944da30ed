package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"
	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/rebase/deploy/bare"
)

// expansion guesses how much larger than its blob a layer becomes in the repository; OS layers compress to 35–50 %.
const expansion = 3

// present finds an image that was imported before. Only a digest in the name tells that the content is still the same;
// the ref is written last, so it proves that all is there.
func (r repository) present(name string) (Imported, error) {
	ref := imageRef(name)
	commit, err := r.resolve(ref)
	if err != nil || commit == "" || !strings.Contains(name, "@"+string(digest.Canonical)+":") {
		return Imported{}, err
	}
	done, err := r.describe(commit)
	if err != nil || done.ManifestDigest == "" {
		return Imported{}, err
	}
	done.Ref, done.Reused = ref, true
	return done, nil
}

// describe reads what commitImage wrote.
func (r repository) describe(commit string) (Imported, error) {
	metadata, err := r.metadata(commit)
	if err != nil {
		return Imported{}, err
	}
	done := Imported{Commit: commit, ManifestDigest: digest.Digest(metadata[metaManifestDigest])}
	if raw := metadata[metaConfig]; raw != "" {
		var config imgspecv1.Image
		if err := json.Unmarshal([]byte(raw), &config); err != nil {
			return Imported{}, fmt.Errorf("read image configuration of commit %s: %w", commit, err)
		}
		done.Labels = config.Config.Labels
	}
	return done, nil
}

// commitImage overlays the layers' trees and commits the result under ref. Only directories are read and written.
func (r repository) commitImage(ctx context.Context, objects *bare.Repository, f *fetched, ref string,
	o ImportOptions) (commit string, err error) {
	tree, err := r.overlay(objects, f.layers)
	if err != nil {
		return "", classify("merge layers", err)
	}
	kernel, err := tree.Kernel()
	if err != nil {
		return "", err
	}
	if kernel == "" && !o.AllowUnbootable {
		return "", &Fault{Class: ClassNoKernel, Op: "check image",
			Err:  errors.New("it has no usr/lib/modules/VERSION/vmlinuz"),
			Next: "build it from a bootable OS image and keep its kernel"}
	}
	c := bare.Commit{Bootable: kernel != "", Timestamp: created(f),
		Metadata: map[string]string{metaManifestDigest: f.manifestDigest.String(),
			metaManifest: string(f.manifestRaw), metaConfig: string(f.configRaw)}}
	for key, value := range map[string]string{"version": f.config.Config.Labels["version"], "ostree.linux": kernel} {
		if value != "" {
			c.Metadata[key] = value
		}
	}
	tx, err := objects.Begin(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, tx.Close()) }()
	sum, err := tree.Commit(tx, c)
	if err != nil {
		return "", classify("commit image", err)
	}
	if err := tx.Install(map[string]bare.Checksum{ref: sum}); err != nil {
		return "", classify("commit image", err)
	}
	return sum.String(), nil
}

func (r repository) overlay(objects *bare.Repository, layers []types.BlobInfo) (*bare.Tree, error) {
	if len(layers) == 0 {
		return nil, errors.New("image has no layers")
	}
	tree := bare.NewImage()
	for _, l := range layers {
		name, err := r.resolve(layerRef(l.Digest))
		if err != nil {
			return nil, err
		}
		sum, err := bare.ParseChecksum(name)
		if err != nil {
			return nil, err
		}
		c, err := objects.Commit(sum)
		if err != nil {
			return nil, err
		}
		if err := tree.Overlay(objects.Tree(c), c.IsPlainLayer()); err != nil {
			return nil, err
		}
	}
	return tree, nil
}

// created makes the commit the same on every node.
func created(f *fetched) uint64 {
	if f.config.Created == nil || f.config.Created.Unix() < 0 {
		return 0
	}
	return uint64(f.config.Created.Unix())
}

// removeLeftovers clears what a killed import left; the lock makes sure that it is nobody's.
func (r repository) removeLeftovers() error {
	old, err := filepath.Glob(filepath.Join(r.path, "tmp", bare.StagingPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for leftovers: %w", err)
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove leftovers: %w", err)
		}
	}
	return nil
}

// checkSpace refuses an import that would fill the disk.
func (r repository) checkSpace(f *fetched, missing []int) error {
	var need int64
	for _, i := range missing {
		need += max(f.layers[i].Size, 0) * expansion
	}
	return requireSpace(r.path, need, "import image")
}

func requireSpace(dir string, need int64, op string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("read free space of %s: %w", dir, err)
	}
	free := int64(st.Bavail) * st.Bsize
	if free < need {
		return &Fault{Class: ClassDiskFull, Op: op,
			Err:  fmt.Errorf("%d MiB free on the file system of %s, about %d MiB needed", free>>20, dir, need>>20),
			Next: "free or add space there"}
	}
	return nil
}
