package pull

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/types"
	"github.com/gofrs/flock"
	"github.com/opencontainers/go-digest"
	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/ostreerepo"
)

// The names below which ostree-ext keeps layers and images. Source: ostree-ext, container/store.rs.
const (
	layerPrefix = "ostree/container/blob/"
	imagePrefix = "ostree/container/image/"
)

// Keys of an image commit's metadata. Source: as layerPrefix.
const (
	MetaManifestDigest = "ostree.manifest-digest"
	metaManifest       = "ostree.manifest"
	metaConfig         = "ostree.container.image-config"
)

// Store is an ostree repository with images in it, named as ostree-ext names them. Nothing is opened before it is used.
type Store struct{ path string }

// NewStore gives the store in the repository at path.
func NewStore(path string) Store { return Store{path: path} }

// layerRef names the commit of one layer.
func layerRef(d digest.Digest) string { return layerPrefix + escape(d.String()) }

// imageRef names the commit of an image, by its name with transport ("docker://host/path@sha256:…").
func imageRef(name string) string { return imagePrefix + escape(name) }

// canonicalName adds the transport that a bare reference lacks.
func canonicalName(source string) string {
	if strings.HasPrefix(source, "oci:") || strings.HasPrefix(source, "docker://") {
		return source
	}
	return "docker://" + source
}

// escape makes a ref name of any string. Source: ostree-ext, refescape.rs.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		afterSlash := i == 0 || s[i-1] == '/'
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
			b.WriteByte(c)
		case c == '/' && !afterSlash && i < len(s)-1, c == '.' && !afterSlash:
			b.WriteByte(c)
		case c == '_':
			b.WriteString("__")
		default:
			fmt.Fprintf(&b, "_%02X_", c)
		}
	}
	return b.String()
}

// lock keeps out a second import into the repository; it ends with the process.
func (s Store) lock() (unlock func(), err error) {
	l := flock.New(filepath.Join(s.path, "tmp"), flock.SetFlag(os.O_RDONLY))
	locked, err := l.TryLock()
	if err != nil {
		return nil, &deploy.Fault{Class: deploy.ClassNotOSTree, Op: "open ostree repository", Err: err,
			Next: "check that this is an ostree host"}
	}
	if !locked {
		return nil, &deploy.Fault{Class: deploy.ClassInternal, Op: "lock ostree repository " + s.path,
			Err: errors.New("another process holds the lock"), Next: "wait until the other import has ended"}
	}
	return func() {
		_ = l.Unlock() // its file is a directory of the repository, and read-only
	}, nil
}

// Forget drops an image's name, unless it is deployed, and layers that no remaining image has; those of an import that
// never ended are among them. It tells whether there was something to drop.
func (s Store) Forget(name string, deployed map[string]bool) (bool, error) {
	unlock, err := s.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := s.removeLeftovers(); err != nil {
		return false, err
	}
	return s.drop(func(ref, commit string) bool { return ref == imageRef(name) && !deployed[commit] },
		func(int) bool { return true })
}

// Prune drops the names of images that no deployment was made from, and of layers that no remaining image has. Their
// content goes with ostree's next cleanup, at the latest with the next deployment. A system whose deployments came from
// no image keeps everything.
func (s Store) Prune(deployed map[string]bool) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	_, err = s.drop(func(_, commit string) bool { return !deployed[commit] }, func(kept int) bool { return kept > 0 })
	return err
}

// drop removes the names of unwanted images and of layers that no other image has, and tells whether there were any. It
// does nothing when a wanted image does not tell its layers, or when enough refuses the number of layers that are kept.
func (s Store) drop(unwanted func(ref, commit string) bool, enough func(kept int) bool) (bool, error) {
	objects, err := s.open()
	if err != nil {
		return false, err
	}
	refs, err := objects.Refs()
	if err != nil {
		return false, err
	}
	var drop []string
	keep := map[string]bool{}
	for ref, commit := range refs {
		if !strings.HasPrefix(ref, imagePrefix) {
			continue
		}
		if unwanted(ref, commit) {
			drop = append(drop, ref)
			continue
		}
		layers, err := s.layersOf(commit)
		if err != nil {
			return false, err
		}
		if len(layers) == 0 {
			return false, nil // any layer may be its
		}
		for _, l := range layers {
			keep[layerRef(l)] = true
		}
	}
	if !enough(len(keep)) {
		return false, nil
	}
	for ref := range refs {
		if strings.HasPrefix(ref, layerPrefix) && !keep[ref] {
			drop = append(drop, ref)
		}
	}
	// images first: a name says that all layers are there
	slices.SortFunc(drop, func(a, b string) int { return strings.Compare(b, a) })
	return len(drop) > 0, objects.DeleteRefs(drop...)
}

// layersOf reads the layers of an image commit; none when the commit does not tell.
func (s Store) layersOf(commit string) ([]digest.Digest, error) {
	metadata, err := s.Metadata(commit)
	raw := metadata[metaManifest]
	if err != nil || raw == "" {
		return nil, err
	}
	m, err := manifest.FromBlob([]byte(raw), manifest.GuessMIMEType([]byte(raw)))
	if err != nil {
		return nil, nil //nolint:nilerr // another program's commit: it does not tell
	}
	var layers []digest.Digest
	for _, l := range m.LayerInfos() {
		layers = append(layers, l.Digest)
	}
	return layers, nil
}

// KernelFiles gives size by content checksum of a commit's kernel and initramfs.
func (s Store) KernelFiles(commit string) (map[ostreerepo.Checksum]int64, error) {
	sum, err := ostreerepo.ParseChecksum(commit)
	if err != nil {
		return nil, err
	}
	objects, err := s.open()
	if err != nil {
		return nil, err
	}
	return objects.KernelFiles(sum)
}

func (s Store) open() (*ostreerepo.Repository, error) {
	objects, err := ostreerepo.Open(s.path)
	if err != nil {
		return nil, &deploy.Fault{Class: deploy.ClassNotOSTree, Op: "open ostree repository", Err: err,
			Next: "check that this is an ostree host"}
	}
	return objects, nil
}

// missingLayers gives the indices of the layers that are not in the repository, each digest once.
func (s Store) missingLayers(layers []types.BlobInfo) ([]int, error) {
	objects, err := s.open()
	if err != nil {
		return nil, err
	}
	seen := map[digest.Digest]bool{}
	var missing []int
	for i, l := range layers {
		commit, err := objects.Resolve(layerRef(l.Digest))
		if err != nil {
			return nil, err
		}
		if commit == "" && !seen[l.Digest] {
			seen[l.Digest] = true
			missing = append(missing, i)
		}
	}
	return missing, nil
}

// Metadata reads the strings of a commit's metadata.
func (s Store) Metadata(commit string) (map[string]string, error) {
	sum, err := ostreerepo.ParseChecksum(commit)
	if err != nil {
		return nil, err
	}
	objects, err := s.open()
	if err != nil {
		return nil, err
	}
	c, err := objects.Commit(sum)
	if err != nil {
		return nil, err
	}
	return c.Metadata, nil
}

// present finds an image that was imported before. Only a digest in the name tells that the content is still the same;
// the ref is written last, so it proves that all is there.
func (s Store) present(name string) (Imported, error) {
	objects, err := s.open()
	if err != nil {
		return Imported{}, err
	}
	ref := imageRef(name)
	commit, err := objects.Resolve(ref)
	if err != nil || commit == "" || !strings.Contains(name, "@"+string(digest.Canonical)+":") {
		return Imported{}, err
	}
	done, err := s.describe(commit)
	if err != nil || done.ManifestDigest == "" {
		return Imported{}, err
	}
	done.Ref, done.Reused = ref, true
	return done, nil
}

// describe reads what commitImage wrote.
func (s Store) describe(commit string) (Imported, error) {
	metadata, err := s.Metadata(commit)
	if err != nil {
		return Imported{}, err
	}
	done := Imported{Commit: commit, ManifestDigest: digest.Digest(metadata[MetaManifestDigest])}
	if raw := metadata[metaConfig]; raw != "" {
		var config imgspecv1.Image
		if err := json.Unmarshal([]byte(raw), &config); err != nil {
			return Imported{}, fmt.Errorf("read image configuration of commit %s: %w", commit, err)
		}
		done.Labels = config.Config.Labels
	}
	return done, nil
}

// expansion guesses how much larger than its blob a layer becomes in the repository; OS layers compress to 35–50 %.
const expansion = 3

// removeLeftovers clears what a killed import left; the lock makes sure that no import uses it.
func (s Store) removeLeftovers() error {
	old, err := filepath.Glob(filepath.Join(s.path, "tmp", ostreerepo.StagingPrefix+"*"))
	if err != nil {
		return fmt.Errorf("find leftovers: %w", err)
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove leftovers: %w", err)
		}
	}
	return nil
}

// checkSpace refuses an import that would fill the disk.
func (s Store) checkSpace(f *fetched, missing []int) error {
	var need int64
	for _, i := range missing {
		need += max(f.layers[i].Size, 0) * expansion
	}
	return deploy.RequireSpace(s.path, need, "import image")
}
