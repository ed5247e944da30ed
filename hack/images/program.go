package images

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"dayone.dev/dayone/hack/program"
)

// Program is one of dayone's programs and how it is built and started.
type Program struct {
	// Name is the binary's and the image's.
	Name string
	// Package is built.
	Package string
	// Cgo is needed by the programs that build images: without it chroot isolation and the cache of compressed layers do
	// not work (buildah's library).
	Cgo bool
	// User is the image's default user; pods may set another.
	User string
	// Also names programs that the image has beside its own; Build makes them, too.
	Also []string
}

// Programs are those that run in the cluster, the registry, which a pool's Containerfile takes out of its image, and
// dayone itself, which an installer's bootstrap node takes out of its own.
func Programs() []Program {
	return []Program{
		{Name: "machine-os-builder", Package: "./cmd/machine-os-builder", Cgo: true, User: "0:0"},
		{Name: "dayone-controller", Package: "./cmd/dayone-controller", User: "65532:65532"},
		{Name: "dayone-registry", Package: "./cmd/dayone-registry", User: "0:0"},
		{Name: "dayone-daemon", Package: "./cmd/dayone-daemon", User: "0:0"},
		// A node that is its own bootstrap node keeps a registry.
		{Name: "dayone", Package: "./cmd/dayone", Cgo: true, User: "0:0", Also: []string{"dayone-registry"}},
	}
}

// Find gives the program of that name.
func Find(name string) (Program, error) {
	for _, p := range Programs() {
		if p.Name == name {
			return p, nil
		}
	}
	return Program{}, fmt.Errorf("find program %q: there is none of this name", name)
}

// Build makes the static binary dir/Name, and those of Also beside it, from the sources in source.
func (p Program) Build(ctx context.Context, source, dir, version string) (string, error) {
	return p.BuildFor(ctx, source, dir, Target{Version: version})
}

// Target is what a binary is made for.
type Target struct {
	// Version is the program's.
	Version string
	// Arch is in Go's spelling; default this machine's.
	Arch string
}

// BuildFor is Build for a target.
func (p Program) BuildFor(ctx context.Context, source, dir string, t Target) (string, error) {
	for _, name := range p.Also {
		also, err := Find(name)
		if err == nil {
			_, err = also.BuildFor(ctx, source, dir, t)
		}
		if err != nil {
			return "", err
		}
	}
	out := filepath.Join(dir, p.Name)
	return out, program.Build(ctx, source, p.options(t), out)
}

// Compile compiles what BuildFor links.
func (p Program) Compile(ctx context.Context, source string, t Target) error {
	return program.Compile(ctx, source, p.options(t))
}

func (p Program) options(t Target) program.Options {
	o := program.Options{Package: p.Package, Cgo: p.Cgo, LDFlags: []string{"-X main.version=" + t.Version}}
	if t.Arch != runtime.GOARCH {
		o.Arch = t.Arch
	}
	if p.Cgo { // what makes such a program static (docs/operators/builds.md)
		o.Tags = []string{"sqlite_omit_load_extension"}
		o.LDFlags = append(o.LDFlags, `-linkmode external -extldflags "-static"`)
	}
	return o
}

// inspect tells the architecture of a binary, in Go's spelling, and refuses one that needs files that the image has not
// got.
func inspect(binary string) (architecture string, err error) {
	f, err := elf.Open(binary)
	if err != nil {
		return "", fmt.Errorf("read program %s: %w", binary, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("read program %s: %w", binary, errDynamic)
		}
	}
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	case elf.EM_PPC64:
		return "ppc64le", nil
	case elf.EM_S390:
		return "s390x", nil
	}
	return "", fmt.Errorf("read program %s: there is no image for machine %s", binary, f.Machine)
}

var errDynamic = errors.New("it is not static; build it with Program.Build")
