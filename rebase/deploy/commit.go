package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// maxMetadata bounds one string handed to ostree on its command line. Source: Linux, MAX_ARG_STRLEN (128 KiB), less the key.
const maxMetadata = 120 << 10

// expansion guesses how much larger than its blob a layer becomes in the repository; OS layers compress to 35–50 %.
const expansion = 3

const mergePrefix = "dayone-merge-"

// present finds an image that was imported before. Only a digest in the name tells that the content is still the same; the ref is
// written last, so it proves that all is there.
func (r repository) present(ctx context.Context, name string) (Imported, error) {
	ref := imageRef(name)
	commit, err := r.resolve(ref)
	if err != nil || commit == "" || !strings.Contains(name, "@"+string(digest.Canonical)+":") {
		return Imported{}, err
	}
	done, err := r.describe(ctx, commit)
	if err != nil || done.ManifestDigest == "" {
		return Imported{}, err
	}
	done.Ref, done.Reused = ref, true
	return done, nil
}

// describe reads what commitImage wrote.
func (r repository) describe(ctx context.Context, commit string) (Imported, error) {
	manifestDigest, err := r.metadata(ctx, commit, metaManifestDigest)
	if err != nil {
		return Imported{}, err
	}
	done := Imported{Commit: commit, ManifestDigest: digest.Digest(manifestDigest)}
	raw, err := r.metadata(ctx, commit, metaConfig)
	if err != nil {
		return Imported{}, err
	}
	if raw != "" {
		var config imgspecv1.Image
		if err := json.Unmarshal([]byte(raw), &config); err != nil {
			return Imported{}, fmt.Errorf("read image configuration of commit %s: %w", commit, err)
		}
		done.Labels = config.Config.Labels
	}
	return done, nil
}

// commitImage overlays the layers and commits the result under ref.
func (r repository) commitImage(ctx context.Context, f *fetched, ref string, o ImportOptions) (commit string, err error) {
	if err := r.removeLeftovers(); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Join(r.path, "tmp"), mergePrefix) // below the repository: hard links need one file system
	if err != nil {
		return "", fmt.Errorf("make directory for the image's tree: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	tree := filepath.Join(work, "tree")
	if err := r.mergeAll(ctx, f, work, tree); err != nil {
		return "", classify("merge layers", err)
	}
	kernel, err := hasKernel(tree)
	if err != nil {
		return "", err
	}
	if !kernel && !o.AllowUnbootable {
		return "", &Fault{Class: ClassNoKernel, Op: "check image", Err: errors.New("it has no usr/lib/modules/VERSION/vmlinuz"),
			Next: "build it from a bootable OS image and keep its kernel"}
	}
	args := []string{"commit", "--branch=" + ref, "--parent=none", "--no-bindings", "--tree=dir=" + tree, "--link-checkout-speedup",
		"--timestamp=@" + fmt.Sprint(created(f)), "--add-metadata-string=" + metaManifestDigest + "=" + f.manifestDigest.String()}
	if kernel {
		args = append(args, "--bootable")
	}
	for key, value := range map[string]string{metaManifest: string(f.manifestRaw), metaConfig: string(f.configRaw), "version": f.config.Config.Labels["version"]} {
		if len(value) > maxMetadata {
			o.log().WithField("key", key).Warn("image metadata is too long for the commit, left out")
		} else if value != "" {
			args = append(args, "--add-metadata-string="+key+"="+value)
		}
	}
	return r.ostree(ctx, args...)
}

// created makes the commit the same on every node.
func created(f *fetched) int64 {
	if f.config.Created == nil || f.config.Created.Unix() < 0 {
		return 0
	}
	return f.config.Created.Unix()
}

func (r repository) mergeAll(ctx context.Context, f *fetched, work, tree string) error {
	if len(f.layers) == 0 {
		return errors.New("image has no layers")
	}
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	for _, l := range f.layers {
		upper := filepath.Join(work, "layer")
		if _, err := r.ostree(ctx, "checkout", "-H", layerRef(l.Digest), upper); err != nil {
			return err
		}
		if err := mergeLayer(tree, upper); err != nil {
			return err
		}
		if err := os.RemoveAll(upper); err != nil {
			return err
		}
	}
	return nil
}

// removeLeftovers clears what a killed import left; the lock makes sure that it is nobody's.
func (r repository) removeLeftovers() error {
	old, err := filepath.Glob(filepath.Join(r.path, "tmp", mergePrefix+"*"))
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

func hasKernel(tree string) (bool, error) {
	kernels, err := filepath.Glob(filepath.Join(tree, "usr/lib/modules/*/vmlinuz"))
	if err != nil {
		return false, fmt.Errorf("look for the kernel: %w", err)
	}
	return len(kernels) > 0, nil
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
		return &Fault{Class: ClassDiskFull, Op: op, Err: fmt.Errorf("%d MiB free on the file system of %s, about %d MiB needed", free>>20, dir, need>>20),
			Next: "free or add space there"}
	}
	return nil
}
