package firstboot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodedisk"
)

// State says how far a node is.
type State string

// The states. Done and RolledBack are final.
const (
	StateStarting   State = "Starting"
	StateWaiting    State = "Waiting" // something is in the way; Class and Message tell what; tried again by itself
	StateStaging    State = "Staging"
	StateRebooting  State = "Rebooting"
	StateVerifying  State = "Verifying" // in the new image, health not yet known
	StateDone       State = "Done"
	StateRolledBack State = "RolledBack"
)

// Record is StateDir/status.json: for people, for the demo and for the log bundle; and what must be remembered over a
// reboot. What is booted or staged is never taken from it, but asked of the deployer.
type Record struct {
	State    State        `json:"state"`
	Image    string       `json:"image,omitempty"`  // wanted
	Config   string       `json:"config,omitempty"` // rendered config's name
	Booted   string       `json:"booted,omitempty"` // image that runs now, or the commit when it came from no image
	Deployer deploy.Kind  `json:"deployer,omitempty"`
	Reason   string       `json:"deployerReason,omitempty"`
	Class    deploy.Class `json:"class,omitempty"`
	Message  string       `json:"message,omitempty"`
	Attempts int          `json:"attempts"`           // failures of the same class in a row
	Reboots  int          `json:"reboots"`            // asked for by firstboot, for this image
	WentBack string       `json:"wentBack,omitempty"` // why this node left the image; empty: it did not
	Warning  string       `json:"warning,omitempty"`  // of a node that is done, and not quite what the config asks for
	Boots    []Boot       `json:"boots,omitempty"`
	Updated  time.Time    `json:"updated"`
}

// Boot is one boot that firstboot saw.
type Boot struct {
	ID    string    `json:"id"`
	Image string    `json:"image"`
	Time  time.Time `json:"time"`
}

// recordFile keeps a Record on disk.
type recordFile struct{ path string }

func (f recordFile) load() (Record, error) {
	raw, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{State: StateStarting}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("read record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(raw, &r); err != nil {
		// A file cut by a power loss must not keep the node; the deployer knows the state.
		return Record{State: StateStarting}, nil //nolint:nilerr // see above
	}
	return r, nil
}

func (f recordFile) save(r Record) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nodedisk.WriteFile(f.path, append(raw, '\n'), 0o644)
}

// sawBoot adds the running boot once.
func (r *Record) sawBoot(id, image string, now time.Time) {
	if slices.ContainsFunc(r.Boots, func(b Boot) bool { return b.ID == id }) {
		return
	}
	r.Boots = append(r.Boots, Boot{ID: id, Image: image, Time: now})
}
