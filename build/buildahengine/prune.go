package buildahengine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containers/storage"
)

// defaultStorageLimit has room for two large bases with what three builds may add to them, in bytes.
const defaultStorageLimit = 24 << 30

// shelf holds the images that storage keeps between builds.
type shelf struct {
	store  storage.Store
	driver string
}

// touch notes that an image and the cached ones below it were used now: what was used least recently is pruned first.
// Times in the images themselves tell nothing, they are the base's.
func (s shelf) touch(id string) error {
	image, err := s.store.Image(id)
	if err != nil {
		return fmt.Errorf("find built image: %w", err)
	}
	layers, err := s.layers()
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for layer := image.TopLayer; layer != ""; layer = layers[layer].Parent {
		used[layer] = true
	}
	images, err := s.store.Images()
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	now := time.Now()
	for _, i := range images {
		if !used[i.TopLayer] {
			continue
		}
		if err := os.Chtimes(s.imageDir(i.ID), now, now); err != nil {
			return fmt.Errorf("note use of image: %w", err)
		}
	}
	return nil
}

func (s shelf) imageDir(id string) string {
	return filepath.Join(s.store.GraphRoot(), s.driver+"-images", id)
}

func (s shelf) layers() (map[string]storage.Layer, error) {
	list, err := s.store.Layers()
	if err != nil {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	out := map[string]storage.Layer{}
	for _, l := range list {
		out[l.ID] = l
	}
	return out, nil
}

// size is what layers take on disk, nearly: vfs copies what is below a layer into it.
func (s shelf) size(layers map[string]storage.Layer) int64 {
	var sum int64
	for _, l := range layers {
		for sum += max(0, l.UncompressedSize); s.driver == driverVFS && l.Parent != ""; {
			l = layers[l.Parent]
			sum += max(0, l.UncompressedSize)
		}
	}
	return sum
}

// prune brings storage below its limit: first layers that belong to nothing (a pull that was killed), then the images
// that were used least recently. The parent holds the storage alone meanwhile, so no running build uses any of it.
func (s shelf) prune(limit int64) error {
	if limit < 0 {
		return nil
	}
	layers, err := s.layers()
	if err != nil || s.size(layers) <= limit {
		return err
	}
	if err := s.dropLoose(layers); err != nil {
		return err
	}
	images, err := s.store.Images()
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	used := map[string]time.Time{}
	for _, i := range images {
		if info, err := os.Stat(s.imageDir(i.ID)); err == nil {
			used[i.ID] = info.ModTime()
		}
	}
	slices.SortStableFunc(images, func(a, b storage.Image) int { return used[a.ID].Compare(used[b.ID]) })
	for _, i := range images {
		if layers, err = s.layers(); err != nil || s.size(layers) <= limit {
			return err
		}
		if _, err := s.store.DeleteImage(i.ID, true); err != nil {
			return fmt.Errorf("remove image that was not used for long: %w", err)
		}
	}
	return nil
}

// dropLoose removes layers that no image stands on, tops first.
func (s shelf) dropLoose(layers map[string]storage.Layer) error {
	needed, err := s.needed(layers)
	if err != nil {
		return err
	}
	for before := -1; before != len(layers); {
		before = len(layers)
		parents := map[string]bool{}
		for _, l := range layers {
			parents[l.Parent] = true
		}
		for id := range layers {
			if needed[id] || parents[id] {
				continue
			}
			if err := s.store.DeleteLayer(id); err != nil {
				return fmt.Errorf("remove layer of a killed build: %w", err)
			}
			delete(layers, id)
		}
	}
	return nil
}

// needed are the layers that images stand on.
func (s shelf) needed(layers map[string]storage.Layer) (map[string]bool, error) {
	images, err := s.store.Images()
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	needed := map[string]bool{}
	for _, i := range images {
		for _, top := range append([]string{i.TopLayer}, i.MappedTopLayers...) {
			for ; top != "" && !needed[top]; top = layers[top].Parent {
				needed[top] = true
			}
		}
	}
	return needed, nil
}

const (
	// logsKept and logBytesKept bound what earlier builds left to read; the newest stay.
	logsKept     = 100
	logBytesKept = 512 << 20
	// cacheShare of the storage limit is for RUN --mount=type=cache of all builds together; above it the caches begin
	// anes.
	cacheShare = 4
)

// pruneFiles bounds logs and cache mounts below root; limit is that of the storage in bytes. The caller holds the
// directory alone.
func pruneFiles(root string, limit int64) error {
	if limit < 0 {
		return nil
	}
	caches, err := filepath.Glob(filepath.Join(temporary(root), cachePrefix+"*"))
	if err != nil {
		return fmt.Errorf("list cache mounts: %w", err)
	}
	var used int64
	for _, dir := range caches {
		used += sizeOf(dir)
	}
	var all []error
	if used > limit/cacheShare {
		for _, dir := range caches {
			all = append(all, os.RemoveAll(dir))
		}
	}
	return errors.Join(append(all, pruneLogs(filepath.Join(root, "logs")))...)
}

// pruneLogs goes by name: names begin with the time.
func pruneLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list logs: %w", err)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(b.Name(), a.Name()) })
	var bytes int64
	for i, entry := range entries {
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list logs: %w", err)
		}
		bytes += info.Size()
		if i < logsKept && bytes <= logBytesKept {
			continue
		}
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("remove old log: %w", err)
		}
	}
	return nil
}
