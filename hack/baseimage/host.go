package baseimage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/hack/cache"
)

// prepareRoot is where ostree's initramfs program is, on the host (Fedora: package ostree) and in every image.
const prepareRoot = "/usr/lib/ostree/ostree-prepare-root"

// run executes a program and gives its standard output; a failure carries the last lines of standard error.
func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil, fmt.Errorf("run %s: it is not installed; run hack/setup/setup.sh", name)
		}
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		return nil, fmt.Errorf("run %s: %w: %s", name, err, strings.Join(lines[max(0, len(lines)-5):], " | "))
	}
	return out.Bytes(), nil
}

// find returns the real path of a program of this host.
func find(name string) (string, error) {
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin"} {
		if path, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %s: it is not installed; run hack/setup/setup.sh", name)
}

var lddLine = regexp.MustCompile(`(?m)^\s+(?:\S+ => )?(/\S+) \(0x`) //nolint:gochecknoglobals // compiled once

// libraries lists the shared objects that programs need, as absolute paths the dynamic linker will use.
func libraries(ctx context.Context, programs ...string) ([]string, error) {
	var libs []string
	for _, p := range programs {
		if static, err := isStatic(p); err != nil {
			return nil, err
		} else if static {
			continue // ldd refuses these; busybox may be one
		}
		out, err := run(ctx, "", "ldd", p)
		if err != nil {
			return nil, err
		}
		for _, m := range lddLine.FindAllSubmatch(out, -1) {
			libs = append(libs, string(m[1]))
		}
	}
	slices.Sort(libs)
	return slices.Compact(libs), nil
}

// isStatic says whether a program asks for no dynamic linker.
func isStatic(program string) (bool, error) {
	f, err := elf.Open(program)
	if err != nil {
		return false, fmt.Errorf("read program %s: %w", program, err)
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }), nil
}

// findPrepareRoot gives the directory with ostree-prepare-root and ostree-remount: the host's, else those of Debian's
// package ostree-boot, unpacked in the cache. The package itself is not installed: it would add dracut and GRUB hooks
// to the host.
func findPrepareRoot(ctx context.Context, cacheDir string, log *logrus.Entry) (string, error) {
	if _, err := os.Stat(prepareRoot); err == nil {
		return filepath.Dir(prepareRoot), nil
	}
	version, err := run(ctx, "", "dpkg-query", "-W", "-f=${Version}", "ostree")
	if err != nil {
		return "", fmt.Errorf("find ostree-prepare-root: %w", err)
	}
	name := "ostree-boot-" + strings.NewReplacer(":", "_", "/", "_").Replace(string(version))
	dir, err := cache.Store{Dir: filepath.Join(cacheDir, "packages")}.Ensure(ctx, name, func(dir string) error {
		log.Info("unpacking ostree-boot")
		return unpackOstreeBoot(ctx, dir, string(version))
	})
	return filepath.Join(dir, filepath.Dir(prepareRoot)), err
}

// unpackOstreeBoot wants the version of the installed ostree; an archive that has moved on has only its newest.
func unpackOstreeBoot(ctx context.Context, dir, version string) error {
	if _, err := run(ctx, dir, "apt-get", "download", "ostree-boot="+version); err != nil {
		if _, err := run(ctx, "", "apt-get", "update"); err != nil {
			return err
		}
		if _, err := run(ctx, dir, "apt-get", "download", "ostree-boot"); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(dir, "ostree-boot_*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("download ostree-boot: want 1 package file, have %d", len(debs))
	}
	if _, err := run(ctx, dir, "dpkg", "-x", debs[0], dir); err != nil {
		return err
	}
	return os.Remove(debs[0])
}

// fingerprint hashes texts and the contents of files into a short cache key.
func fingerprint(files []string, texts ...string) (string, error) {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d:%s", len(t), t)
	}
	for _, path := range files {
		sum := sha256.New()
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("hash input: %w", err)
		}
		_, err = io.Copy(sum, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("hash input %s: %w", path, err)
		}
		fmt.Fprintf(h, "%s:%x", filepath.Base(path), sum.Sum(nil)) // the cache's own place does not matter
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
