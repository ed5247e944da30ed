package standin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// bootEntry is a file of /boot/loader/entries. Source: Boot Loader Specification, type 1.
type bootEntry struct {
	path    string
	text    string
	version int
	options []string
}

// arguments are the options without ostree's own.
func (e bootEntry) arguments() []string {
	return slices.DeleteFunc(slices.Clone(e.options), func(o string) bool { return strings.HasPrefix(o, "ostree=") })
}

// entriesByDeployment finds each deployment's entry by the directory that ostree= leads to.
func entriesByDeployment() (map[string]bootEntry, error) {
	files, err := filepath.Glob("/boot/loader/entries/ostree-*.conf")
	if err != nil {
		return nil, fmt.Errorf("list boot entries: %w", err)
	}
	all := map[string]bootEntry{}
	for _, path := range files {
		e, err := readBootEntry(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read boot entry %s: %w", path, err)
		}
		if dir, err := filepath.EvalSymlinks(e.target()); err == nil {
			all[dir] = e
		}
	}
	return all, nil
}

func readBootEntry(path string) (bootEntry, error) {
	raw, err := os.ReadFile(path)
	e := bootEntry{path: path, text: string(raw)}
	for _, line := range strings.Split(e.text, "\n") {
		if v, ok := strings.CutPrefix(line, "version "); ok {
			e.version, err = strconv.Atoi(strings.TrimSpace(v))
		}
		if o, ok := strings.CutPrefix(line, "options "); ok {
			e.options = strings.Fields(o)
		}
	}
	return e, err
}

// target is the link that ostree= names, "" without one.
func (e bootEntry) target() string {
	for _, o := range e.options {
		if target, ok := strings.CutPrefix(o, "ostree="); ok {
			return target
		}
	}
	return ""
}

// makeDefault puts a deployment first in the boot order, as libostree does when its list is written in another order.
func makeDefault(d deployment) error {
	all, err := entriesByDeployment()
	if err != nil {
		return err
	}
	mine, ok := all[d.dir()]
	if !ok {
		return fmt.Errorf("no boot entry for %s", d.id())
	}
	highest := mine.version
	for _, e := range all {
		highest = max(highest, e.version)
	}
	if highest == mine.version {
		return nil
	}
	text := strings.Replace(mine.text, fmt.Sprintf("version %d\n", mine.version), fmt.Sprintf("version %d\n", highest+1),
		1)
	name := strings.Replace(filepath.Base(mine.path), fmt.Sprintf("ostree-%d", mine.version),
		fmt.Sprintf("ostree-%d", highest+1), 1)
	if name == filepath.Base(mine.path) {
		return fmt.Errorf("boot entry %s has no version in its name", mine.path)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(mine.path), name), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write boot entry: %w", err)
	}
	return os.Remove(mine.path)
}
