package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodedisk"
)

// bootEntry is a boot loader entry. Source: UAPI group, Boot Loader Specification, type 1.
type bootEntry struct {
	file       string
	lines      []string
	version    int    // highest boots
	options    string // kernel command line
	deployment string // directory that ostree= leads to, links resolved; "" when it leads nowhere
}

// bootEntries reads /boot/loader/entries, the default entry first.
func (d *Deployer) bootEntries() ([]bootEntry, error) {
	files, err := filepath.Glob(filepath.Join(d.root, "boot/loader/entries/ostree-*.conf"))
	if err != nil {
		return nil, fmt.Errorf("list boot entries: %w", err)
	}
	var all []bootEntry
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a deployment is being written
		}
		if err != nil {
			return nil, fmt.Errorf("read boot entry: %w", err)
		}
		b, err := parseBootEntry(d.root, file, raw)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].version > all[j].version })
	return all, nil
}

// parseBootEntry reads one entry, and follows the links of its ostree= argument below root.
func parseBootEntry(root, file string, raw []byte) (bootEntry, error) {
	b := bootEntry{file: file, lines: strings.Split(strings.TrimRight(string(raw), "\n"), "\n")}
	for _, line := range b.lines {
		key, value, _ := strings.Cut(line, " ")
		value = strings.TrimSpace(value)
		switch key {
		case "version":
			var err error
			if b.version, err = strconv.Atoi(value); err != nil {
				return bootEntry{}, fmt.Errorf("read version of boot entry %s: %w", file, err)
			}
		case "options":
			b.options = value
		}
	}
	for _, word := range deploy.SplitArguments(b.options) {
		target, ok := strings.CutPrefix(word, "ostree=")
		if !ok {
			continue
		}
		if real, err := filepath.EvalSymlinks(filepath.Join(root, target)); err == nil {
			b.deployment = real
		}
	}
	return b, nil
}

// preferEntry gives the boot entry of a deployment the highest version. The new file is complete before the old one
// goes, so that a power cut leaves one of them.
func (d *Deployer) preferEntry(deployment string) error {
	all, err := d.bootEntries()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(b bootEntry) bool { return b.deployment == deployment })
	if i < 0 {
		return &deploy.Fault{Class: deploy.ClassInternal, Op: "roll back",
			Err:  fmt.Errorf("no boot entry leads to %s", deployment),
			Next: "look at /boot/loader/entries"}
	}
	if i == 0 {
		return nil
	}
	old, version := all[i], all[0].version+1
	lines := slices.Clone(old.lines)
	for n, line := range lines {
		if strings.HasPrefix(line, "version ") {
			lines[n] = "version " + strconv.Itoa(version)
		}
	}
	name := strings.Replace(filepath.Base(old.file), fmt.Sprintf("ostree-%d", old.version),
		fmt.Sprintf("ostree-%d", version), 1)
	if name == filepath.Base(old.file) {
		return &deploy.Fault{Class: deploy.ClassInternal, Op: "roll back",
			Err:  fmt.Errorf("boot entry %s is not named as ostree names them", old.file),
			Next: "choose the older entry in the boot menu"}
	}
	// The unfinished file does not end in .conf: boot loaders do not see it.
	if err := nodedisk.WriteFile(filepath.Join(filepath.Dir(old.file), name), []byte(strings.Join(lines, "\n")+"\n"),
		0o644); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	if err := os.Remove(old.file); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}
