package firstboot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/softreboot"
	"dayone.dev/dayone/rebase/softreboot/userspace"
)

// State says how far a node is.
type State string

// The states. Done and RolledBack are final.
const (
	StateStarting   State = "Starting"
	StateWaiting    State = "Waiting" // an attempt failed; Class and Message tell why; tried again by itself
	StateStaging    State = "Staging"
	StateStaged     State = "Staged" // the image is the next boot's
	StateRebooting  State = "Rebooting"
	StateVerifying  State = "Verifying" // in the new image, health not yet known
	StateDone       State = "Done"
	StateRolledBack State = "RolledBack"
)

// Record is StateDir/status.json: for people, for the demo and for the log bundle; and what must be remembered over a
// reboot. What is booted or staged comes from the deployer, never from here.
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
	Verified []string     `json:"verified,omitempty"` // policies by which Image had to be signed, and was
	Boots    []Boot       `json:"boots,omitempty"`
	// Soft is the soft reboot that was asked for last; Hard is why a reboot was hard, or is to be.
	Soft    *userspace.Switch `json:"soft,omitempty"`
	Hard    string            `json:"hard,omitempty"`
	Updated time.Time         `json:"updated"`
}

// Boot is one boot that firstboot saw.
type Boot struct {
	ID    string    `json:"id"`
	Image string    `json:"image"`
	Time  time.Time `json:"time"`
	// Soft: hardware and kernel ran on from the boot before.
	Soft bool `json:"soft,omitempty"`
}

// Counts tells in words how often hardware and userspace started, such as "1 hardware boot, 1 soft reboot".
func (r Record) Counts() string { return BootsInWords(len(r.Boots), r.softReboots()) }

func (r Record) softReboots() (n int) {
	for _, b := range r.Boots {
		if b.Soft {
			n++
		}
	}
	return n
}

// BootsInWords tells in words how often hardware and userspace started. Soft reboots are among the boots.
func BootsInWords(boots, soft int) string {
	count := func(n int, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return fmt.Sprintf("%d %ss", n, what)
	}
	out := count(boots-soft, "hardware boot")
	if soft > 0 {
		out += ", " + count(soft, "soft reboot")
	}
	return out
}

// lastBoot is how the node came into what it runs.
func (r Record) lastBoot() softreboot.Decision {
	if last := len(r.Boots) - 1; last >= 0 && r.Boots[last].Soft {
		return softreboot.Decision{Soft: true}
	}
	if r.Soft != nil {
		return softreboot.Decision{Why: "the hardware rebooted before or during the soft reboot"}
	}
	return softreboot.Decision{Why: r.Hard}
}

// journal keeps a Record on disk and tells people what is in it.
type journal struct {
	path string
	log  *logrus.Entry
	now  func() time.Time
	// reporter passes the record on to the bootstrap host.
	reporter *reporter
	// source is the mirror or registry that had the image a moment ago.
	source string
	Record
}

// openJournal reads the record; one that is not there, or was cut by a power loss, is a new one: the deployer knows
// what is booted.
func openJournal(root string, log *logrus.Entry, now func() time.Time) (*journal, error) {
	j := &journal{path: filepath.Join(root, StateDir, "status.json"), log: log, now: now,
		reporter: &reporter{root: root, now: now}}
	raw, err := os.ReadFile(j.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read record: %w", err)
	}
	if err != nil || json.Unmarshal(raw, &j.Record) != nil {
		j.Record = Record{State: StateStarting}
	}
	return j, nil
}

func (j *journal) save() error {
	j.Updated = j.now().UTC()
	raw, err := json.MarshalIndent(j.Record, "", "  ")
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nodedisk.WriteFile(j.path, append(raw, '\n'), 0o644)
}

// enter notes a state.
func (j *journal) enter(s State) error {
	j.State = s
	if s != StateWaiting && s != StateStaging { // while an attempt is repeated, the cause stays to be read
		j.Class, j.Message, j.Attempts = "", "", 0
	}
	return j.tell()
}

// failed notes a failure that is tried again after a pause.
func (j *journal) failed(err error, pause time.Duration) error {
	class := deploy.ClassOf(err)
	if class == j.Class {
		j.Attempts++
	} else {
		j.Attempts = 1
	}
	j.State, j.Class, j.Message = StateWaiting, class, err.Error()
	if worthReporting(j.Attempts) {
		j.log.WithError(err).WithFields(logrus.Fields{"class": class, "attempt": j.Attempts,
			"again_in": pause.String()}).
			Error("this node stays on its present OS")
	}
	return j.tell()
}

// tell saves the record and passes it on. A report that fails is no error: the record counts.
func (j *journal) tell() error {
	err := j.save()
	if lost := j.reporter.send(j.Record); lost != nil {
		j.log.WithError(lost).Debug("bootstrap host does not know how far this node is")
	}
	return err
}

// progress logs a step of an attempt; when attempts fail one after the other, only those whose failure is logged, too.
func (j *journal) progress(e *logrus.Entry, message string) {
	if j.Attempts == 0 || worthReporting(j.Attempts+1) {
		e.Info(message)
	}
}

// worthReporting keeps the console readable while the same failure lasts for hours: attempts 1, 2, 4, 8, 16 and every
// 20th.
func worthReporting(attempt int) bool {
	return attempt%20 == 0 || attempt < 20 && attempt&(attempt-1) == 0
}

// sawBoot adds the running boot once; a soft reboot is one, too.
func (j *journal) sawBoot(id string, booted *deploy.Deployment) {
	j.Booted = booted.Image.String()
	if booted.Image.IsZero() {
		j.Booted = booted.Commit
	}
	if last := len(j.Boots) - 1; last < 0 || !nodedisk.SameBoot(j.Boots[last].ID, id) {
		j.Boots = append(j.Boots, Boot{ID: id, Image: j.Booted, Time: j.now().UTC(),
			Soft: last >= 0 && nodedisk.SoftRebooted(j.Boots[last].ID, id)})
	}
}
