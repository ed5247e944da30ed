package baseimage

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// debianRecipeVersion is raised when the code below changes what an image holds without a change in its inputs.
	debianRecipeVersion = "debian 2"
	// defaultSuite is used on hosts that are not Debian.
	defaultSuite = "bookworm"
	// dpkgInfo has a list of files per package in Debian's tree.
	dpkgInfo = "var/lib/dpkg/info/"
)

// debianPackages are installed beside Debian's essential ones.
//
//nolint:gochecknoglobals // a constant in all but type
var debianPackages = []string{"ca-certificates", "dbus", "iproute2", "ostree", "ostree-boot", "systemd",
	"systemd-sysv"}

// osPackages own the files of the middle layer: they change more often than Debian's base, so they are a layer of their
// own.
//
//nolint:gochecknoglobals // a constant in all but type
var osPackages = []string{"dbus", "libdbus", "libostree", "libsystemd", "libudev", "ostree", "systemd", "udev",
	"dracut"}

// debianHook runs in the finished tree ($1). Timers and consoles have no place in a node that lives for minutes.
const debianHook = `chroot "$1" systemctl enable ostree-finalize-staged.path ostree-remount.service
chroot "$1" systemctl mask ` + debianTimers +
	" systemd-networkd.service systemd-resolved.service systemd-timesyncd.service"

// debianTimers do work that a node which lives for minutes does not need.
const debianTimers = "apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer " +
	"e2scrub_all.timer e2scrub_reap.service fstrim.timer"

func debianRecipe(ctx context.Context, _ Options) (recipe, error) {
	if os.Geteuid() != 0 {
		return recipe{}, errors.New("make debian base image: needs root (use --kind tiny without)")
	}
	config, err := embedded("files/debian")
	if err != nil {
		return recipe{}, err
	}
	suite, err := debianSuite()
	if err != nil {
		return recipe{}, err
	}
	texts := []string{debianRecipeVersion, imageVersion, KernelVersion, suite, debianHook,
		packageVersions(ctx, suite, debianPackages)}
	texts = append(append(append(texts, debianPackages...), osPackages...), config...)
	key, err := fingerprint(nil, texts...)
	if err != nil {
		return recipe{}, err
	}
	return recipe{key: key, layers: func(ctx context.Context, scratch string) ([]*layer, error) {
		layers, err := bootstrap{suite: suite, packages: debianPackages, hooks: []string{debianHook}}.layers(ctx, scratch)
		if err != nil {
			return nil, err
		}
		fakeKernel(layers[len(layers)-1])
		return layers, nil
	}}, nil
}

// debianSuite is the host's own release when the host is Debian: its ostree then equals the nodes'.
func debianSuite() (string, error) {
	f, err := os.Open("/etc/os-release")
	if errors.Is(err, os.ErrNotExist) {
		return defaultSuite, nil
	}
	if err != nil {
		return "", fmt.Errorf("find distribution: %w", err)
	}
	defer f.Close()
	values := map[string]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), "=")
		values[key] = strings.Trim(value, `"`)
	}
	if values["ID"] == "debian" && values["VERSION_CODENAME"] != "" {
		return values["VERSION_CODENAME"], nil
	}
	return defaultSuite, nil
}

// packageVersions is what the host's package lists offer: an update of one of them makes a new image. Hosts without
// Debian's lists give nothing; their image is made once per recipe.
func packageVersions(ctx context.Context, suite string, packages []string) string {
	if host, err := debianSuite(); err != nil || host != suite {
		return ""
	}
	out, err := run(ctx, "", "apt-cache", append([]string{"policy"}, packages...)...)
	if err != nil {
		return ""
	}
	var versions []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "  Candidate:") {
			versions = append(versions, strings.TrimSpace(line))
		}
	}
	return strings.Join(versions, "\n")
}

// bootstrap is what mmdebstrap makes a tree of.
type bootstrap struct {
	suite      string
	packages   []string
	hooks      []string // run in the finished tree ($1)
	aptOptions []string
}

// layers makes the tree in scratch and gives it as an ostree system's layers.
func (b bootstrap) layers(ctx context.Context, scratch string) ([]*layer, error) {
	tree := filepath.Join(scratch, "debian.tar")
	if err := b.run(ctx, tree); err != nil {
		return nil, err
	}
	return debianLayers(tree)
}

// run gives mmdebstrap no mirror: it then uses Debian's own, with the release's updates and security fixes.
func (b bootstrap) run(ctx context.Context, tarFile string) error {
	args := []string{"--quiet", "--variant=minbase", "--include=" + strings.Join(b.packages, ",")}
	for _, option := range b.aptOptions {
		args = append(args, "--aptopt="+option)
	}
	for _, hook := range b.hooks {
		args = append(args, "--customize-hook="+hook)
	}
	for _, dir := range []string{"doc", "info", "locale", "man"} {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/"+dir+"/*")
	}
	_, err := run(ctx, "", "mmdebstrap", append(args, b.suite, tarFile)...)
	return err
}

// debianLayers turns Debian's tree into an ostree system: base, the packages that make it an OS, configuration.
func debianLayers(tarFile string) ([]*layer, error) {
	owned, err := filesOf(tarFile)
	if err != nil {
		return nil, err
	}
	base, system, config := newLayer("Debian's base packages"), newLayer("systemd, dbus, ostree"),
		newLayer("configuration")
	err = eachEntry(tarFile, func(h *tar.Header, _ io.ReaderAt, offset int64) error {
		if !keep(h) {
			return nil
		}
		to, by := base, h.Name
		if h.Typeflag == tar.TypeLink {
			by = h.Linkname // a hard link and its target share a layer
		}
		if owned[by] && h.Typeflag != tar.TypeDir {
			to = system
		}
		var open func() (io.ReadCloser, error)
		if h.Typeflag == tar.TypeReg {
			open = func() (io.ReadCloser, error) { return openPart(tarFile, offset, h.Size) }
		}
		to.put(tar.Header{Typeflag: h.Typeflag, Name: h.Name, Linkname: h.Linkname, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid,
			Size: h.Size}, open)
		return nil
	})
	if err != nil {
		return nil, err
	}
	ostreeSkeleton(base)
	system.copyParents(base)
	return []*layer{base, system, config}, addEmbedded(config, "files/debian")
}

// keep drops what an ostree system does not have or makes at boot, and what differs from machine to machine.
func keep(h *tar.Header) bool {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeLink, tar.TypeSymlink, tar.TypeDir:
	default:
		return false
	}
	if unused(h.Name) || h.Typeflag == tar.TypeLink && unused(h.Linkname) {
		return false
	}
	top, _, _ := strings.Cut(h.Name, "/")
	switch top {
	case "usr":
		return h.Name != "usr/local" && !strings.HasPrefix(h.Name, "usr/local/")
	case "etc":
		return !slices.Contains([]string{"etc/hostname", "etc/resolv.conf", "etc/machine-id"}, h.Name)
	case "bin", "sbin", "lib", "lib32", "lib64", "libx32":
		return true
	}
	return false
}

// filesOf lists the paths that osPackages own, as they are in a system with merged /usr.
func filesOf(tarFile string) (map[string]bool, error) {
	owned := map[string]bool{}
	err := eachEntry(tarFile, func(h *tar.Header, content io.ReaderAt, offset int64) error {
		name, isList := strings.CutSuffix(strings.TrimPrefix(h.Name, dpkgInfo), ".list")
		if !isList || path.Dir(h.Name)+"/" != dpkgInfo {
			return nil
		}
		if !slices.ContainsFunc(osPackages, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return nil
		}
		for s := bufio.NewScanner(io.NewSectionReader(content, offset, h.Size)); s.Scan(); {
			p := strings.TrimPrefix(s.Text(), "/")
			if top, _, _ := strings.Cut(p, "/"); slices.Contains([]string{"bin", "sbin", "lib", "lib64"}, top) {
				p = "usr/" + p
			}
			owned[p] = true
		}
		return nil
	})
	return owned, err
}

// openPart opens a piece of a file.
func openPart(name string, offset, size int64) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, offset, size), f}, nil
}

// eachEntry reads a tar file; what content holds at offset is the entry's.
func eachEntry(tarFile string, do func(h *tar.Header, content io.ReaderAt, offset int64) error) error {
	f, err := os.Open(tarFile)
	if err != nil {
		return err
	}
	defer f.Close()
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", tarFile, err)
		}
		h.Name, h.Linkname = cleanName(h.Name), cleanLink(h)
		offset, err := f.Seek(0, io.SeekCurrent) // tar.Reader reads whole blocks and no further
		if err != nil {
			return err
		}
		if err := do(h, f, offset); err != nil {
			return err
		}
	}
}

func cleanName(name string) string { return strings.Trim(path.Clean("/"+name), "/") }

func cleanLink(h *tar.Header) string {
	if h.Typeflag == tar.TypeLink {
		return cleanName(h.Linkname)
	}
	return h.Linkname
}
