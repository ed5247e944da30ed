package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// goPackage is what go list says of the package.
type goPackage struct {
	ImportPath string
	Name       string
	Dir        string
	GoFiles    []string
}

// tester runs the tests of one package.
type tester struct {
	// pattern names the package as the go command takes it.
	pattern string
	short   bool
	// limit bounds one run; 0 gives each as much as the run without a change needs, several times over.
	limit time.Duration
	// memory bounds the address space of one run in bytes: a change may make a loop endless.
	memory uint64
}

func (t tester) load(ctx context.Context) (goPackage, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Name,Dir,GoFiles", t.pattern)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return goPackage{}, fmt.Errorf("find package %s: %w: %s", t.pattern, err, bytes.TrimSpace(stderr.Bytes()))
	}
	var p goPackage
	d := json.NewDecoder(bytes.NewReader(out))
	if err := d.Decode(&p); err != nil {
		return goPackage{}, fmt.Errorf("read what go list says of %s: %w", t.pattern, err)
	}
	if d.More() {
		return goPackage{}, fmt.Errorf("%s names more than one package; name one", t.pattern)
	}
	return p, nil
}

// try runs the package's tests once for each mutant. It fails when the tests fail without any change.
func (t tester) try(ctx context.Context, p goPackage, mutants []mutant, progress io.Writer) (report, error) {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return report{}, err
	}
	defer os.RemoveAll(dir)
	mutants, err = p.compile(ctx, dir, mutants)
	if err != nil {
		return report{}, err
	}
	reached, err := t.unchanged(ctx, p, dir)
	if err != nil {
		return report{}, err
	}
	r := report{Package: p.ImportPath, Tried: len(mutants)}
	for i, m := range mutants {
		if !reached.ids[m.ID] {
			r.survives(p, m, false)
			continue
		}
		_, err := t.test(ctx, p, dir, reached.limit, mutantEnv+"="+strconv.Itoa(m.ID))
		if ctx.Err() != nil {
			return report{}, ctx.Err()
		}
		if err == nil {
			r.survives(p, m, true)
			s := r.Survivors[len(r.Survivors)-1]
			fmt.Fprintf(progress, "mutate: %d of %d: survives: %s: %s\n", i+1, len(mutants), s.Place, s.Change)
		}
	}
	return r, nil
}

func (r *report) survives(p goPackage, m mutant, reached bool) {
	place := fmt.Sprintf("%s:%d", filepath.Join(filepath.Base(p.Dir), filepath.Base(m.File)), m.Line)
	r.Survivors = append(r.Survivors, survivor{Place: place, Change: m.Change, Reached: reached})
	if !reached {
		r.Unreached++
	}
}

const testProgram = "room.test"

// compile makes one test program with the switches of all mutants. It gives back those that are valid Go.
func (p goPackage) compile(ctx context.Context, dir string, mutants []mutant) ([]mutant, error) {
	for tried := len(mutants); len(mutants) > 0; {
		overlay, err := p.overlay(dir, mutants)
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", overlay, "-o",
			filepath.Join(dir, testProgram), p.ImportPath)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return mutants, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		refused := linesOf(out)
		before := len(mutants)
		mutants = slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool {
			return refused[fmt.Sprintf("%s:%d", filepath.Base(m.File), m.Line)]
		})
		if len(mutants) == before {
			return nil, fmt.Errorf("compile the tests of %s: %w\n%s", p.ImportPath, err, out)
		}
		if len(mutants) == 0 {
			return nil, fmt.Errorf("none of %d changes of %s compiles", tried, p.ImportPath)
		}
	}
	return nil, fmt.Errorf("%s has no change to try", p.ImportPath)
}

// linesOf gives the places, as in file.go:12, that the compiler complains about.
func linesOf(out []byte) map[string]bool {
	places := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)([^/\s:]+\.go:\d+):\d+: `).FindAllSubmatch(out, -1) {
		places[string(m[1])] = true
	}
	return places
}

// overlay writes the changed files and the list of them that the go command reads.
func (p goPackage) overlay(dir string, mutants []mutant) (string, error) {
	replace := map[string]string{}
	put := func(original string, content []byte) error {
		changed := filepath.Join(dir, filepath.Base(original))
		replace[original] = changed
		return os.WriteFile(changed, content, 0o600)
	}
	for _, name := range p.GoFiles {
		file := filepath.Join(p.Dir, name)
		source, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		here := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return m.File != file })
		if err := put(file, withSwitches(source, here)); err != nil {
			return "", err
		}
	}
	functions := fmt.Appendf(nil, switches, p.Name, mutantEnv, reachedEnv)
	if err := put(filepath.Join(p.Dir, "mutant_switches.go"), functions); err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	content, err := json.Marshal(map[string]any{"Replace": replace})
	return list, errors.Join(err, os.WriteFile(list, content, 0o600))
}

// baseline is what the tests do without a change: the switches that they come across, and what time a change leaves them.
type baseline struct {
	ids   map[int]bool
	limit time.Duration
}

func (t tester) unchanged(ctx context.Context, p goPackage, dir string) (baseline, error) {
	file := filepath.Join(dir, "reached")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return baseline{}, err
	}
	const longest, slack, times = 10 * time.Minute, 10 * time.Second, 4
	started := time.Now()
	out, err := t.test(ctx, p, dir, longest, reachedEnv+"="+file)
	if err != nil {
		return baseline{}, fmt.Errorf("the tests of %s fail without any change: %w\n%s", p.ImportPath, err, out)
	}
	r := baseline{ids: map[int]bool{}, limit: t.limit}
	if r.limit == 0 {
		r.limit = times*time.Since(started) + slack
	}
	reached, err := os.ReadFile(file)
	if err != nil {
		return baseline{}, err
	}
	for _, word := range strings.Fields(string(reached)) {
		id, err := strconv.Atoi(word)
		if err != nil {
			return baseline{}, fmt.Errorf("read which changes the tests of %s reach: %w", p.ImportPath, err)
		}
		r.ids[id] = true
	}
	return r, nil
}

// test runs the test program as go test does, with a bound of time and memory, and ends what it leaves behind.
func (t tester) test(ctx context.Context, p goPackage, dir string, limit time.Duration, env string) ([]byte, error) {
	// the tests' own limit gives no list of goroutines to wait for: it is the later one
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := []string{"--as=" + strconv.FormatUint(t.memory, 10), filepath.Join(dir, testProgram), "-test.failfast",
		"-test.paniconexit0", "-test.timeout", (2 * limit).String()}
	if t.short {
		args = append(args, "-test.short")
	}
	cmd := exec.CommandContext(ctx, "prlimit", args...)
	cmd.Dir = p.Dir
	cmd.Env = append(os.Environ(), env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // usually nothing is left
	}
	return out, err
}
