package analyze

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"dayone.dev/dayone/bootstrap"
	"dayone.dev/dayone/bootstrap/gather/bundle"
)

// Bundle analyses a bundle. It never fails: what the bundle does not tell is said in the report.
func Bundle(b *bundle.Bundle) *Report {
	f := readFacts(b)
	r := &Report{Bundle: shorten(b.Name)}
	if f.status != nil {
		r.Gathered = f.status.Gathered
	}
	r.Phases = f.phases()
	r.Builds = f.builds()
	r.Differences = f.differences()
	r.Timeline = f.timeline(r)
	faults := f.faults()
	if len(faults) > 0 {
		r.Verdict, r.Also = faults[0], faults[1:]
	} else {
		r.Verdict = f.healthy()
	}
	r.Notes = f.notes
	return r
}

// faults are the verdicts on everything that went wrong, the one that explains most first.
func (f *facts) faults() []Verdict {
	var out []Verdict
	if v, ok := f.ended(); ok {
		out = append(out, v)
	}
	// Dayone's own services before the installer's, which wait for them.
	for _, ours := range []bool{true, false} {
		for _, s := range f.services {
			if strings.HasPrefix(s.name, "dayone") != ours {
				continue
			}
			if v, ok := f.serviceFault(s); ok {
				out = append(out, v)
			}
		}
	}
	return out
}

// ended judges a standalone bootstrap by its journal and outcome.
func (f *facts) ended() (Verdict, bool) {
	if f.status != nil && f.status.Running {
		return Verdict{}, false // whatever failed before, it is being tried again
	}
	phase := f.stopped()
	if o := f.outcome; o != nil && o.Error != "" && (phase == nil || !strings.Contains(o.Error, "phase "+phase.Name+":")) {
		return f.refused(o), true
	}
	switch {
	case phase == nil:
		return Verdict{}, false
	case phase.Status == bootstrap.PhaseFailed:
		return f.failed(phase), true
	case phase.Status == bootstrap.PhaseRunning:
		return f.cutOff(phase), true
	}
	return Verdict{}, false
}

// stopped is the phase at which the journal ends: the first that failed or was at work.
func (f *facts) stopped() *bootstrap.Record {
	if f.journal == nil {
		return nil
	}
	for i := range f.journal.Records {
		switch r := &f.journal.Records[i]; r.Status {
		case bootstrap.PhaseFailed, bootstrap.PhaseRunning:
			return r
		}
	}
	return nil
}

func (f *facts) refused(o *bootstrap.Outcome) Verdict {
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
		v.Evidence = Evidence{File: outcomeName, Text: shorten(o.Error)}
	}
	if e, ok := f.find(outcomeName, `"error":`); ok {
		v.Evidence.Line = e.Line
	}
	return v
}

// logPath is how a build's failure names its log.
var logPath = regexp.MustCompile(`full log: (\S+)`)

func (f *facts) failed(r *bootstrap.Record) Verdict {
	c := explain(r.Error)
	v := Verdict{Status: StatusFailed, Phase: r.Name, Cause: c.id, Summary: c.summary, Next: c.next,
		Evidence: Evidence{File: journalName, Text: shorten(r.Error)}}
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

// killers are lines of journals that say why a process is gone.
var killers = regexp.MustCompile(`(?i)out of memory: killed process|oom-kill|code=killed|code=dumped|signal=KILL|status=9/KILL`)

func (f *facts) cutOff(r *bootstrap.Record) Verdict {
	v := Verdict{Status: StatusCutOff, Phase: r.Name, Cause: "killed", Summary: fmt.Sprintf("the bootstrap's process ended without a last word while it was to %s", r.Title),
		Evidence: Evidence{File: journalName, Text: fmt.Sprintf("phase %s has been running since %s, and no process is", r.Name, r.Started.Format("15:04:05Z07:00"))},
		Next:     "run dayone bootstrap again with the same --state-dir: it goes on where it ended"}
	if e, ok := f.find(journalName, `"status": "running"`); ok {
		v.Evidence.Line = e.Line
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

// serviceFault judges a service of the bootstrap node by its last records.
func (f *facts) serviceFault(s service) (Verdict, bool) {
	var last record
	stage := ""
	for _, e := range s.entries {
		if e.Phase == "stage start" {
			stage = e.Stage
		}
		if strings.HasSuffix(e.Phase, " end") {
			if e.Result == "failure" && last.Result == "failure" && last.Stage != "" && e.Stage == "" {
				continue // the service fails because its stage did
			}
			last = e
		}
	}
	if last.Result != "failure" {
		return Verdict{}, false
	}
	if last.Stage == "" {
		last.Stage = stage
	}
	text := last.ErrorMessage + " " + last.ErrorLine
	c := explain(text)
	if c.id == "other" {
		c.id, c.summary = "service-failed", "a service of the bootstrap node failed"
		c.next = "read bootstrap/journals/" + s.name + ".log"
	}
	v := Verdict{Status: StatusFailed, Phase: shorten(strings.Trim(s.name+"/"+last.Stage, "/")), Cause: c.id, Summary: c.summary, Next: c.next,
		Evidence: Evidence{File: s.file, Text: shorten(text)}}
	if next := nextOf(last.ErrorMessage); next != "" {
		v.Next = shorten(next)
	}
	if e, ok := f.find(s.file, `"failure"`); ok {
		v.Evidence.Line = e.Line
	}
	return v, true
}

// healthy is the verdict when nothing went wrong.
func (f *facts) healthy() Verdict {
	running := f.status != nil && f.status.Running
	switch {
	case f.journal == nil && len(f.bundle.Below("resources")) > 0 && len(f.services) == 0:
		return Verdict{Status: StatusCluster, Summary: "the bundle is of a cluster: no bootstrap host is in it", Next: "dayone cluster status shows how the pools are"}
	case f.journal == nil && len(f.services) == 0 && f.outcome == nil:
		if f.bundle.Damage != "" || len(f.bundle.Names()) == 0 {
			return Verdict{Status: StatusUnknown, Summary: "the bundle holds nothing of a bootstrap host", Next: "gather again, on the bootstrap host"}
		}
		return Verdict{Status: StatusNotStarted, Summary: "no bootstrap of dayone has run on this host", Next: "start it with dayone bootstrap, or give gather the right --state-dir"}
	case f.journal == nil:
		return Verdict{Status: StatusUnknown, Summary: "no service has failed, and there is no journal of dayone", Next: "look at the timeline; gather again when there is more"}
	case f.journal.Endpoints != nil && running:
		return Verdict{Status: StatusServing, Summary: "every phase is done; the bootstrap host serves its nodes", Next: "boot the nodes; dayone status shows the addresses"}
	case running:
		v := Verdict{Status: StatusRunning, Summary: "the bootstrap was at work when the bundle was made", Next: "wait; dayone status --watch shows how it goes on"}
		if r := f.stopped(); r != nil {
			v.Phase = r.Name
		}
		return v
	case f.journal.Endpoints != nil:
		return Verdict{Status: StatusStopped, Summary: "every phase was done, and the bootstrap does not run any more", Next: "run dayone bootstrap again if nodes still wait for it"}
	}
	return Verdict{Status: StatusStopped, Summary: "the bootstrap was stopped between two phases", Next: "run dayone bootstrap again: it goes on where it ended"}
}
