package testnode

import (
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"

	"dayone.dev/dayone/hack/runlock"
	"dayone.dev/dayone/hack/statefile"
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
	Soft   int    `json:"soft"` // soft reboots so far, over all boots
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

// readState gives the node's state; a node without a living supervisor is off, whatever its file says.
func readState(dir string) (state, error) {
	var s state
	if err := statefile.Read(filepath.Join(dir, stateFile), &s); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if s.Phase != phaseOff && !runlock.Held(filepath.Join(dir, aliveFile)) {
		if s.Boot > 0 {
			s.Reason = "its supervisor died"
		}
		s.Phase, s.PID = phaseOff, 0
	}
	return s, nil
}
