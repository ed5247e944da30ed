package program

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"dayone.dev/dayone/hack/cache"
)

// Tags are the build tags of every program, those of the Makefile. Two make the container libraries build without
// headers of C libraries. netgo and osusergo keep package net free of cgo: else all that imports it, 298 packages,
// would be compiled a second time for the programs without cgo.
const Tags = "containers_image_openpgp,exclude_graphdriver_btrfs,netgo,osusergo"

// runEnv names a run of tests, such as one make test: a program that was linked in it is taken as it is, without asking
// go build again, which takes half a second of a processor to say that nothing changed. So a change of the sources
// during the run is not seen; the next run, or a process without this variable, sees it.
const runEnv = "DAYONE_TEST_RUN"

// lockPoll is how often a process that waits for another one's link tries again.
const lockPoll = 100 * time.Millisecond

// Options of a program.
type Options struct {
	// Package is its import path. Required.
	Package string
	// Cgo links C libraries; without it the program is static.
	Cgo bool
	// Arch is another architecture than this machine's, in Go's spelling; with Cgo it takes Debian's cross compiler.
	Arch string
	// OS is another operating system than Linux, in Go's spelling, for a program without Cgo.
	OS string
	// Tags are further build tags, LDFlags further flags of the linker.
	Tags, LDFlags []string
}

// Build links the program from the sources in dir and copies it to the file to. The linked file stays in the cache, and
// go build leaves it alone while it is up to date: a second process pays for a copy only.
func Build(ctx context.Context, dir string, o Options, to string) error {
	environment, err := o.environment()
	if err != nil {
		return fmt.Errorf("link %s: %w", o.Package, err)
	}
	home, err := cache.Dir()
	if err != nil {
		return err
	}
	args := append([]string{"build", "-ldflags=" + strings.Join(append([]string{"-s -w"}, o.LDFlags...), " ")},
		o.compilerFlags()...)
	key := sha256.Sum256([]byte(strings.Join(slices.Concat(args, environment, []string{o.Package}), "\x00")))
	linked := filepath.Join(home, "program", path.Base(o.Package)+"-"+hex.EncodeToString(key[:8]))
	if err := os.MkdirAll(filepath.Dir(linked), 0o755); err != nil {
		return fmt.Errorf("link %s: %w", o.Package, err)
	}
	lock := flock.New(linked + ".lock")
	if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
		return fmt.Errorf("wait for the process that links %s: %w", o.Package, err)
	}
	defer lock.Close()
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", linked, o.Package)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environment...)
	if err := renew(cmd, linked); err != nil {
		return fmt.Errorf("link %s: %w", o.Package, err)
	}
	// A copy also keeps a program's memory true: what the linker wrote is in the page cache as huge pages, which a
	// process would count as its own.
	return copyFile(linked, to)
}

// Compile compiles all that Build links the program of, and links nothing.
func Compile(ctx context.Context, dir string, o Options) error {
	environment, err := o.environment()
	if err != nil {
		return fmt.Errorf("compile %s: %w", o.Package, err)
	}
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"list", "-export"}, o.compilerFlags()...), o.Package)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environment...)
	if err := output(cmd); err != nil {
		return fmt.Errorf("compile %s: %w", o.Package, err)
	}
	return nil
}

func (o Options) compilerFlags() []string {
	return []string{"-trimpath", "-buildvcs=false", "-tags=" + strings.Join(append([]string{Tags}, o.Tags...), ",")}
}

// environment is what go needs beside this process's environment.
func (o Options) environment() ([]string, error) {
	out := []string{"GOFLAGS=", "CGO_ENABLED=0"}
	if o.Cgo {
		out[1] = "CGO_ENABLED=1"
	}
	if o.Arch != "" {
		out = append(out, "GOARCH="+o.Arch)
	}
	if o.OS != "" {
		out = append(out, "GOOS="+o.OS)
	}
	if o.Arch != "" && o.Cgo {
		compiler, err := crossCompiler(o.Arch)
		if err != nil {
			return nil, err
		}
		out = append(out, "CC="+compiler)
	}
	return out, nil
}

// renew runs the command that writes linked, but for a second time in one run of tests.
func renew(build *exec.Cmd, linked string) error {
	mark, run := linked+".run", os.Getenv(runEnv)
	if run == "" {
		return output(build)
	}
	source, err := moduleOf(build.Dir)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(mark)
	if err == nil && string(have) == stamp(run, source, linked) {
		return nil
	}
	if err := output(build); err != nil {
		return err
	}
	return os.WriteFile(mark, []byte(stamp(run, source, linked)), 0o600)
}

func output(cmd *exec.Cmd) error {
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}

// stamp tells a linked file, its sources and a run from all others: another checkout may have linked it anew since.
func stamp(run, source, linked string) string {
	info, err := os.Stat(linked)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %s %d %d", run, source, info.Size(), info.ModTime().UnixNano())
}

// moduleOf is the directory of the module that dir is in.
func moduleOf(dir string) (string, error) {
	at, err := filepath.Abs(dir)
	for ; err == nil; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("find go.mod above %s: run it in a checkout", dir)
		}
	}
	return "", err
}

// crossCompiler is the C compiler for another architecture, as Debian names it.
func crossCompiler(arch string) (string, error) {
	machine, ok := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	if !ok {
		return "", errors.New("no C compiler for it is known")
	}
	compiler := machine + "-linux-gnu-gcc"
	if _, err := exec.LookPath(compiler); err != nil {
		return "", fmt.Errorf("%w: make setup-release installs it with its C library", err)
	}
	return compiler, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy program: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("copy program: %w", err)
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return fmt.Errorf("copy program: %w", err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("copy program: %w", err)
	}
	return nil
}
