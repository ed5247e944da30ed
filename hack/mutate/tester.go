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
	"time"

	"golang.org/x/tools/cover"
)

// goPackage is what go list says of the package.
type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
}

// tester runs the tests of one package.
type tester struct {
	// pattern names the package as the go command takes it.
	pattern string
	short   bool
	limit   time.Duration
}

// errNotCompiled tells of a mutant that is no valid program: it is not counted.
var errNotCompiled = errors.New("does not compile")

func (t tester) load(ctx context.Context) (goPackage, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Dir,GoFiles", t.pattern)
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
	reached, err := t.coverage(ctx, p, dir)
	if err != nil {
		return report{}, err
	}
	r := report{Package: p.ImportPath}
	for i, m := range mutants {
		noticed, err := t.notices(ctx, dir, m, reached)
		switch {
		case errors.Is(err, errNotCompiled):
			continue
		case err != nil:
			return report{}, err
		}
		r.Tried++
		if !noticed {
			r.survives(p, m, reached.has(m))
			s := r.Survivors[len(r.Survivors)-1]
			fmt.Fprintf(progress, "mutate: %d of %d: survives: %s: %s\n", i+1, len(mutants), s.Place, s.Change)
		}
	}
	if r.Tried == 0 {
		return report{}, fmt.Errorf("none of %d changes of %s compiles", len(mutants), p.ImportPath)
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

// lines are the lines that tests execute, by the base name of the file.
type lines map[string]map[int]bool

func (l lines) has(m mutant) bool { return l[filepath.Base(m.File)][m.Line] }

// coverage runs the tests without a change and says which lines they execute.
func (t tester) coverage(ctx context.Context, p goPackage, dir string) (lines, error) {
	profile := filepath.Join(dir, "profile")
	out, err := t.test(ctx, p.ImportPath, "-coverprofile", profile)
	if err != nil {
		return nil, fmt.Errorf("the tests of %s fail without any change: %w\n%s", p.ImportPath, err, out)
	}
	profiles, err := cover.ParseProfiles(profile)
	if err != nil {
		return nil, fmt.Errorf("read the coverage of %s: %w", p.ImportPath, err)
	}
	reached := lines{}
	for _, f := range profiles {
		in := map[int]bool{}
		for _, b := range f.Blocks {
			for n := b.StartLine; n <= b.EndLine && b.Count > 0; n++ {
				in[n] = true
			}
		}
		reached[filepath.Base(f.FileName)] = in
	}
	return reached, nil
}

// notices reports whether the tests fail with the change. A line that no test executes is compiled only.
func (t tester) notices(ctx context.Context, dir string, m mutant, reached lines) (bool, error) {
	source, err := os.ReadFile(m.File)
	if err != nil {
		return false, err
	}
	changed := filepath.Join(dir, "mutant.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {m.File: changed}})
	if err != nil {
		return false, err
	}
	list := filepath.Join(dir, "overlay.json")
	err = errors.Join(os.WriteFile(changed, m.apply(source), 0o600), os.WriteFile(list, overlay, 0o600))
	if err != nil {
		return false, err
	}
	// The package compiles without the change: coverage has seen that.
	if err := exec.CommandContext(ctx, "go", "build", "-overlay", list, t.pattern).Run(); err != nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		return false, errNotCompiled
	}
	if !reached.has(m) {
		return false, nil
	}
	_, err = t.test(ctx, t.pattern, "-overlay", list)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err != nil, nil
}

// test runs the package's tests; vet is left out, because a mutant need not be good style.
func (t tester) test(ctx context.Context, pkg string, more ...string) ([]byte, error) {
	args := append([]string{"test", "-count=1", "-failfast", "-vet=off", "-timeout", t.limit.String()}, more...)
	if t.short {
		args = append(args, "-short")
	}
	return exec.CommandContext(ctx, "go", append(args, pkg)...).CombinedOutput()
}
