package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/softreboot"
	"dayone.dev/dayone/rebase/softreboot/userspace"
	"dayone.dev/dayone/rebase/target"
)

// JournalPath is where the agent keeps what it must remember, below the node's root.
const JournalPath = "/var/lib/dayone/daemon/journal.json"

// journal is the file's content. Plan and all that follows belong to Target.
type journal struct {
	State  State           `json:"state"`
	Target target.Target   `json:"target"`
	Plan   disruption.Plan `json:"plan"`
	// Boots is the image, by digest, that the node boots at the end of the plan; empty: the plan does not change it.
	Boots string `json:"boots,omitempty"`
	// ReadyIn is the boot in which all was made ready for the reboot. What is staged survives only an orderly shutdown.
	ReadyIn string `json:"readyIn,omitempty"`
	// From is the deployment that the reboot leaves, by its ID; empty: it boots the same one again.
	From string `json:"from,omitempty"`
	// AskedIn is the boot in which the agent asked for the reboot; Reboots counts how often.
	AskedIn string `json:"askedIn,omitempty"`
	Reboots int    `json:"reboots,omitempty"`
	// Policy is the pool's for the reboot, as it was when the node got its target; empty: Hard.
	Policy softreboot.Policy `json:"policy,omitempty"`
	// Soft is the soft reboot that was asked for in AskedIn; nil: a hard one was.
	Soft *userspace.Switch `json:"soft,omitempty"`
	// Hard is why the reboot is hard although the policy allows a soft one; Fell: a soft reboot went before and failed.
	Hard string `json:"hard,omitempty"`
	Fell bool   `json:"fell,omitempty"`
	// Left is why the node went back to the deployment before, after a soft reboot that failed; empty: it did not.
	Left string `json:"left,omitempty"`
	// Forced: the plan is a whole update that an administrator asked for; until the node has rebooted for it.
	Forced bool `json:"forced,omitempty"`
	// Journey counts the plans, so that what happens on the way to one is told from the same on the way to another.
	Journey int `json:"journey,omitempty"`
	// Entered is when the agent came into State; zero: an agent of a former version did.
	Entered time.Time `json:"entered,omitzero"`
}

// journalFile is its path.
type journalFile string

// load reads the file, which another process of the agent may have left. If a power cut spoiled it, or it names a state
// or a level that this agent does not know, the agent plans anew.
func (f journalFile) load() (journal, error) {
	raw, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return journal{State: Idle}, nil
	}
	if err != nil {
		return journal{}, fmt.Errorf("read journal: %w", err)
	}
	var j journal
	if json.Unmarshal(raw, &j) != nil || j.State.row().run == nil ||
		j.State != Planning && j.Plan.Level == disruption.LevelImpossible { // which no agent begins
		return journal{State: Planning}, nil
	}
	return j, nil
}

// save writes the file; it is on disk when this returns.
func (f journalFile) save(j journal) error {
	raw, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nodedisk.WriteFile(string(f), append(raw, '\n'), 0o600)
}
