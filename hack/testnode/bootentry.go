package testnode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// BootEntry is a boot loader entry as ostree writes them. Source: the Boot Loader Specification, type 1.
type BootEntry struct {
	Name    string // of its file
	Options string // kernel arguments
	Linux   string // the kernel, below /boot
	Initrd  string // below /boot; "" when there is none
}

// NewestBootEntry gives the entry that a boot loader takes by default: the one with the highest number in sysroot's
// /boot.
func NewestBootEntry(sysroot string) (BootEntry, error) { return bootEntry(sysroot, false) }

// bootEntry gives the newest entry, or the one before it.
func bootEntry(sysroot string, previous bool) (BootEntry, error) {
	files, err := filepath.Glob(filepath.Join(sysroot, "boot/loader/entries/*.conf"))
	if err != nil || len(files) == 0 {
		return BootEntry{}, fmt.Errorf("find boot entry in %s: there is none: deploy an image first", sysroot)
	}
	sortByVersion(files)
	chosen := files[len(files)-1]
	if previous && len(files) > 1 {
		chosen = files[len(files)-2]
	}
	raw, err := os.ReadFile(chosen)
	if err != nil {
		return BootEntry{}, fmt.Errorf("read boot entry: %w", err)
	}
	e := BootEntry{Name: filepath.Base(chosen)}
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "options":
			e.Options = value
		case "linux":
			e.Linux = value
		case "initrd":
			e.Initrd = value
		}
	}
	if e.Options == "" {
		return BootEntry{}, fmt.Errorf("read boot entry %s: no options", chosen)
	}
	return e, nil
}

// deployment gives the directory that an entry's ostree= argument names.
func (e BootEntry) deployment(sysroot string) (string, error) {
	for _, arg := range strings.Fields(e.Options) {
		if target, ok := strings.CutPrefix(arg, "ostree="); ok {
			return filepath.EvalSymlinks(filepath.Join(sysroot, target))
		}
	}
	return "", fmt.Errorf("boot entry %s has no ostree= argument", e.Name)
}
