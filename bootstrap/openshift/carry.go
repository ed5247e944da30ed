package openshift

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	ign "github.com/coreos/ignition/v2/config/v3_6/types"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/preflight"
)

// Disk is a node's disk after coreos-installer, before its first boot.
type Disk struct {
	// StateDir is the bootstrap's on this host, Root where the disk's root file system is mounted.
	StateDir, Root string
	// Ignition is the file of the config with which the disk boots first; default is what MCO has rendered for the
	// masters on this host.
	Ignition string
	// Program is dayone-registry on this host.
	Program string
}

// nodeRegistry is where dayone-registry has its images, below /var.
const nodeRegistry = "lib/dayone/registry"

// nodeProgram is where /usr/local/bin lies on ostree hosts, below /var.
const nodeProgram = "usrlocal/bin/dayone-registry"

// SELinux types of what is carried (the reference policy's): Ignition labels only what it writes itself.
const (
	typeData    = "system_u:object_r:var_lib_t:s0"
	typeProgram = "system_u:object_r:bin_t:s0"
)

// Carry brings the registry's images and its program onto the disk, so that the node's first boot finds them there.
// Every blob is verified. It may be cut off at any point and run again; the images appear in one step.
func Carry(ctx context.Context, d Disk) error {
	mark, err := handover.ReadMark(d.StateDir)
	if err == nil && mark == nil {
		err = errors.New("they are not built yet: dayone status shows how far it is")
	}
	if err == nil {
		err = d.keepsVar()
	}
	if err != nil {
		return fmt.Errorf("carry the images to the disk: %w", err)
	}
	dir, err := d.stateroot()
	if err != nil {
		return fmt.Errorf("carry the images to the disk: %w", err)
	}
	to := filepath.Join(dir, nodeRegistry)
	for _, step := range []func() error{
		func() error { return makeDir(filepath.Dir(to), typeData) },
		func() error { return os.RemoveAll(to + ".new") },
		func() error { return roomFor(filepath.Join(d.StateDir, day1.RegistryDir), filepath.Dir(to)) },
		func() error { return copyImages(ctx, filepath.Join(d.StateDir, day1.RegistryDir), to+".new") },
		func() error { return makeDir(filepath.Dir(filepath.Join(dir, nodeProgram)), typeProgram) },
		func() error { return copyFile(d.Program, filepath.Join(dir, nodeProgram), 0o755, typeProgram) },
		func() error { return syncDisk(dir) },
		func() error { return os.RemoveAll(to) },
		func() error { return os.Rename(to+".new", to) },
		func() error { return syncDisk(dir) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("carry the images to the disk: %w", err)
		}
	}
	return nil
}

// keepsVar refuses a config that mounts another file system over what is carried.
func (d Disk) keepsVar() error {
	raw, err := d.config()
	if err != nil {
		return fmt.Errorf("read the disk's Ignition config: %w", err)
	}
	var c ign.Config
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("read the disk's Ignition config: %w", err)
	}
	for _, f := range c.Storage.Filesystems {
		if f.Path != nil && *f.Path != "/" && strings.HasPrefix("/var/"+nodeRegistry+"/", path.Clean(*f.Path)+"/") {
			return fmt.Errorf("the node's configs mount a file system of its own at %s, which would hide the images: leave "+
				"/var on the root file system, or mount below /var/lib/containers", *f.Path)
		}
	}
	return nil
}

// config is the Ignition config with which the disk boots first.
func (d Disk) config() ([]byte, error) {
	if d.Ignition != "" {
		return os.ReadFile(d.Ignition)
	}
	config, _, _, err := rendered(mcsDir, preflight.ControlPlanePool)
	if err != nil {
		return nil, err
	}
	return config.Spec.Config.Raw, nil
}

// stateroot is the disk's /var.
func (d Disk) stateroot() (string, error) {
	found, err := filepath.Glob(filepath.Join(d.Root, "ostree/deploy/*/var"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%s has %d operating systems of ostree, and one is wanted", d.Root, len(found))
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// roomFor refuses a disk that is too small before anything is written to it.
func roomFor(from, to string) error {
	var need int64
	err := filepath.WalkDir(from, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		need += info.Size()
		return err
	})
	var st unix.Statfs_t
	if err = errors.Join(err, unix.Statfs(to, &st)); err != nil {
		return err
	}
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return fmt.Errorf("the images take %d MiB, and the disk has %d MiB free: install a larger one", need>>20, free>>20)
	}
	return nil
}

// copyImages copies the registry's files.
func copyImages(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch dest := filepath.Join(to, rel); {
		case e.IsDir():
			return makeDir(dest, typeData)
		case e.Type().IsRegular():
			return copyFile(name, dest, 0o600, typeData)
		}
		return nil // a lock or a socket of the process that served
	})
}

// blob is the path of a blob in distribution's layout.
var blob = regexp.MustCompile(`/blobs/sha256/[0-9a-f]{2}/([0-9a-f]{64})/data$`)

// copyFile copies durably, and refuses a blob that is not what its name says.
func copyFile(from, to string, mode os.FileMode, label string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, sum), in); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if m := blob.FindStringSubmatch(from); m != nil && m[1] != hex.EncodeToString(sum.Sum(nil)) {
		return fmt.Errorf("blob %s is damaged: boot the live system again", m[1])
	}
	return errors.Join(out.Chmod(mode), labelled(to, label), out.Sync())
}

// makeDir makes a directory and those above it.
func makeDir(dir, label string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := makeDir(filepath.Dir(dir), label); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return labelled(dir, label)
}

// labelled gives a file its SELinux label where this host has SELinux.
func labelled(name, label string) error {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil {
		return nil
	}
	if err := unix.Lsetxattr(name, "security.selinux", []byte(label), 0); err != nil {
		return fmt.Errorf("label %s: %w", name, err)
	}
	return nil
}

// syncDisk waits until a file system has everything on its disk.
func syncDisk(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("write to the disk: %w", err)
	}
	return nil
}
