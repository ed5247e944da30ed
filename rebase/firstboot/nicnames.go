package firstboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// nmstatectl writes systemd link files and names kernel arguments that keep the names which network cards have now.
// Source: nmstate, "persist-nic-names"; MCO calls it before the first change of the OS.
const nmstatectl = "nmstatectl"

// persistNICNames gives the kernel arguments that keep network cards' names. On an OS whose names stay as they are it
// does nothing; a node without nmstatectl continues without, and logs that.
func persistNICNames(ctx context.Context, root string, j *journal) ([]string, error) {
	changes, err := namesMayChange(root)
	if err != nil || !changes {
		return nil, err
	}
	path, err := exec.LookPath(nmstatectl)
	if errors.Is(err, exec.ErrNotFound) {
		j.progress(j.log, "names of network cards are not persisted: this OS has no nmstatectl")
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find nmstatectl: %w", err)
	}
	out := filepath.Join(root, StateDir, "nic-kernel-arguments")
	if err := os.Remove(out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("persist names of network cards: %w", err)
	}
	if err := runCommand(ctx, []string{path, "persist-nic-names", "--root", root, "--kargs-out", out},
		"persist names of network cards"); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it writes none when no name would change
		return nil, fmt.Errorf("persist names of network cards: %w", err)
	}
	return strings.Fields(string(raw)), nil
}

// namesMayChange tells from os-release whether this OS may name network cards unlike a later one: Enterprise Linux 8
// and 9. Source: MCO persists on these only (pkg/daemon, PersistNetworkInterfaces).
func namesMayChange(root string) (bool, error) {
	raw, err := readIfThere(filepath.Join(root, "etc/os-release"))
	if err != nil {
		return false, fmt.Errorf("read os-release: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if platform, ok := strings.CutPrefix(strings.TrimSpace(line), "PLATFORM_ID="); ok {
			platform = strings.Trim(platform, `"'`)
			return platform == "platform:el8" || platform == "platform:el9", nil
		}
	}
	return false, nil
}
