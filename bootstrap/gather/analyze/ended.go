package analyze

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"dayone.dev/dayone/bootstrap/journal"
)

// ended judges a bootstrap whose process is gone by its journal, its outcome and its records.
func (f *facts) ended() (Verdict, bool) {
	phase := f.stopped()
	if v, ok := f.toldToStop(phase); ok {
		return v, true
	}
	if o := f.outcome; o != nil && o.Error != "" && (phase == nil || !strings.Contains(o.Error, "phase "+phase.Name+":")) {
		return f.refused(o), true
	}
	switch {
	case phase != nil && phase.Status == journal.StatusFailed:
		return f.failed(phase), true
	case f.ownRun != nil && f.ownRun.failed:
		// The records lie on another disk than the journal, which a full one keeps from saying so.
		return f.recordedFault(f.ownRun.service, f.ownRun.failure), true
	case phase != nil:
		return f.cutOff(phase), true
	case f.journal != nil && len(f.journal.Records) > 0 && f.outcome == nil && f.status != nil && !f.done():
		return f.killed(Verdict{Summary: "the bootstrap's process ended without a last word between two phases",
			Evidence: Evidence{File: journalName, Line: 1,
				Text: "no phase is at work, no process is, and no outcome is written down"}}), true
	}
	return Verdict{}, false
}

// canceled is what a run says that was told to stop (context.Canceled).
const canceled = "context canceled"

// toldToStop is the verdict on a run that a person or the service manager ended.
func (f *facts) toldToStop(phase *journal.Record) (Verdict, bool) {
	v := Verdict{Status: StatusStopped, Summary: "the bootstrap was told to stop",
		Next: "run dayone bootstrap again: it goes on where it ended"}
	switch {
	case phase != nil && phase.Status == journal.StatusFailed && strings.Contains(phase.Error, canceled):
		v.Phase, v.Evidence = shorten(phase.Name), Evidence{File: journalName, Text: shorten(phase.Error)}
		if e, ok := f.find(journalName, `"error":`); ok {
			v.Evidence.Line = e.Line
		}
	case phase == nil && f.outcome != nil && strings.Contains(f.outcome.Error, canceled):
		v.Evidence = Evidence{File: outcomeName, Text: shorten(f.outcome.Error)}
		if e, ok := f.find(outcomeName, `"error":`); ok {
			v.Evidence.Line = e.Line
		}
	default:
		return Verdict{}, false
	}
	return v, true
}

// stopped is the phase at which the journal ends: the first that failed or was at work.
func (f *facts) stopped() *journal.Record {
	if f.journal == nil {
		return nil
	}
	for i := range f.journal.Records {
		r := &f.journal.Records[i]
		// An interrupted one is not meant: an earlier process was cut off there, and the last one has not come to it again.
		if r.Status == journal.StatusFailed || r.Status == journal.StatusRunning {
			return r
		}
	}
	return nil
}

func (f *facts) refused(o *journal.Outcome) Verdict {
	c := explain(o.Error)
	v := Verdict{Status: StatusFailed, Phase: "start", Cause: c.id, Summary: c.summary, Next: c.next}
	if len(o.Findings) > 0 {
		first := o.Findings[0]
		v.Status = StatusRefused
		if c.id == "other" {
			v.Cause, v.Summary = "refused-input", "the input was refused before anything was started: "+shorten(first.Message)
		}
		if first.Next != "" {
			v.Next = shorten(first.Next)
		}
		v.Evidence = Evidence{File: outcomeName, Text: shorten(first.Error())}
	} else {
		v.Evidence = Evidence{File: outcomeName, Text: quote(o.Error)}
	}
	if e, ok := f.find(outcomeName, `"error":`); ok {
		v.Evidence.Line = e.Line
	}
	return v
}

// logPath is how a build's failure names its log.
var logPath = regexp.MustCompile(`full log: (\S+)`)

func (f *facts) failed(r *journal.Record) Verdict {
	c := explain(r.Error)
	v := Verdict{Status: StatusFailed, Phase: shorten(r.Name), Cause: c.id, Summary: c.summary, Next: c.next,
		Evidence: Evidence{File: journalName, Text: quote(r.Error)}}
	if next := nextOf(r.Error); next != "" {
		v.Next = shorten(next)
	}
	if e, ok := f.find(journalName, `"error":`); ok {
		v.Evidence.Line = e.Line
	}
	if m := logPath.FindStringSubmatch(r.Error); m != nil {
		if e, ok := f.lastLine(path.Base(m[1])); ok && c.id == "containerfile" {
			v.Summary += ": " + shorten(r.Error)
			v.Evidence = e
		}
	}
	return v
}

// lastLine is the last line of a build's log that says anything.
func (f *facts) lastLine(log string) (Evidence, bool) {
	for _, file := range f.bundle.Below(logsName) {
		if path.Base(file.Name) != log {
			continue
		}
		lines := file.Lines()
		for n := len(lines) - 1; n >= 0; n-- {
			if strings.TrimSpace(lines[n]) != "" {
				return Evidence{File: file.Name, Line: n + 1, Text: shorten(lines[n])}, true
			}
		}
	}
	return Evidence{}, false
}

func (f *facts) cutOff(r *journal.Record) Verdict {
	v := Verdict{Phase: shorten(r.Name),
		Summary: fmt.Sprintf("the bootstrap's process ended without a last word while it was to %s", shorten(r.Title)),
		Evidence: Evidence{File: journalName, Text: fmt.Sprintf("phase %s has been running since %s, and no process is",
			shorten(r.Name), r.Started.Format("15:04:05Z07:00"))}}
	if e, ok := f.find(journalName, `"status": "running"`); ok {
		v.Evidence.Line = e.Line
	}
	return f.killed(v)
}

// killers are lines of journals that say why a process is gone.
var killers = regexp.MustCompile(
	`(?i)out of memory: killed process|oom-kill|code=killed|code=dumped|signal=KILL|status=9/KILL`)

// fullDisk is how little room on the state directory's disk, in bytes, keeps a process from saying why it ended.
const fullDisk = 64 << 10

// killed looks for why a process is gone that did not say so itself.
func (f *facts) killed(v Verdict) Verdict {
	v.Status, v.Cause = StatusCutOff, "killed"
	v.Next = "run dayone bootstrap again with the same --state-dir: it goes on where it ended"
	if f.status.full() {
		c := explain("no space left on device")
		v.Cause, v.Summary, v.Next = c.id, c.summary, c.next
		v.Evidence = Evidence{File: statusName, Text: fmt.Sprintf("%d bytes of %d are free on the state directory's disk",
			f.status.DiskFree, f.status.DiskTotal)}
		if e, ok := f.find(statusName, `"diskTotal"`); ok {
			v.Evidence.Line = e.Line
		}
		return v
	}
	for _, file := range f.bundle.Below("bootstrap/journals") {
		for n, line := range file.Lines() {
			if !killers.MatchString(line) {
				continue
			}
			v.Evidence = Evidence{File: file.Name, Line: n + 1, Text: shorten(line)}
			if c := explain(line); c.id == "out-of-memory" {
				v.Cause, v.Summary, v.Next = c.id, c.summary, c.next
				return v
			}
		}
	}
	return v
}
