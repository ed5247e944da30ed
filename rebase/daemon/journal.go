package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/target"
)

// JournalPath is where the agent keeps what it must remember, below the node's root.
const JournalPath = "/var/lib/dayone/daemon/journal.json"

// journal is the file. Plan and all that follows belong to Target.
type journal struct {
	path string

	State  State           `json:"state"`
	Target target.Target   `json:"target"`
	Plan   disruption.Plan `json:"plan"`
	// Boots is the image, by digest, that the node boots at the end of the plan; empty: the plan does not change it.
	Boots string `json:"boots,omitempty"`
	// ReadyIn is the boot in which all was made ready for the reboot. What is staged does not outlive it but by an orderly
	// shutdown.
	ReadyIn string `json:"readyIn,omitempty"`
	// From is the deployment that the reboot leaves, by its ID; empty: it boots the same one again.
	From string `json:"from,omitempty"`
	// AskedIn is the boot in which the reboot was asked for; Reboots counts how often.
	AskedIn string `json:"askedIn,omitempty"`
	Reboots int    `json:"reboots,omitempty"`
}

func newJournal(root string) *journal {
	return &journal{path: filepath.Join(root, JournalPath), State: Idle}
}

// load reads the file, which another process of the agent may have left. One that a power cut spoiled is as good as
// none: the agent plans anew.
func (j *journal) load() error {
	raw, err := os.ReadFile(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	read := journal{path: j.path}
	if json.Unmarshal(raw, &read) != nil || read.State == "" {
		read = journal{path: j.path, State: Planning}
	}
	*j = read
	return nil
}

func (j *journal) save() error {
	raw, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nodedisk.WriteFile(j.path, append(raw, '\n'), 0o600)
}

// to goes to a state; it is on disk when this returns.
func (j *journal) to(s State) error {
	j.State = s
	return j.save()
}
