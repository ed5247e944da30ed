package analyze

import (
	"fmt"
	"time"

	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/build"
)

// Status is what became of the bootstrap.
type Status string

// The states of a bootstrap, as far as its bundle can tell.
const (
	// StatusServing: every phase is done and the host serves its nodes.
	StatusServing Status = "serving"
	// StatusRunning: it was running when the bundle was made.
	StatusRunning Status = "running"
	// StatusStopped: a user or the service manager stopped it.
	StatusStopped Status = "stopped"
	// StatusHandedOver: everything is with the cluster, and the host may go.
	StatusHandedOver Status = "handed over"
	// StatusWaiting: it waits for something outside of it.
	StatusWaiting Status = "waiting"
	// StatusFellBack: no layered image, and the nodes boot the base image, as the admin's onFailure: fallback asks.
	StatusFellBack Status = "fell back"
	// StatusVanished: it was running, and its host no longer answers.
	StatusVanished Status = "vanished"
	// StatusFailed: a phase or a stage failed.
	StatusFailed Status = "failed"
	// StatusRefused: the input was refused before anything was started.
	StatusRefused Status = "refused"
	// StatusCutOff: its process was killed in the middle of a phase.
	StatusCutOff Status = "cut off"
	// StatusNotStarted: nothing of dayone has run on the host.
	StatusNotStarted Status = "not started"
	// StatusCluster: the bundle is of a cluster in which nothing is degraded.
	StatusCluster Status = "cluster"
	// StatusDegraded: the bundle is of a cluster in which an object is degraded.
	StatusDegraded Status = "degraded"
	// StatusUnknown: the bundle does not say.
	StatusUnknown Status = "unknown"
)

// Verdict is the answer.
type Verdict struct {
	Status Status `json:"status"`
	// Phase is where it ended: a phase of dayone, or SERVICE/STAGE of the installer.
	Phase string `json:"phase,omitempty"`
	// Cause is a stable identifier, for example registry-credentials; docs/operators/log-bundles.md lists them.
	Cause string `json:"cause,omitempty"`
	// Summary is one sentence.
	Summary string `json:"summary"`
	// Evidence is the line that says so.
	Evidence Evidence `json:"evidence,omitzero"`
	// Output are the last lines that a failed command of the Containerfile printed.
	Output []string `json:"output,omitempty"`
	// Next is what to do.
	Next string `json:"next,omitempty"`
}

// Bad says that something went wrong, other than taking long.
func (v Verdict) Bad() bool {
	switch v.Status {
	case StatusFailed, StatusRefused, StatusCutOff, StatusDegraded, StatusFellBack, StatusVanished:
		return true
	}
	return false
}

// Good says that there is nothing left to do for the bootstrap.
func (v Verdict) Good() bool { return v.Status == StatusServing || v.Status == StatusHandedOver }

// Evidence is a line of a file of the bundle.
type Evidence struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	Text string `json:"text"`
}

// Phase is one phase or stage with its times.
type Phase struct {
	// Source is dayone, or the installer's service.
	Source   string    `json:"source"`
	Name     string    `json:"name"`
	Title    string    `json:"title,omitempty"`
	Status   string    `json:"status"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	Attempts int       `json:"attempts,omitempty"`
	// Interruptions counts the attempts that were cut off; Interrupted is when the next process found the last of them.
	Interruptions int       `json:"interruptions,omitempty"`
	Interrupted   time.Time `json:"interrupted,omitzero"`
	Reused        bool      `json:"reused,omitempty"`
	Error         string    `json:"error,omitempty"`
}

// Event is one line of the timeline.
type Event struct {
	At     time.Time `json:"at"`
	Source string    `json:"source"`
	Text   string    `json:"text"`
	// Bad marks failures.
	Bad bool `json:"bad,omitempty"`
}

// Build is one pool's image.
type Build struct {
	Pool string `json:"pool"`
	build.Result
}

// Difference is one field in which the final rendering differs from the first.
type Difference struct {
	Pool  string `json:"pool"`
	Field string `json:"field"`
	First string `json:"first,omitempty"`
	Final string `json:"final,omitempty"`
}

// Report is everything that analyze finds out.
type Report struct {
	Bundle string `json:"bundle"`
	// Gathered is when the bundle was made; zero when it does not say.
	Gathered time.Time `json:"gathered,omitzero"`
	Verdict  Verdict   `json:"verdict"`
	// Also are further faults, which may be the verdict's consequences.
	Also        []Verdict    `json:"also,omitempty"`
	Phases      []Phase      `json:"phases,omitempty"`
	Timeline    []Event      `json:"timeline,omitempty"`
	Builds      []Build      `json:"builds,omitempty"`
	Differences []Difference `json:"differences,omitempty"`
	// Nodes are those that have come to the host, as they were when the bundle was made.
	Nodes []nodes.View `json:"nodes,omitempty"`
	// Notes say what the bundle lacks.
	Notes []string `json:"notes,omitempty"`
}

// Vanished changes the verdict on a host that was running and has not answered since.
func (r *Report) Vanished(since time.Time, why string) {
	switch r.Verdict.Status {
	case StatusRunning, StatusWaiting, StatusServing, StatusUnknown, StatusNotStarted:
	default:
		return // what went wrong before explains more
	}
	was := r.Verdict
	r.Verdict = Verdict{Status: StatusVanished, Phase: was.Phase, Cause: "host-vanished",
		Summary: fmt.Sprintf("the bootstrap host has not answered since %s UTC; its last state: %s",
			since.UTC().Format(time.DateTime), was.Summary),
		Evidence: Evidence{File: "BUNDLE.lost.json", Text: shorten(why)},
		Next:     "check the machine's console and power; when it boots again, dayone continues where it ended"}
	if was.Cause != "" {
		r.Also = append([]Verdict{was}, r.Also...)
	}
	r.Timeline = append(r.Timeline, Event{At: since, Source: "gather", Text: "the host no longer answers: " +
		shorten(why), Bad: true})
}
