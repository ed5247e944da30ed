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
	"runtime"
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

// tester runs the tests that shall notice the changes of one package.
type tester struct {
	short bool
	// skip is a regular expression of the names of tests that are left out.
	skip string
	// limit bounds one run; 0 gives each as much as the run without a change needs, several times over.
	limit time.Duration
	// memory bounds the address space of one run in bytes: a change may make a loop endless.
	memory uint64
}

// tests says in words which tests run.
func (t tester) tests(packages []goPackage) string {
	which := "the short tests"
	if !t.short {
		which = "all tests"
	}
	if t.skip != "" {
		which += " but " + t.skip
	}
	names := make([]string, len(packages))
	for i, p := range packages {
		names[i] = p.ImportPath
	}
	return which + " of " + strings.Join(names, " and ")
}

// finish runs a command to its end and gives what it prints. When its context ends, and when this program is killed,
// the command and its children end, too.
func finish(cmd *exec.Cmd) ([]byte, error) {
	runtime.LockOSThread() // the kernel's death signal is bound to the thread that started the child
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // usually nothing is left
	}
	return out, err
}

// load finds the package that a pattern of the go command names.
func load(ctx context.Context, pattern string) (goPackage, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Name,Dir,GoFiles", pattern)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return goPackage{}, fmt.Errorf("find package %s: %w: %s", pattern, err, bytes.TrimSpace(stderr.Bytes()))
	}
	var p goPackage
	d := json.NewDecoder(bytes.NewReader(out))
	if err := d.Decode(&p); err != nil {
		return goPackage{}, fmt.Errorf("read what go list says of %s: %w", pattern, err)
	}
	if d.More() {
		return goPackage{}, fmt.Errorf("%s names more than one package; name one", pattern)
	}
	return p, nil
}

// suite is one package's tests, compiled with the switches of all changes.
type suite struct {
	dir, program string
	// ids are the switches that the tests come across without a change; limit is the time that a change leaves them.
	ids   map[int]bool
	limit time.Duration
}

// try runs the tests once for each mutant: the package's own, and those of further packages that use it. It fails when
// the tests fail without any change.
func (t tester) try(ctx context.Context, p goPackage, users []goPackage, mutants []mutant,
	progress io.Writer) (report, error) {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return report{}, err
	}
	defer os.RemoveAll(dir)
	tests := append([]goPackage{p}, users...)
	mutants, err = p.compile(ctx, dir, tests, mutants)
	if err != nil {
		return report{}, err
	}
	suites := make([]suite, len(tests))
	for i, u := range tests {
		if suites[i], err = t.unchanged(ctx, u, dir); err != nil {
			return report{}, err
		}
	}
	r := report{Package: p.ImportPath, Tried: len(mutants)}
	for i, m := range mutants {
		reached, noticed := false, false
		for _, s := range suites {
			if noticed || !s.ids[m.ID] {
				continue
			}
			reached = true
			_, err := t.run(ctx, s, mutantEnv+"="+strconv.Itoa(m.ID))
			noticed = err != nil
		}
		if ctx.Err() != nil {
			return report{}, ctx.Err()
		}
		if !noticed {
			s := r.survives(p, m, reached)
			fmt.Fprintf(progress, "mutate: %d of %d: survives: %s: %s\n", i+1, len(mutants), s.Place, s.Change)
		}
	}
	return r, nil
}

func (r *report) survives(p goPackage, m mutant, reached bool) survivor {
	place := fmt.Sprintf("%s:%d", filepath.Join(filepath.Base(p.Dir), filepath.Base(m.File)), m.Line)
	s := survivor{Place: place, Change: m.Change, Reached: reached}
	r.Survivors = append(r.Survivors, s)
	if !reached {
		r.Unreached++
	}
	return s
}

// programOf is where a package's test program is.
func programOf(dir string, p goPackage) string {
	return filepath.Join(dir, strings.ReplaceAll(p.ImportPath, "/", "_")+".test")
}

// compile makes a test program of each package in tests, with the switches of all mutants. It gives back those that are
// valid Go.
func (p goPackage) compile(ctx context.Context, dir string, tests []goPackage, mutants []mutant) ([]mutant, error) {
	for i, tried := 0, len(mutants); i < len(tests); {
		overlay, err := p.overlay(dir, mutants)
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-gcflags="+p.ImportPath+"=-e", "-overlay", overlay,
			"-o", programOf(dir, tests[i]), tests[i].ImportPath)
		out, err := finish(cmd)
		if err == nil {
			i++
			continue
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
			return nil, fmt.Errorf("compile the tests of %s: %w\n%s", tests[i].ImportPath, err, out)
		}
		if len(mutants) == 0 {
			return nil, fmt.Errorf("none of %d changes of %s compiles", tried, p.ImportPath)
		}
	}
	return mutants, nil
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

// unchanged runs a package's tests without a change.
func (t tester) unchanged(ctx context.Context, p goPackage, dir string) (suite, error) {
	file := filepath.Join(dir, "reached")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return suite{}, err
	}
	const longest, slack, times = 10 * time.Minute, 10 * time.Second, 4
	s := suite{dir: p.Dir, program: programOf(dir, p), ids: map[int]bool{}, limit: longest}
	started := time.Now()
	out, err := t.run(ctx, s, reachedEnv+"="+file)
	if ctx.Err() != nil {
		return s, ctx.Err()
	}
	if err != nil {
		return s, fmt.Errorf("the tests of %s fail without any change: %w\n%s", p.ImportPath, err, out)
	}
	if s.limit = t.limit; s.limit == 0 {
		s.limit = times*time.Since(started) + slack
	}
	reached, err := os.ReadFile(file)
	if err != nil {
		return s, err
	}
	for _, word := range strings.Fields(string(reached)) {
		id, err := strconv.Atoi(word)
		if err != nil {
			return s, fmt.Errorf("read which changes the tests of %s reach: %w", p.ImportPath, err)
		}
		s.ids[id] = true
	}
	return s, nil
}

// maxFile bounds in bytes each file that a run writes: a change may make a reply of a test's server endless.
const maxFile = 4 << 30

// run runs a suite as go test does, with a bound of time, memory and file size. It ends the processes that the suite
// leaves behind and removes its temporary files: a suite that is killed does not.
func (t tester) run(ctx context.Context, s suite, env string) ([]byte, error) {
	temporary, err := os.MkdirTemp("", "mutate-run-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	// the tests' own limit gives no list of goroutines to wait for: it is the later one
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	args := []string{"--as=" + strconv.FormatUint(t.memory, 10), "--fsize=" + strconv.Itoa(maxFile), s.program,
		"-test.failfast", "-test.paniconexit0", "-test.timeout", (2 * s.limit).String()}
	if t.short {
		args = append(args, "-test.short")
	}
	if t.skip != "" {
		args = append(args, "-test.skip", t.skip)
	}
	cmd := exec.CommandContext(ctx, "prlimit", args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), env, "TMPDIR="+temporary)
	return finish(cmd)
}
