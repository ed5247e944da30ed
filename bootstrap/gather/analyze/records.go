package analyze

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// ownService is the service whose records dayone's bootstrap on an installer's node writes.
const ownService = "dayone-bootstrap"

// service is one file of records.
type service struct {
	name, file string
	entries    []record
}

// record is one entry of the installer's service records (bootstrap-service-record.sh).
type record struct {
	Timestamp    string `json:"timestamp"`
	Phase        string `json:"phase"`
	Result       string `json:"result"`
	Stage        string `json:"stage"`
	ErrorLine    string `json:"errorLine"`
	ErrorMessage string `json:"errorMessage"`
}

func (r record) time() time.Time {
	t, err := time.Parse(time.RFC3339, r.Timestamp)
	if err != nil {
		return time.Time{}
	}
	return t
}

// note says that the entry is no stage but something that dayone says between two: a wait, a limit, a file set aside.
func (r record) note() bool { return r.Phase == "stage start" && r.ErrorMessage != "" }

// interrupted begins the message of an entry with which a new process closes what an earlier one was at when it was
// killed.
const interrupted = "interrupted: "

// Beginnings of notes' names: what is waited for in a phase, and which of the installer's limits is near.
const (
	noteWait     = "wait-"
	noteTime     = "time-"
	noteFallback = "fallback"
	// handOverStage begins the names of the hand-over's stages, which say what they wait for first.
	handOverStage = "hand-over-"
)

// lastRun is what the records tell of the last start of dayone's service.
type lastRun struct {
	service service
	// stage is the first that was at work at the end, or the last one; open says which.
	stage string
	open  bool
	done  map[string]bool
	notes []record
	// ended and failed say how the service ended; failure is the record of that.
	ended, failed bool
	failure       record
}

func (s service) last() *lastRun {
	r := &lastRun{service: s, done: map[string]bool{}}
	var open []string
	for _, e := range s.entries {
		switch {
		case e.Phase == "service start":
			r, open = &lastRun{service: s, done: map[string]bool{}}, nil
		case e.note():
			r.notes = append(r.notes, e)
		case e.Phase == "stage start":
			open, r.stage = append(open, e.Stage), e.Stage
		case e.Phase == "stage end":
			for i, name := range open {
				if name == e.Stage {
					open = append(open[:i:i], open[i+1:]...)
					break
				}
			}
			r.done[e.Stage] = e.Result != "failure"
			if e.Result == "failure" && r.failure.Result == "" {
				r.failure = e
			}
		case e.Phase == "service end":
			r.ended = true
			if r.failed = e.Result == "failure"; r.failed && r.failure.Result == "" {
				r.failure = e
			}
		}
	}
	if len(open) > 0 {
		r.stage, r.open = open[0], true
	}
	return r
}

// note is the last note whose name has a beginning.
func (r *lastRun) note(beginning string) *record {
	if r == nil {
		return nil
	}
	for i := len(r.notes) - 1; i >= 0; i-- {
		if strings.HasPrefix(r.notes[i].Stage, beginning) {
			return &r.notes[i]
		}
	}
	return nil
}

// evidence is the line of a record's message, the last one that has it.
func (f *facts) evidence(s service, e record) Evidence {
	out := Evidence{File: s.file, Text: quote(strings.TrimSpace(e.ErrorMessage + " " + e.ErrorLine))}
	raw, err := json.Marshal(e.ErrorMessage)
	if err != nil || e.ErrorMessage == "" {
		return out
	}
	for n, line := range f.bundle.Get(s.file).Lines() {
		if strings.Contains(line, string(raw)) {
			out.Line = n + 1
		}
	}
	return out
}

// phaseNow is where the bootstrap was: by its journal, else by its records.
func (f *facts) phaseNow() string {
	if r := f.stopped(); r != nil {
		return shorten(r.Name)
	}
	if f.ownRun != nil && f.ownRun.open {
		return shorten(f.ownRun.stage)
	}
	return ""
}

// waiting is the verdict on a bootstrap that is well, but kept from going on by something outside of it.
func (f *facts) waiting() (Verdict, bool) {
	phase := f.phaseNow()
	if f.ownRun == nil || f.ownRun.ended || phase == "" || f.status != nil && !f.status.Running {
		return Verdict{}, false
	}
	v := Verdict{Status: StatusWaiting, Phase: phase}
	note := f.ownRun.note(noteWait + phase)
	if note == nil {
		note = f.ownRun.note(phase + "-") // a stage of the hand-over
	}
	limit := f.ownRun.note(noteTime)
	switch {
	case strings.HasPrefix(phase, "build-") && limit != nil:
		note = limit
		v.Cause, v.Summary = "slow-build", "an image build takes longer than half of what the installer gives it"
		v.Next = "wait: nodes are held back meanwhile; if openshift-install gives up, run openshift-install wait-for bootstrap-complete again"
	case note == nil:
		return Verdict{}, false
	case phase == "render-first":
		v.Cause, v.Summary = "mco-not-rendered", "the Machine Config Operator has not rendered the first configs yet"
		v.Next = "look at its static pod's init container: crictl logs of machine-config-controller, and bootstrap/journals/kubelet.log"
	case phase == "cluster" && strings.Contains(note.ErrorMessage, "API server"):
		v.Cause, v.Summary = "api-not-up", "the bootstrap API server does not answer yet; dayone does not hold it up"
		v.Next = "look at bootkube: journalctl -u bootkube, and bootstrap/journals/bootkube.log"
	default:
		c := explain(note.ErrorMessage)
		v.Cause, v.Summary, v.Next = c.id, "it is tried again and again: "+c.summary, c.next
	}
	v.Evidence = f.evidence(f.ownRun.service, *note)
	return v, true
}

// fellBack is the verdict where the nodes were given the stock image.
func (f *facts) fellBack() (Verdict, bool) {
	note := f.ownRun.note(noteFallback)
	instead := ""
	if f.handed != nil {
		instead = f.handed.Instead
	}
	if note == nil && instead == "" {
		return Verdict{}, false
	}
	var v Verdict
	switch phase := f.stopped(); {
	case phase != nil && phase.Error != "":
		v = f.failed(phase)
	case note != nil:
		v = f.recordedFault(f.ownRun.service, *note)
		v.Phase = ""
	default:
		c := explain(instead)
		v = Verdict{Cause: c.id, Summary: c.summary, Next: c.next, Evidence: Evidence{File: handedName, Line: 1,
			Text: quote(instead)}}
	}
	v.Status = StatusFellBack
	v.Summary = "the nodes boot the stock OS image, as onFailure: fallback asks; the reason: " + v.Summary
	return v, true
}

// done says that the bootstrap host may go.
func (f *facts) done() bool {
	return f.handed != nil || f.ownRun != nil && f.ownRun.done["hand-over"]
}

func (f *facts) handedOver() (Verdict, bool) {
	if !f.done() {
		return Verdict{}, false
	}
	v := Verdict{Status: StatusHandedOver,
		Summary: "every phase is done, and the images are handed over: this host is not needed any more",
		Next:    "dayone cluster status shows how the pools are"}
	if f.handed != nil && !f.handed.Time.IsZero() {
		v.Summary = fmt.Sprintf("every phase is done, and all of it was handed over at %s: this host is not needed any more",
			f.handed.Time.UTC().Format(time.DateTime))
	}
	return v, true
}

// recorded judges a bundle that has dayone's service records only, as openshift-install's own have.
func (f *facts) recorded() (Verdict, bool) {
	r := f.ownRun
	if f.journal != nil || r == nil {
		return Verdict{}, false
	}
	switch {
	case r.failed:
		return f.recordedFault(r.service, r.failure), true
	case r.ended:
		return Verdict{Status: StatusStopped, Phase: shorten(r.stage), Summary: "the bootstrap was told to stop",
			Next: "run dayone bootstrap again: it goes on where it ended"}, true
	}
	return Verdict{Status: StatusRunning, Phase: shorten(r.stage),
		Summary: "the bootstrap was at work when the bundle was made, or was cut off there: the records do not tell",
		Next:    "dayone status, as root on the bootstrap host, says which"}, true
}

// said are the notes that are worth knowing though nothing is wrong.
func (f *facts) said() []string {
	if f.ownRun == nil {
		return nil
	}
	var out []string
	for _, n := range f.ownRun.notes {
		if !strings.HasPrefix(n.Stage, noteWait) && !strings.HasPrefix(n.Stage, handOverStage) && n.Stage != noteFallback {
			out = append(out, shorten(n.Stage+": "+n.ErrorMessage))
		}
	}
	return out
}
