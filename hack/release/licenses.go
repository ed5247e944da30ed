package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

const (
	// licensesFile is in the folder, in each archive and in each package: licenses ask for that.
	licensesFile = "THIRD-PARTY-LICENSES"
	// licenseCovers is how much of a license's file its known text must make out, in percent: the rest is names.
	licenseCovers = 75
	// goLibrary is the name of Go's own library in a bill of materials.
	goLibrary = "std"
)

// copiesOfGo are modules without a license file whose files are Go's own and say so: Go's license holds.
var copiesOfGo = []string{"github.com/ajeddeloh/go-json"}

// license is what a module is licensed by.
type license struct {
	// ids are SPDX identifiers, sorted.
	ids []string
	// texts are the files that say so, by name.
	texts map[string][]byte
}

// licenseFile is what Go modules call such a file.
var licenseFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)([.-].*)?$`)

// readLicenses finds the licenses of all modules that are in programs, by PATH@VERSION, and of Go's library. A module
// whose license is not known is an error: somebody has to read it.
func readLicenses(ctx context.Context, o options, work string) (map[string]license, error) {
	programs, err := filepath.Glob(filepath.Join(work, "*", "*"))
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("read what is in %s: %w", program, err)
		}
		for _, m := range info.Deps {
			m = compiled(m)
			wanted[m.Path+"@"+m.Version] = true
		}
	}
	dirs, err := moduleDirs(ctx, o.source, slices.Sorted(maps.Keys(wanted)))
	if err != nil {
		return nil, err
	}
	out := map[string]license{}
	var errs []error
	for name, dir := range dirs {
		if path, _, _ := strings.Cut(name, "@"); slices.Contains(copiesOfGo, path) {
			dir = dirs[goLibrary]
		}
		if out[name], err = licenseOf(dir); err != nil {
			errs = append(errs, fmt.Errorf("license of %s: %w", name, err))
		}
	}
	return out, errors.Join(errs...)
}

// compiled is the module that a program really has.
func compiled(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

// moduleDirs are the directories of modules in the cache, and that of Go itself.
func moduleDirs(ctx context.Context, source string, names []string) (map[string]string, error) {
	run := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = source
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("run go %s: %w", args[0], err)
		}
		return out, nil
	}
	root, err := run("env", "GOROOT")
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{goLibrary: strings.TrimSpace(string(root))}
	raw, err := run(append([]string{"mod", "download", "-json"}, names...)...)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(raw)); ; {
		var m struct{ Path, Version, Dir string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, fmt.Errorf("read where modules are: %w", err)
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
}

// licenseOf reads the license files of a module's directory.
func licenseOf(dir string) (license, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return license{}, err
	}
	out := license{texts: map[string][]byte{}}
	ids := map[string]bool{}
	for _, e := range entries {
		if !licenseFile.MatchString(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return license{}, err
		}
		found := licensecheck.Scan(text)
		if len(found.Match) == 0 || found.Percent < licenseCovers {
			return license{}, fmt.Errorf("%s is none that is known: read it, then leave the module out or teach this "+
				"program", filepath.Join(dir, e.Name()))
		}
		for _, m := range found.Match {
			ids[m.ID] = true
		}
		out.texts[e.Name()] = text
	}
	if len(ids) == 0 {
		return license{}, fmt.Errorf("%s has no license file", dir)
	}
	out.ids = slices.Sorted(maps.Keys(ids))
	return out, nil
}

// writeLicenses writes the table of modules and, each once, the texts.
func writeLicenses(o options) error {
	var table, texts bytes.Buffer
	numbers := map[[sha256.Size]byte]int{}
	for _, name := range slices.Sorted(maps.Keys(o.licenses)) {
		l := o.licenses[name]
		var at []string
		for _, file := range slices.Sorted(maps.Keys(l.texts)) {
			sum := sha256.Sum256(l.texts[file])
			if _, known := numbers[sum]; !known {
				numbers[sum] = len(numbers) + 1
				fmt.Fprintf(&texts, "\n--- text %d ---\n\n%s\n", numbers[sum], bytes.TrimSpace(l.texts[file]))
			}
			at = append(at, fmt.Sprint(numbers[sum]))
		}
		fmt.Fprintf(&table, "%s  %s  text %s\n", name, strings.Join(l.ids, ", "), strings.Join(at, ", "))
	}
	head := "The programs of dayone contain these Go modules. " + goLibrary + " is Go's own library.\n" +
		"dayone and machine-os-builder also contain the GNU C library (LGPL-2.1-or-later); make release links them " +
		"again.\n\n"
	return os.WriteFile(filepath.Join(o.out, licensesFile), append([]byte(head), append(table.Bytes(),
		texts.Bytes()...)...), 0o644)
}
