package analyze

import (
	"slices"
	"strings"

	"dayone.dev/dayone/bootstrap/gather/bundle"
	"dayone.dev/dayone/bootstrap/journal"
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
	verdicts := f.verdicts()
	r.Verdict, r.Also = verdicts[0], verdicts[1:]
	r.Notes = append(f.notes, f.said()...)
	return r
}

// verdicts are those on everything that went wrong, the one that explains most first, or the one that nothing did.
func (f *facts) verdicts() []Verdict {
	own := f.own()
	var others []Verdict
	for _, s := range f.services {
		if v, ok := f.serviceFault(s); ok && s.name != ownService {
			others = append(others, v)
		}
	}
	// Dayone's own services before the installer's, which wait for them.
	slices.SortStableFunc(others, func(a, b Verdict) int { return foreign(a) - foreign(b) })
	switch {
	case own.Bad():
		return append([]Verdict{own}, others...)
	case len(others) > 0 && f.absent():
		return others
	case len(others) > 0:
		return append(others, own)
	}
	return []Verdict{own}
}

func foreign(v Verdict) int {
	if strings.HasPrefix(v.Phase, "dayone") {
		return 0
	}
	return 1
}

// absent says that the bundle has nothing of dayone.
func (f *facts) absent() bool {
	return f.journal == nil && f.outcome == nil && f.ownRun == nil
}

// own is what became of dayone's bootstrap.
func (f *facts) own() Verdict {
	if v, ok := f.fellBack(); ok {
		return v
	}
	if !f.running() {
		if v, ok := f.ended(); ok {
			return v
		}
	} else if r := f.stopped(); r != nil && r.Status == journal.StatusFailed && f.journal.Endpoints != nil {
		return f.failed(r) // its services run on: the hand-over has failed
	}
	if v, ok := f.handedOver(); ok {
		return v
	}
	if v, ok := f.waiting(); ok {
		return v
	}
	if v, ok := f.recorded(); ok {
		return v
	}
	return f.healthy()
}

// running says whether a bootstrap worked when the bundle was made; a bundle of openshift-install does not tell.
func (f *facts) running() bool { return f.status != nil && f.status.Running }

// serviceFault judges a service of the bootstrap node by its last records.
func (f *facts) serviceFault(s service) (Verdict, bool) {
	var last record
	stage := ""
	for _, e := range s.entries {
		if e.Phase == "stage start" && !e.note() {
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
	return f.recordedFault(s, last), true
}

// recordedFault is the verdict on one record of a failure.
func (f *facts) recordedFault(s service, e record) Verdict {
	text := strings.TrimSpace(e.ErrorMessage + " " + e.ErrorLine)
	c := explain(text)
	if c.id == "other" {
		c.id, c.summary = "service-failed", "a service of the bootstrap node failed"
		c.next = "read bootstrap/journals/" + s.name + ".log"
	}
	v := Verdict{Status: StatusFailed, Phase: shorten(strings.Trim(s.name+"/"+e.Stage, "/")), Cause: c.id,
		Summary: c.summary, Next: c.next, Evidence: f.evidence(s, e)}
	if next := nextOf(e.ErrorMessage); next != "" {
		v.Next = shorten(next)
	}
	if v.Evidence.Line > 0 {
		return v
	}
	if found, ok := f.find(s.file, `"failure"`); ok {
		v.Evidence.Line = found.Line
	}
	return v
}

// healthy is the verdict when nothing went wrong.
func (f *facts) healthy() Verdict {
	running := f.running()
	switch {
	case f.absent() && len(f.bundle.Below("resources")) > 0 && len(f.services) == 0:
		return f.ofCluster()
	case f.absent() && len(f.services) == 0:
		if f.bundle.Damage != "" || len(f.bundle.Below("bootstrap")) == 0 { // also a directory that is no bundle
			return Verdict{Status: StatusUnknown, Summary: "the bundle holds nothing of a bootstrap host",
				Next: "gather again, on the bootstrap host"}
		}
		return Verdict{Status: StatusNotStarted, Summary: "no bootstrap of dayone has run on this host",
			Next: "start it with dayone bootstrap, or give gather the right --state-dir"}
	case f.journal == nil:
		return Verdict{Status: StatusUnknown, Summary: "no service has failed, and there is no journal of dayone",
			Next: "look at the timeline; gather again when there is more"}
	case f.journal.Endpoints != nil && running:
		return Verdict{Status: StatusServing, Summary: "every phase is done; the bootstrap host serves its nodes",
			Next: "boot the nodes; dayone status shows the addresses"}
	case running:
		v := Verdict{Status: StatusRunning, Summary: "the bootstrap was at work when the bundle was made",
			Next: "wait; dayone status --watch shows how it goes on"}
		if r := f.stopped(); r != nil {
			v.Phase = r.Name
		}
		return v
	case f.journal.Endpoints != nil:
		return Verdict{Status: StatusStopped, Summary: "every phase was done, and the bootstrap was told to stop",
			Next: "run dayone bootstrap again if nodes still wait for it"}
	}
	return Verdict{Status: StatusStopped, Summary: "the bootstrap was told to stop between two phases",
		Next: "run dayone bootstrap again: it goes on where it ended"}
}
