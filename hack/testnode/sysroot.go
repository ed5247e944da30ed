package testnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/cache"
	"dayone.dev/dayone/rebase/deploy/pull"
)

const (
	// Stateroot is ostree's name for the operating system on every node.
	Stateroot = "dayone"
	// stockRepository is the image name that a first deployment claims to have been installed from.
	stockRepository = "registry.example.com/ocp/stock-os"
	// templateVersion is raised when NewSysroot makes repositories of another kind.
	templateVersion = "v1"
)

// SysrootOptions describe what an installer would have put on a node's disk.
type SysrootOptions struct {
	// Base is the directory of an OCI layout with one bootable image, as baseimage.Ensure gives it.
	Base string
	// Reference is the name, without digest, that the first deployment's origin file gives its image; default
	// stockRepository.
	Reference string
	// KernelArguments of the first deployment; default "root=LABEL=root rw".
	KernelArguments []string
	// CacheDir holds one imported repository per base; default cache.Dir(). Hard links make more nodes cheap: same file
	// system as dir.
	CacheDir string
	// DiskSize and BootSize, in bytes, give the node a disk and a /boot that can be full; they live in memory as long as
	// the run. Default: this machine's disk, and /boot on it.
	DiskSize, BootSize int64
}

// NewSysroot makes dir an ostree sysroot with the base image as its one deployment. The image's layers are there under
// the refs that a rebase looks for, so that what a later image shares with the base is not fetched again.
func NewSysroot(ctx context.Context, dir string, o SysrootOptions) error {
	o, id, err := o.withDefaults()
	if err != nil {
		return err
	}
	template, err := o.template(ctx, id)
	if err != nil {
		return err
	}
	if o.BootSize != 0 {
		if own, err := exists(filepath.Join(template, ownTree)); err != nil || own {
			return errors.Join(err,
				errors.New("make sysroot: a /boot of its own is not played for an image whose root is composefs"))
		}
	}
	if err := o.disks(dir); err != nil {
		return fmt.Errorf("make sysroot: %w", err)
	}
	repo := filepath.Join(dir, "ostree/repo")
	for _, args := range [][]string{
		{"admin", "init-fs", dir},
		{"admin", "os-init", "--sysroot=" + dir, Stateroot},
		{"--repo=" + repo, "config", "set", "sysroot.bootloader", "none"}, // auto would look for GRUB
		{"--repo=" + repo, "pull-local", "--disable-fsync", filepath.Join(template, "repo")},
	} {
		if err := ostree(ctx, args...); err != nil {
			return fmt.Errorf("make sysroot: %w", err)
		}
	}
	commit, err := os.ReadFile(filepath.Join(template, "commit"))
	if err != nil {
		return fmt.Errorf("make sysroot: %w", err)
	}
	return o.deploy(ctx, dir, template, o.Reference+"@"+id.String(), string(commit))
}

// disks makes the directory, and mounts what has a size of its own; cleanUp unmounts it.
func (o SysrootOptions) disks(dir string) error {
	for _, d := range []struct {
		path string
		size int64
	}{{dir, o.DiskSize}, {filepath.Join(dir, "boot"), o.BootSize}} {
		if err := os.MkdirAll(d.path, 0o755); err != nil {
			return err
		}
		if d.size == 0 {
			continue
		}
		if err := unix.Mount("dayone-disk", d.path, "tmpfs", 0, fmt.Sprintf("mode=755,size=%d", d.size)); err != nil {
			return fmt.Errorf("mount disk of %d bytes: %w", d.size, err)
		}
	}
	return nil
}

func (o SysrootOptions) withDefaults() (SysrootOptions, digest.Digest, error) {
	if o.Reference == "" {
		o.Reference = stockRepository
	}
	if len(o.KernelArguments) == 0 {
		o.KernelArguments = []string{"root=LABEL=root", "rw"}
	}
	if o.CacheDir == "" {
		dir, err := cache.Dir()
		if err != nil {
			return o, "", err
		}
		o.CacheDir = dir
	}
	id, err := baseimage.Digest(o.Base)
	return o, id, err
}

// template gives a directory with the base imported once for all nodes: repo, and the commit's name.
func (o SysrootOptions) template(ctx context.Context, id digest.Digest) (string, error) {
	store := cache.Store{Dir: filepath.Join(o.CacheDir, "testnode", "templates")}
	as := o.Reference + "@" + id.String()
	name := strings.Join([]string{templateVersion, digest.FromString(as).Encoded()[:12]}, "-")
	return store.Ensure(ctx, name, func(dir string) error {
		repo := filepath.Join(dir, "repo")
		if err := ostree(ctx, "init", "--mode=bare", "--repo="+repo); err != nil {
			return err
		}
		done, err := pull.Import(ctx, repo, "oci:"+o.Base, pull.Options{As: as})
		if err != nil {
			return fmt.Errorf("import base image: %w", err)
		}
		if done.ManifestDigest != id {
			return fmt.Errorf("import base image: digest %s, want %s", done.ManifestDigest, id)
		}
		if err := checkOutOwn(ctx, dir, done.Commit); err != nil {
			return fmt.Errorf("import base image: %w", err)
		}
		return os.WriteFile(filepath.Join(dir, "commit"), []byte(done.Commit), 0o644)
	})
}

// deploy makes the first deployment, with the image's own ostree where the template has a tree to run it in.
func (o SysrootOptions) deploy(ctx context.Context, dir, template, image, commit string) (err error) {
	origin, err := os.CreateTemp(dir, "origin-")
	if err != nil {
		return fmt.Errorf("deploy base image: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(origin.Name())) }()
	_, err = fmt.Fprintf(origin, "[origin]\ncontainer-image-reference=ostree-unverified-registry:%s\n", image)
	if err := errors.Join(err, origin.Close()); err != nil {
		return fmt.Errorf("deploy base image: %w", err)
	}
	seenAs, tree := dir, filepath.Join(template, ownTree)
	own, err := exists(tree)
	if err != nil {
		return fmt.Errorf("deploy base image: %w", err)
	}
	if own {
		seenAs = sysrootInTree
	}
	args := []string{"admin", "deploy", "--sysroot=" + seenAs, "--os=" + Stateroot,
		"--origin-file=" + filepath.Join(seenAs, filepath.Base(origin.Name()))}
	for _, k := range o.KernelArguments {
		args = append(args, "--karg="+k)
	}
	args = append(args, commit)
	if own {
		err = ownOSTree(ctx, tree, dir, args...)
	} else {
		err = ostree(ctx, args...)
	}
	if err != nil {
		return fmt.Errorf("deploy base image: %w", err)
	}
	return nil
}

func ostree(ctx context.Context, args ...string) error {
	done := make(chan error, 1)
	onOwnThread(func() {
		err := denyFreeze()
		if err == nil {
			err = runQuietly(exec.CommandContext(ctx, "ostree", args...))
		}
		done <- err
	})
	return <-done
}
