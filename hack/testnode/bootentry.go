package testnode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// bootEntry is a boot loader entry as ostree writes them. Source: the Boot Loader Specification, type 1.
type bootEntry struct {
	Name    string // of its file
	Options string // kernel arguments
}

// bootEntryOf gives the entry that a boot loader takes by default, the one with the highest number in sysroot's /boot,
// or the one before it.
func bootEntryOf(sysroot string, previous bool) (bootEntry, error) {
	files, err := filepath.Glob(filepath.Join(sysroot, "boot/loader/entries/*.conf"))
	if err != nil || len(files) == 0 {
		return bootEntry{}, fmt.Errorf("find boot entry in %s: there is none: deploy an image first", sysroot)
	}
	sortByVersion(files)
	chosen := files[len(files)-1]
	if previous && len(files) > 1 {
		chosen = files[len(files)-2]
	}
	raw, err := os.ReadFile(chosen)
	if err != nil {
		return bootEntry{}, fmt.Errorf("read boot entry: %w", err)
	}
	e := bootEntry{Name: filepath.Base(chosen)}
	for line := range strings.Lines(string(raw)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == "options" {
			e.Options = value
		}
	}
	if e.Options == "" {
		return bootEntry{}, fmt.Errorf("read boot entry %s: no options", chosen)
	}
	return e, nil
}

// deployment gives the directory that an entry's ostree= argument names.
func (e bootEntry) deployment(sysroot string) (string, error) {
	for _, arg := range strings.Fields(e.Options) {
		if target, ok := strings.CutPrefix(arg, "ostree="); ok {
			return filepath.EvalSymlinks(filepath.Join(sysroot, target))
		}
	}
	return "", fmt.Errorf("boot entry %s has no ostree= argument", e.Name)
}
