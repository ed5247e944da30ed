package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/hack/images"
	"dayone.dev/dayone/hack/program"
)

// plugin is kubectl's, which is dayone itself on Linux.
const plugin = "kubectl-dayone"

// programs builds the static programs of a platform into dir.
func (o options) programs(ctx context.Context, dir string, to platform) error {
	if o.architectures[0] != runtime.GOARCH {
		return fmt.Errorf("build programs: this machine is %s: name it first in --arch", runtime.GOARCH)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("build programs: %w", err)
	}
	if to.system == "darwin" {
		return program.Build(ctx, o.source, program.Options{Package: "dayone.dev/dayone/cmd/dayone", OS: to.system,
			Arch: to.arch, LDFlags: []string{"-X main.version=" + o.version}}, filepath.Join(dir, plugin))
	}
	for _, p := range images.Programs() {
		if _, err := p.BuildFor(ctx, o.source, dir, images.Target{Version: o.version, Arch: to.arch}); err != nil {
			return err
		}
	}
	return nil
}

// compile compiles the programs for all architectures.
func (o options) compile(ctx context.Context) error {
	for _, arch := range o.architectures {
		for _, p := range images.Programs() {
			if err := p.Compile(ctx, o.source, images.Target{Arch: arch}); err != nil {
				return err
			}
		}
	}
	return nil
}

// extras are what packages have beside programs, made by the program itself: manual pages, completions, a unit.
func (o options) extras(ctx context.Context, native, dir string) error {
	dayone := filepath.Join(native, "dayone")
	say := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, dayone, args...)
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", o.made.Unix()))
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("run dayone %s: %w", strings.Join(args, " "), err)
		}
		return out, nil
	}
	if err := os.MkdirAll(filepath.Join(dir, "man"), 0o755); err != nil {
		return fmt.Errorf("make manual pages: %w", err)
	}
	if _, err := say("man", filepath.Join(dir, "man")); err != nil {
		return err
	}
	if err := packPages(filepath.Join(dir, "man")); err != nil {
		return err
	}
	for name, args := range map[string][]string{
		"dayone.bash": {"completion", "bash"}, "_dayone": {"completion", "zsh"}, "dayone.fish": {"completion", "fish"},
		"dayone-bootstrap.service": {"bootstrap", "--print-unit", "--dir=/etc/dayone/cluster"},
	} {
		out, err := say(args...)
		if err == nil { // it names the program where it ran
			out = bytes.ReplaceAll(out, []byte(dayone), []byte("/usr/bin/dayone"))
			err = os.WriteFile(filepath.Join(dir, name), out, 0o644)
		}
		if err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	return nil
}

// packPages compresses manual pages, as packages have them.
func packPages(dir string) error {
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return fmt.Errorf("pack manual pages: %w", err)
	}
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			return fmt.Errorf("pack manual page: %w", err)
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err = w.Write(raw)
		err = errors.Join(err, w.Close(), os.WriteFile(page+".gz", packed.Bytes(), 0o644), os.Remove(page))
		if err != nil {
			return fmt.Errorf("pack manual page %s: %w", page, err)
		}
	}
	return nil
}

// archiveName is the archive of a platform.
func (o options) archiveName(p platform) string {
	return fmt.Sprintf("dayone_%s_%s.tar.gz", o.version, p)
}

// archives packs the programs of each platform.
func (o options) archives(_ context.Context, work string) error {
	for _, to := range o.platforms() {
		files := map[string]string{"LICENSE": filepath.Join(o.source, "LICENSE"), licensesFile: filepath.Join(o.out,
			licensesFile)}
		programs, err := os.ReadDir(filepath.Join(work, to.String()))
		if err != nil {
			return fmt.Errorf("make archive: %w", err)
		}
		for _, p := range programs {
			files[p.Name()] = filepath.Join(work, to.String(), p.Name())
		}
		if err := o.archive(filepath.Join(o.out, o.archiveName(to)), files); err != nil {
			return fmt.Errorf("make archive of %s: %w", to, err)
		}
	}
	return nil
}

// archive writes files by name; nothing of this machine is in it.
func (o options) archive(name string, files map[string]string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	packed := gzip.NewWriter(f)
	t := tar.NewWriter(packed)
	names := make([]string, 0, len(files))
	for in := range files {
		names = append(names, in)
	}
	slices.Sort(names)
	for _, in := range names {
		raw, err := os.ReadFile(files[in])
		if err != nil {
			return err
		}
		mode := int64(0o755)
		if in == "LICENSE" || in == licensesFile {
			mode = 0o644
		}
		err = t.WriteHeader(&tar.Header{Name: in, Mode: mode, Size: int64(len(raw)), ModTime: o.made,
			Format: tar.FormatUSTAR})
		if err != nil {
			return err
		}
		if _, err := io.Copy(t, bytes.NewReader(raw)); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), packed.Close())
}

// nfpm makes packages. It is a tool and no dependency: its libraries stay out of go.mod.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

// nfpmConfig is nfpm's file, as far as it is used (https://nfpm.goreleaser.com/configuration).
type nfpmConfig struct {
	Name        string            `json:"name"`
	Arch        string            `json:"arch"`
	Version     string            `json:"version"`
	Maintainer  string            `json:"maintainer"`
	Description string            `json:"description"`
	Homepage    string            `json:"homepage"`
	License     string            `json:"license"`
	Mtime       time.Time         `json:"mtime"`
	Recommends  []string          `json:"recommends"`
	Contents    []nfpmFile        `json:"contents"`
	Scripts     map[string]string `json:"scripts"`
	RPM         nfpmRPM           `json:"rpm"`
	Deb         nfpmDeb           `json:"deb"`
}

type nfpmRPM struct {
	BuildHost   string `json:"buildhost"`
	Compression string `json:"compression"`
}

type nfpmDeb struct {
	Compression string `json:"compression"`
}

type nfpmFile struct {
	Src      string    `json:"src"`
	Dst      string    `json:"dst"`
	Type     string    `json:"type,omitempty"`
	Packager string    `json:"packager,omitempty"`
	Info     *nfpmInfo `json:"file_info,omitempty"`
}

type nfpmInfo struct {
	Mode  int       `json:"mode"`
	Mtime time.Time `json:"mtime"`
}

// packages makes a deb and an rpm of each architecture.
func (o options) packages(ctx context.Context, work string) error {
	for _, arch := range o.architectures {
		if err := o.packagesOf(ctx, work, arch); err != nil {
			return fmt.Errorf("make packages of %s: %w", arch, err)
		}
	}
	return nil
}

func (o options) packagesOf(ctx context.Context, work, arch string) error {
	contents, err := o.contents(work, arch)
	if err != nil {
		return err
	}
	files := filepath.Join(o.source, "hack/release/files")
	config := nfpmConfig{
		Name: "dayone", Arch: arch, Version: o.version, Maintainer: "dayone <dayone@dayone.dev>",
		Description: "Custom OS image content on a cluster's nodes from their first boot", Homepage: "https://dayone.dev",
		License: "Apache-2.0", Mtime: o.made, Contents: contents,
		// A build without them runs RUN by chroot, and status reads nothing of podman's.
		Recommends: []string{"crun", "ostree"},
		Scripts: map[string]string{"postinstall": filepath.Join(files, "postinstall.sh"),
			"preremove": filepath.Join(files, "preremove.sh")},
		RPM: nfpmRPM{BuildHost: "dayone.dev", Compression: "gzip:6"},
		// nfpm's gzip of a deb, the default, takes seven times as long and gives a tenth more bytes.
		Deb: nfpmDeb{Compression: "zstd"},
	}
	raw, err := yaml.Marshal(config)
	if err != nil {
		return err
	}
	file := filepath.Join(work, "nfpm.yaml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return err
	}
	for _, kind := range []string{"deb", "rpm"} {
		cmd := exec.CommandContext(ctx, "go", "run", nfpm, "package", "-f", file, "-p", kind, "-t", o.out)
		cmd.Dir = o.source
		cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath", fmt.Sprintf("SOURCE_DATE_EPOCH=%d", o.made.Unix()))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("make %s: %w: %s", kind, err, out)
		}
	}
	return nil
}

// contents are the files of a package.
func (o options) contents(work, arch string) ([]nfpmFile, error) {
	var out []nfpmFile
	add := func(mode int, packager, src, dst string) {
		out = append(out, nfpmFile{Src: src, Dst: dst, Packager: packager, Info: &nfpmInfo{mode, o.made}})
	}
	extras, files := filepath.Join(work, "extras"), filepath.Join(o.source, "hack/release/files")
	for _, p := range []string{"dayone", "dayone-daemon", "dayone-registry"} {
		add(0o755, "", filepath.Join(work, platform{"linux", arch}.String(), p), "/usr/bin/"+p)
	}
	out = append(out, nfpmFile{Src: "dayone", Dst: "/usr/bin/kubectl-dayone", Type: "symlink"})
	add(0o755, "", filepath.Join(files, "kubectl_complete-dayone"), "/usr/bin/kubectl_complete-dayone")
	add(0o644, "", filepath.Join(extras, "dayone.bash"), "/usr/share/bash-completion/completions/dayone")
	add(0o644, "deb", filepath.Join(extras, "_dayone"), "/usr/share/zsh/vendor-completions/_dayone")
	add(0o644, "rpm", filepath.Join(extras, "_dayone"), "/usr/share/zsh/site-functions/_dayone")
	add(0o644, "", filepath.Join(extras, "dayone.fish"), "/usr/share/fish/vendor_completions.d/dayone.fish")
	const units = "/usr/lib/systemd/system/"
	add(0o644, "", filepath.Join(extras, "dayone-bootstrap.service"), units+"dayone-bootstrap.service")
	add(0o644, "", filepath.Join(files, "dayone-registry-server.service"), units+"dayone-registry-server.service")
	add(0o644, "", filepath.Join(files, "sysusers.conf"), "/usr/lib/sysusers.d/dayone.conf")
	add(0o644, "", filepath.Join(o.source, "LICENSE"), "/usr/share/doc/dayone/copyright")
	add(0o644, "", filepath.Join(o.out, licensesFile), "/usr/share/doc/dayone/"+licensesFile)
	out = append(out, nfpmFile{Dst: "/etc/dayone", Type: "dir", Info: &nfpmInfo{0o755, o.made}})
	return out, filepath.WalkDir(filepath.Join(extras, "man"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".gz") {
			add(0o644, "", name, "/usr/share/man/man1/"+d.Name())
		}
		return err
	})
}
