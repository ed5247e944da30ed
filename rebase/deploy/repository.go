package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/rebase/deploy/bare"
)

// The names below which ostree-ext keeps layers and images. Source: ostree-ext, container/store.rs.
const (
	layerPrefix = "ostree/container/blob/"
	imagePrefix = "ostree/container/image/"
)

// Keys of an image commit's metadata. Source: as layerPrefix.
const (
	metaManifestDigest = "ostree.manifest-digest"
	metaManifest       = "ostree.manifest"
	metaConfig         = "ostree.container.image-config"
)

// repository is an ostree repository, worked on with the ostree program (its library would need cgo) beside what
// package bare does.
type repository struct{ path string }

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

// lock keeps two imports from one repository; it ends with the process.
func (r repository) lock() (unlock func(), err error) {
	dir, err := os.Open(filepath.Join(r.path, "tmp"))
	if err != nil {
		return nil, &Fault{Class: ClassNotOSTree, Op: "open ostree repository", Err: err,
			Next: "check that this is an ostree host"}
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(&Fault{Class: ClassInternal, Op: "lock ostree repository " + r.path, Err: err,
			Next: "wait until the other import has ended"}, dir.Close())
	}
	return func() {
		_ = dir.Close() // read-only; closing releases the lock
	}, nil
}

// ostree runs one command on the repository and gives its output.
func (r repository) ostree(ctx context.Context, args ...string) (string, error) {
	return runOSTree(ctx, append([]string{args[0], "--repo=" + r.path}, args[1:]...)...)
}

func runOSTree(ctx context.Context, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "ostree", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8") // in plain C libarchive refuses names that are not ASCII
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", ostreeFault(args, errs.String(), err)
	}
	return strings.TrimRight(out.String(), "\n"), nil // leading blanks mean something in `admin status`
}

// ostreeFault classifies by ostree's text, the only thing that it tells.
func ostreeFault(args []string, text string, err error) error {
	f := &Fault{Class: ClassInternal, Op: "run ostree " + strings.Join(args[:min(2, len(args))], " "),
		Err: fmt.Errorf("%w: %s", err, strings.TrimSpace(tail(text, 2000)))}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		f.Class, f.Next = ClassNotOSTree, "install ostree, or choose another deployer"
	case strings.Contains(text, "No space left on device"), strings.Contains(text, "min-free-space"):
		f.Class, f.Next = ClassDiskFull, "free space on the file systems of /sysroot and /boot"
	case strings.Contains(text, "Failed to find kernel"):
		f.Class, f.Next = ClassNoKernel, "build the image from a bootable OS image (usr/lib/modules/VERSION/vmlinuz)"
	case strings.Contains(text, "/etc merge"):
		f.Class, f.Next = ClassEtcConflict, "move the local file out of the way"
	}
	return f
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// refs lists all names in the repository.
func (r repository) refs() (map[string]bool, error) {
	objects, err := r.open()
	if err != nil {
		return nil, err
	}
	list, err := objects.Refs()
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for name := range list {
		have[name] = true
	}
	return have, nil
}

// kernelFiles gives size by content checksum of a commit's kernel and initramfs.
func (r repository) kernelFiles(commit string) (map[bare.Checksum]int64, error) {
	sum, err := bare.ParseChecksum(commit)
	if err != nil {
		return nil, err
	}
	objects, err := r.open()
	if err != nil {
		return nil, err
	}
	return objects.KernelFiles(sum)
}

func (r repository) open() (*bare.Repository, error) {
	objects, err := bare.Open(r.path)
	if err != nil {
		return nil, &Fault{Class: ClassNotOSTree, Op: "open ostree repository", Err: err,
			Next: "check that this is an ostree host"}
	}
	return objects, nil
}

// resolve gives the commit that a name stands for, "" when there is none. It reads the file that ostree keeps for each
// name (ostree documentation, "Anatomy of a repository": refs/heads), which costs less than a process for each of an
// image's layers.
func (r repository) resolve(ref string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(r.path, "refs/heads", ref))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read ref: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// missingLayers gives the indices of the layers that are not in the repository, each digest once.
func (r repository) missingLayers(layers []types.BlobInfo) ([]int, error) {
	seen := map[digest.Digest]bool{}
	var missing []int
	for i, l := range layers {
		commit, err := r.resolve(layerRef(l.Digest))
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

// metadata reads the strings of a commit's metadata.
func (r repository) metadata(commit string) (map[string]string, error) {
	sum, err := bare.ParseChecksum(commit)
	if err != nil {
		return nil, err
	}
	objects, err := r.open()
	if err != nil {
		return nil, err
	}
	c, err := objects.Commit(sum)
	if err != nil {
		return nil, err
	}
	return c.Metadata, nil
}
