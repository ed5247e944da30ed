package buildahengine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containers/image/v5/manifest"

	"dayone.dev/dayone/build"
)

// renewFile in the engine's directory asks the next build that has the storage alone to begin with an empty one.
const renewFile = "renew"

// errRepacked says that the registry got a layer of the base under another digest: the nodes would download it again.
// The storage has the base's layers and does not know any more under which digests it pulled them; a disk that was full
// at that moment does that.
var errRepacked = errors.New("the build storage no longer knows the digests of the base's layers")

// keptBase checks that a pushed manifest has the base's layers under the base's digests. An image that does not stand
// on the base is not looked at.
func keptBase(s session, id string, raw []byte) error {
	image, err := s.store.Image(id)
	if err != nil {
		return fmt.Errorf("find built image: %w", err)
	}
	layers, err := shelf{s.store, s.Driver}.layers()
	if err != nil {
		return err
	}
	var contents []string
	for top := image.TopLayer; top != ""; top = layers[top].Parent {
		contents = append(contents, layers[top].UncompressedDigest.String())
	}
	slices.Reverse(contents)
	pushed, err := manifest.FromBlob(raw, manifest.GuessMIMEType(raw))
	if err != nil {
		return fmt.Errorf("read pushed manifest: %w", err)
	}
	var digests []string
	for _, l := range pushed.LayerInfos() {
		digests = append(digests, l.Digest.String())
	}
	return repacked(s.Job.BaseLayers, contents, digests)
}

// repacked compares the base's layers with an image's: contents are the digests of its unpacked layers, digests those
// of its blobs.
func repacked(base []build.BaseLayer, contents, digests []string) error {
	for i, l := range base {
		if i >= len(contents) || i >= len(digests) || contents[i] != l.DiffID {
			return nil
		}
		if digests[i] != l.Digest {
			return fmt.Errorf("layer %d is %s and was %s in the base: %w", i, digests[i], l.Digest, errRepacked)
		}
	}
	return nil
}

// askRenewal lets the next build that is alone begin with an empty storage. It outlives the process.
func askRenewal(root string) error {
	if err := os.WriteFile(filepath.Join(root, renewFile), nil, 0o600); err != nil {
		return fmt.Errorf("ask for an empty build storage: %w", err)
	}
	return nil
}

// renew empties the storage where that was asked for. The caller has the storage alone.
func renew(root, driver string) error {
	asked := filepath.Join(root, renewFile)
	if _, err := os.Stat(asked); err != nil {
		return nil // no build requested a renewal
	}
	// The request goes last: a build that is killed meanwhile leaves it to the next.
	for _, path := range []string{filepath.Join(root, "storage-"+driver), blobInfo(root), asked} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("empty the build storage: %w", err)
		}
	}
	return nil
}
