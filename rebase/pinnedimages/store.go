package pinnedimages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/BurntSushi/toml"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/program"
	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/nodedisk"
)

const (
	// crioDir is there where CRI-O is the node's container runtime.
	crioDir = "/etc/crio"
	// dropIn is the file that tells CRI-O to keep images; MCO's agent has it at the same place.
	dropIn = crioDir + "/crio.conf.d/50-pinned-images"
	// imageStore is where CRI-O and podman keep images (containers-storage.conf(5)).
	imageStore = "/var/lib/containers/storage"
	// unpacked is how many times its compressed size an image may take; MCO counts with the same.
	unpacked = 2
	// reserve is what must stay free beside the images, in bytes: the kubelet removes images and pods before the disk is
	// full. 16 GiB as in MCO.
	reserve = 16 << 30
)

// authFiles are the kubelet's pull secret and those of the host's own pulls; the first that exists counts.
var authFiles = [...]string{"/var/lib/kubelet/config.json", "/run/ostree/auth.json", "/etc/ostree/auth.json"}

// Store is the image store that a node's CRI-O and podman share. Root and Reload are required.
type Store struct {
	// Root is the node's "/".
	Root string
	// Reload lets CRI-O read its configuration again.
	Reload func(context.Context) error
	// Reserve is how many bytes must stay free; default 16 GiB.
	Reserve int64
	// Log gets what is pulled.
	Log *logrus.Entry
}

// Pin lets the node have exactly these images pinned: it pulls what is missing, and only when all are there writes the
// drop-in and lets CRI-O read it. Images that are pinned no more stay until the kubelet removes them.
func (s Store) Pin(ctx context.Context, images []string) error {
	if len(images) == 0 {
		return s.unpin(ctx)
	}
	if _, err := os.Stat(s.at(crioDir)); err != nil {
		return fmt.Errorf("pin images: this node has no CRI-O (%w): only CRI-O keeps pinned images", err)
	}
	missing, err := s.missing(ctx, images)
	if err != nil {
		return err
	}
	auth := s.authFile()
	if err := s.room(ctx, missing, auth); err != nil {
		return err
	}
	for _, image := range missing {
		s.Log.WithField("image", image).Info("pulling an image to pin")
		args := []string{"pull", "--quiet"}
		if auth != "" {
			args = append(args, "--authfile", auth)
		}
		if _, err := program.Run(ctx, "podman", append(args, image)...); err != nil {
			return fmt.Errorf("pull image %s to pin: %w", image, err)
		}
	}
	return s.write(ctx, images)
}

// missing are the images that the store does not have.
func (s Store) missing(ctx context.Context, images []string) ([]string, error) {
	var out []string
	for _, image := range images {
		_, err := program.Run(ctx, "podman", "image", "exists", image)
		// podman-image-exists(1): 1 means that there is none.
		var exit *exec.ExitError
		switch {
		case err == nil:
		case errors.As(err, &exit) && exit.ExitCode() == 1:
			out = append(out, image)
		default:
			return nil, fmt.Errorf("look for image %s: %w", image, err)
		}
	}
	return out, nil
}

// room refuses images that the file system of the store has no place for, before the first of them is pulled.
func (s Store) room(ctx context.Context, images []string, auth string) error {
	if len(images) == 0 {
		return nil
	}
	need := s.Reserve
	if need == 0 {
		need = reserve
	}
	for _, image := range images {
		found, err := pull.Inspect(ctx, image, pull.Options{Root: s.Root, AuthFile: auth, AllowUnbootable: true})
		if err != nil {
			return fmt.Errorf("find size of image %s to pin: %w", image, err)
		}
		need += unpacked * found.Bytes
	}
	dir := s.at(imageStore)
	for dir != s.Root {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return deploy.RequireSpace(dir, need, fmt.Sprintf("pull %d images to pin", len(images)))
}

func (s Store) authFile() string {
	for _, name := range authFiles {
		if _, err := os.Stat(s.at(name)); err == nil {
			return s.at(name)
		}
	}
	return ""
}

func (s Store) at(path string) string { return filepath.Join(s.Root, path) }

// write writes the drop-in and lets CRI-O read it, unless it says the same already.
func (s Store) write(ctx context.Context, images []string) error {
	want, err := crioConfig(images)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(s.at(dropIn))
	if err == nil && bytes.Equal(have, want) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.at(dropIn)), 0o755); err != nil {
		return fmt.Errorf("make directory of CRI-O's drop-ins: %w", err)
	}
	if err := nodedisk.WriteFile(s.at(dropIn), want, 0o644); err != nil {
		return fmt.Errorf("write pinned images: %w", err)
	}
	if err := s.Reload(ctx); err != nil {
		// The next try must not take the drop-in for read.
		return errors.Join(fmt.Errorf("let CRI-O read its pinned images: %w", err), os.Remove(s.at(dropIn)))
	}
	return nil
}

// unpin removes the drop-in once CRI-O has read that it is to keep nothing. Until then it stays, for the next try.
func (s Store) unpin(ctx context.Context) error {
	if _, err := os.Stat(s.at(dropIn)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	nothing, err := crioConfig(nil)
	if err != nil {
		return err
	}
	if err := nodedisk.WriteFile(s.at(dropIn), nothing, 0o644); err != nil {
		return fmt.Errorf("write pinned images: %w", err)
	}
	if err := s.Reload(ctx); err != nil {
		return fmt.Errorf("let CRI-O read its pinned images: %w", err)
	}
	if err := os.Remove(s.at(dropIn)); err != nil {
		return fmt.Errorf("remove pinned images: %w", err)
	}
	return nil
}

// crioConfig is CRI-O's drop-in, in the order of names (crio.conf(5), pinned_images).
func crioConfig(images []string) ([]byte, error) {
	type image struct {
		PinnedImages []string `toml:"pinned_images"`
	}
	type crio struct {
		Image image `toml:"image"`
	}
	var out bytes.Buffer
	if err := toml.NewEncoder(&out).Encode(struct {
		Crio crio `toml:"crio"`
	}{crio{image{slices.Sorted(slices.Values(images))}}}); err != nil {
		return nil, fmt.Errorf("write pinned images: %w", err)
	}
	return out.Bytes(), nil
}
