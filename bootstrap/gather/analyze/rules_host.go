package analyze

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"dayone.dev/dayone/bootstrap/journal"
)

// again is what to do after a bootstrap that ended too early.
const again = "run dayone bootstrap again: it continues where it ended"

// fellBack applies where the nodes got the base image because no layered image could be made.
func fellBack(f *facts) (Verdict, bool) {
	note := f.ownRun.note(noteFallback)
	instead := ""
	if f.handed != nil {
		instead = f.handed.Instead
	}
	if note == nil && instead == "" {
		return Verdict{}, false
	}
	var v Verdict
	switch {
	case f.stopped != nil && f.stopped.Error != "":
		v = failedPhase(f, f.stopped)
	case note != nil:
		v = recordedFault(f, f.ownRun.service, *note)
		v.Phase = ""
	default:
		v = explained(StatusFellBack, "", instead)
		v.Evidence = f.evidence(handedName, "", quote(instead))
	}
	v.Status = StatusFellBack
	v.Summary = "the nodes boot the base image, as onFailure: fallback asks; the reason: " + v.Summary
	return v, true
}

// canceled is what a run says that was stopped (context.Canceled).
const canceled = "context canceled"

// stopRequested applies to a run that a person or the service manager ended.
func stopRequested(f *facts) (Verdict, bool) {
	v := Verdict{Status: StatusStopped, Summary: "a user or the service manager stopped the bootstrap", Next: again}
	switch phase := f.stopped; {
	case f.running:
		return Verdict{}, false
	case phase != nil && phase.Status == journal.StatusFailed && strings.Contains(phase.Error, canceled):
		v.Phase = shorten(phase.Name)
		v.Evidence = f.evidence(journalName, `"error":`, shorten(phase.Error))
	case phase == nil && f.outcome != nil && strings.Contains(f.outcome.Error, canceled):
		v.Evidence = f.evidence(outcomeName, `"error":`, shorten(f.outcome.Error))
	default:
		return Verdict{}, false
	}
	return v, true
}

// refused applies to a run that ended before its first phase.
func refused(f *facts) (Verdict, bool) {
	o := f.outcome
	if f.running || o == nil || o.Error == "" ||
		f.stopped != nil && strings.Contains(o.Error, "phase "+f.stopped.Name+":") {
		return Verdict{}, false
	}
	v := explained(StatusFailed, "start", o.Error)
	v.Evidence = f.evidence(outcomeName, `"error":`, quote(o.Error))
	if len(o.Findings) > 0 {
		first := o.Findings[0]
		v.Status, v.Evidence.Text = StatusRefused, shorten(first.Error())
		if v.Cause == causeUnknown {
			v.Cause, v.Summary = "refused-input", "dayone refused the input before it started anything: "+shorten(first.Message)
		}
		if first.Next != "" {
			v.Next = shorten(first.Next)
		}
	}
	return v, true
}

// phaseFailed applies to a phase that failed. Services that run on do not change that: the hand-over failed.
func phaseFailed(f *facts) (Verdict, bool) {
	if f.stopped == nil || f.stopped.Status != journal.StatusFailed || f.running && f.journal.Endpoints == nil {
		return Verdict{}, false
	}
	return failedPhase(f, f.stopped), true
}

func failedPhase(f *facts, r *journal.Record) Verdict {
	v := explained(StatusFailed, r.Name, r.Error)
	v.Evidence = f.evidence(journalName, `"error":`, quote(r.Error))
	if pool, ok := strings.CutPrefix(r.Name, "build-"); ok && v.Cause == causeContainerfile {
		v = failedRun(f, v, r.Error, shorten(pool))
	}
	return v
}

// serviceFailed applies to a service that says so in its records. They lie on another disk than the journal, which a
// full one keeps from saying so.
func serviceFailed(f *facts) (Verdict, bool) {
	if f.running || f.ownRun == nil || !f.ownRun.failed {
		return Verdict{}, false
	}
	return recordedFault(f, f.ownRun.service, f.ownRun.failure), true
}

// cutOff applies to a process that was killed in a phase.
func cutOff(f *facts) (Verdict, bool) {
	r := f.stopped
	if f.running || r == nil {
		return Verdict{}, false
	}
	return killed(f, Verdict{Phase: shorten(r.Name),
		Summary: fmt.Sprintf("the bootstrap's process was killed in the phase: %s", shorten(r.Title)),
		Evidence: f.evidence(journalName, `"status": "running"`,
			fmt.Sprintf("phase %s has been running since %s, and no process is", shorten(r.Name),
				r.Started.Format("15:04:05Z07:00")))}), true
}

// cutOffBetween applies to a process that was killed between two phases.
func cutOffBetween(f *facts) (Verdict, bool) {
	if f.running || f.journal == nil || len(f.journal.Records) == 0 || f.outcome != nil || f.status == nil || f.done {
		return Verdict{}, false
	}
	return killed(f, Verdict{Summary: "the bootstrap's process was killed between two phases",
		Evidence: f.evidence(journalName, "", "no phase is running, no process is, and the run has left no outcome")}), true
}

// killers are lines of journals that say why a process is gone.
var killers = regexp.MustCompile(
	`(?i)out of memory: killed process|oom-kill|code=killed|code=dumped|signal=KILL|status=9/KILL`)

// fullDisk is how little room on the state directory's disk, in bytes, keeps a process from saying why it ended.
const fullDisk = 64 << 10

// killed finds out why a process ended that did not say so itself.
func killed(f *facts, v Verdict) Verdict {
	v.Status, v.Cause = StatusCutOff, "killed"
	v.Next = "run dayone bootstrap again with the same --state-dir: it continues where it ended"
	if s := f.status; s != nil && s.DiskTotal > 0 && s.DiskFree < fullDisk {
		c := explain("no space left on device")
		v.Cause, v.Summary, v.Next = c.id, c.summary, c.next
		v.Evidence = f.evidence(statusName, `"diskTotal"`,
			fmt.Sprintf("%d bytes of %d are free on the state directory's disk", s.DiskFree, s.DiskTotal))
		return v
	}
	files := f.bundle.Below("bootstrap/journals")
	if failed := f.bundle.Get(failedUnit(ownService)); failed != nil {
		files = append(files, failed)
	}
	for _, file := range files {
		for n, line := range file.Lines() {
			if !killers.MatchString(line) {
				continue
			}
			v.Evidence = Evidence{File: file.Name, Line: n + 1, Text: shorten(line)}
			if c := explain(line); c.id == causeMemory {
				v.Cause, v.Summary, v.Next = c.id, c.summary, c.next
				return v
			}
		}
	}
	return v
}

// handedOver applies when the bootstrap host may go.
func handedOver(f *facts) (Verdict, bool) {
	if !f.done {
		return Verdict{}, false
	}
	at := ""
	if f.handed != nil && !f.handed.Time.IsZero() {
		at = " at " + f.handed.Time.UTC().Format(time.DateTime)
	}
	return Verdict{Status: StatusHandedOver,
		Summary: "all phases are done, and dayone handed everything over to the cluster" + at +
			": this host is no longer needed",
		Next: "dayone cluster status shows how the pools are"}, true
}

// waiting applies to a bootstrap that waits for something outside of it.
func waiting(f *facts) (Verdict, bool) {
	phase := f.phase()
	if f.ownRun == nil || f.ownRun.ended || phase == "" || f.status != nil && !f.running {
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
		v.Next = "wait: dayone holds the nodes back meanwhile; if openshift-install gives up, " +
			"run openshift-install wait-for bootstrap-complete again"
	case note == nil:
		return Verdict{}, false
	case phase == "render-first":
		v.Cause, v.Summary = "mco-not-rendered", "the Machine Config Operator has not rendered the first configs yet"
		v.Next = "check its static pod's init container: crictl logs of machine-config-controller, " +
			"and bootstrap/journals/kubelet.log"
	case phase == "cluster" && strings.Contains(note.ErrorMessage, "API server"):
		v.Cause, v.Summary = "api-not-up", "the bootstrap API server does not answer yet; dayone does not hold it up"
		v.Next = "check bootkube: journalctl -u bootkube, and bootstrap/journals/bootkube.log"
	default:
		c := explain(note.ErrorMessage)
		v.Cause, v.Summary, v.Next = c.id, "dayone retries: "+c.summary, c.next
	}
	v.Evidence = recordEvidence(f, f.ownRun.service, *note)
	return v, true
}

// recordsOnly applies to a bundle that has dayone's service records and no journal, as openshift-install's own have
// where nothing could be kept for them.
func recordsOnly(f *facts) (Verdict, bool) {
	r := f.ownRun
	if f.journal != nil || r == nil {
		return Verdict{}, false
	}
	switch {
	case r.failed:
		return recordedFault(f, r.service, r.failure), true
	case r.ended:
		return Verdict{Status: StatusStopped, Phase: shorten(r.stage),
			Summary: "a user or the service manager stopped the bootstrap", Next: again}, true
	}
	return Verdict{Status: StatusRunning, Phase: shorten(r.stage),
		Summary: "the bootstrap was running when the bundle was made, or was killed there: the records do not say which",
		Next:    "dayone status, as root on the bootstrap host, says which"}, true
}

// notStarted applies to a bundle without anything of dayone.
func notStarted(f *facts) (Verdict, bool) {
	switch {
	case !f.absent || len(f.services) > 0:
		return Verdict{}, false
	case f.bundle.Damage != "" || len(f.bundle.Below("bootstrap")) == 0: // also a directory that is no bundle
		return Verdict{Status: StatusUnknown, Summary: "the bundle holds nothing of a bootstrap host",
			Next: "gather again, on the bootstrap host"}, true
	}
	return Verdict{Status: StatusNotStarted, Summary: "dayone's bootstrap has not run on this host",
		Next: "start it with dayone bootstrap, or run gather with the right --state-dir"}, true
}

// noJournal applies to a bundle that does not say how dayone's bootstrap went.
func noJournal(f *facts) (Verdict, bool) {
	return Verdict{Status: StatusUnknown, Summary: "no service has failed, and there is no journal of dayone",
		Next: "read the timeline; gather again when there is more"}, f.journal == nil
}

// serving applies to a bootstrap that is running, or has been stopped, and nothing went wrong.
func serving(f *facts) (Verdict, bool) {
	ready := f.journal.Endpoints != nil
	switch {
	case ready && f.running:
		return Verdict{Status: StatusServing, Summary: "all phases are done; the bootstrap host serves its nodes",
			Next: "boot the nodes; dayone status shows the addresses"}, true
	case f.running:
		return Verdict{Status: StatusRunning, Summary: "the bootstrap was running when the bundle was made",
			Phase: f.phase(), Next: "wait; dayone status --watch shows the progress"}, true
	case ready:
		return Verdict{Status: StatusStopped,
			Summary: "all phases were done, and a user or the service manager stopped the bootstrap",
			Next:    "run dayone bootstrap again if nodes still wait for it"}, true
	}
	return Verdict{Status: StatusStopped,
		Summary: "a user or the service manager stopped the bootstrap between two phases", Next: again}, true
}

// serviceFault judges a service of the bootstrap node by its last records.
func serviceFault(f *facts, s service) (Verdict, bool) {
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
	return recordedFault(f, s, last), true
}

// recordedFault is the verdict on one record of a failure.
func recordedFault(f *facts, s service, e record) Verdict {
	v := explained(StatusFailed, strings.Trim(s.name+"/"+e.Stage, "/"), strings.TrimSpace(e.ErrorMessage+" "+e.ErrorLine))
	if v.Cause == causeUnknown {
		v.Cause, v.Summary = "service-failed", "a service of the bootstrap node failed"
		v.Next = "read " + journalOf(f, s.name)
	}
	if next := nextOf(e.ErrorMessage); next != "" {
		v.Next = shorten(next)
	}
	if v.Evidence = recordEvidence(f, s, e); v.Evidence.Line == 0 {
		v.Evidence.Line = f.line(s.file, `"failure"`)
	}
	if pool, ok := strings.CutPrefix(e.Stage, "build-"); ok && v.Cause == causeContainerfile {
		v = failedRun(f, v, e.ErrorMessage, shorten(pool))
	}
	return v
}

// journalOf is where a bundle has a service's systemd journal: openshift-install gathers those of its own units, and of
// every unit that has failed.
func journalOf(f *facts, service string) string {
	own, failed := "bootstrap/journals/"+service+".log", failedUnit(service)
	if f.bundle.Get(own) == nil && f.bundle.Get(failed) != nil {
		return failed
	}
	return own
}

// failedUnit is the systemd journal that a bundle has of a unit that has failed.
func failedUnit(service string) string { return "bootstrap/unit-status/" + service + ".service.log" }
