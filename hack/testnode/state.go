package testnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Files in a node's state directory.
const (
	configFile  = "config.json"
	stateFile   = "state.json"
	consoleFile = "console.log"
	notifyFile  = "notify"
	menuFile    = "menu"
	aliveFile   = "supervisor.lock"
	cmdlineFile = "cmdline"
	igniteFile  = "ignition.json"
)

// phase is where a node is in its life.
type phase string

const (
	phaseOff      phase = "off"
	phaseStarting phase = "starting"
	phaseReady    phase = "ready"
)

// state is what the supervisor publishes.
type state struct {
	Boot   int    `json:"boot"` // boots so far, the running one included
	Phase  phase  `json:"phase"`
	PID    int    `json:"pid"`    // of the node's PID 1, as this machine sees it
	Entry  string `json:"entry"`  // boot loader entry that was booted
	Reason string `json:"reason"` // why the node is off
}

// config is what a supervisor must know of its node.
type config struct {
	Name    string     `json:"name"`
	Addr    netip.Addr `json:"addr"`
	Sysroot string     `json:"sysroot"`
	Cgroup  string     `json:"cgroup"`
	Console string     `json:"console"` // file that gets everything written to the console
	Devices []string   `json:"devices"` // names in /dev beside the usual ones
	TTY     string     `json:"tty"`     // set by the supervisor
}

func writeJSON(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func readJSON(path string, v any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// readState gives the node's state; a node without a living supervisor is off, whatever its file says.
func readState(dir string) (state, error) {
	var s state
	if err := readJSON(filepath.Join(dir, stateFile), &s); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if s.Phase != phaseOff && !locked(filepath.Join(dir, aliveFile)) {
		if s.Boot > 0 {
			s.Reason = "its supervisor died"
		}
		s.Phase, s.PID = phaseOff, 0
	}
	return s, nil
}

// lock takes an exclusive lock that ends with the last process that holds the file; it does not wait.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// locked says whether a living process holds the lock.
func locked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// entry is a boot loader entry as ostree writes them.
type entry struct{ name, options string }

// bootEntry gives the entry a boot loader would take: the one with the highest number, or the one before it.
func bootEntry(sysroot string, previous bool) (entry, error) {
	files, err := filepath.Glob(filepath.Join(sysroot, "boot/loader/entries/*.conf"))
	if err != nil || len(files) == 0 {
		return entry{}, fmt.Errorf("find boot entry in %s: there is none: deploy an image first", sysroot)
	}
	sortByVersion(files)
	chosen := files[len(files)-1]
	if previous && len(files) > 1 {
		chosen = files[len(files)-2]
	}
	raw, err := os.ReadFile(chosen)
	if err != nil {
		return entry{}, fmt.Errorf("read boot entry: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if options, ok := strings.CutPrefix(strings.TrimSpace(line), "options "); ok {
			return entry{name: filepath.Base(chosen), options: options}, nil
		}
	}
	return entry{}, fmt.Errorf("read boot entry %s: no options", chosen)
}

// deployment gives the directory that an entry's ostree= argument names.
func (e entry) deployment(sysroot string) (string, error) {
	for _, arg := range strings.Fields(e.options) {
		if target, ok := strings.CutPrefix(arg, "ostree="); ok {
			return filepath.EvalSymlinks(filepath.Join(sysroot, target))
		}
	}
	return "", fmt.Errorf("boot entry %s has no ostree= argument", e.name)
}
