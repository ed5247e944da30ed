package decide

import (
	"fmt"
	"slices"
	"time"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
)

// policy decides or leaves the decision to the next policy.
type policy func(*Input) (Decision, bool)

// chain lists the policies in their order: the first one that decides ends the chain.
func chain() []policy {
	return []policy{problem, rebuild, running, failed, reuse, preBuilt, shared, begin}
}

// Decide runs the chain of policies. Equal input gives an equal decision.
func Decide(in Input) Decision {
	var d Decision
	for _, p := range chain() {
		if got, ok := p(&in); ok {
			d = got
			break
		}
	}
	if d.Action.Starts() {
		d = start(&in, d)
	}
	if in.Problem == nil {
		d.Interrupt = obsolete(&in, d)
	}
	return d
}

// Settled reports whether the build that serves the rebuild request has ended, with any outcome. A build that was
// interrupted because the pool needs other content now has not served the request.
func Settled(in Input) bool {
	b := find(in.Own, in.Serving)
	if b == nil || !b.State.Terminal() {
		return false
	}
	return b.State != machineosbuild.Interrupted || (in.Problem == nil && in.desires(*b))
}

func (in *Input) desires(b Known) bool {
	return b.Address == in.Address && b.Repository == in.Repository
}

// desired lists the own builds of the desired content, the latest attempt first.
func (in *Input) desired() []Known {
	var list []Known
	for _, b := range in.Own {
		if in.desires(b) {
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b Known) int { return b.Attempt - a.Attempt })
	return list
}

func find(list []Known, name string) *Known {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// problem: without an address nothing can be decided.
func problem(in *Input) (Decision, bool) {
	if in.Problem == nil {
		return Decision{}, false
	}
	return block(*in.Problem), true
}

func block(p Problem) Decision {
	d := Decision{Action: GiveUp, Reason: p.Reason, Message: p.Message, After: p.After}
	if p.Waits {
		d.Action = Wait
	}
	return d
}

// rebuild: the admin's request goes before everything that is known about earlier builds.
func rebuild(in *Input) (Decision, bool) {
	if !in.RebuildRequested || Settled(*in) {
		return Decision{}, false
	}
	serving := find(in.Own, in.Serving)
	if serving != nil && in.desires(*serving) && !serving.Deleting {
		d := waitFor(*serving, "the requested rebuild runs")
		d.Discard = in.failures()
		return d, true
	}
	d := in.next(Rebuild, reasonRebuildRequested, "the admin requested a rebuild")
	d.Forced = true
	switch before := find(in.Own, in.Current); {
	case serving != nil: // the same request, for other content
		d.Retries = serving.Retries
	case before != nil && before.State != machineosbuild.Succeeded:
		d.Retries = before.Retries + 1
	default:
		d.Retries = 1
	}
	if attempt, ok := in.attemptNamed(in.Serving); ok && serving == nil {
		d.BuildName, d.Attempt = in.Serving, attempt
	}
	d.Discard = in.failures()
	return d, true
}

// failures are the failed attempts, whatever their content.
func (in *Input) failures() []string {
	var names []string
	for _, b := range in.Own {
		if b.State == machineosbuild.Failed {
			names = append(names, b.Name)
		}
	}
	return names
}

// attemptNamed recognises the name of a build of the desired content that was announced and not created yet.
func (in *Input) attemptNamed(name string) (int, bool) {
	if name == "" {
		return 0, false
	}
	next := in.nextAttempt()
	for attempt := range next + discardedAttempts {
		if machineosbuild.AttemptName(in.Owner, in.Address, attempt) == name {
			return attempt, find(in.Own, name) == nil
		}
	}
	return 0, false
}

// discardedAttempts: failed attempts that were deleted meanwhile make the announced number larger than the next one.
const discardedAttempts = 64

// running: a build of the desired content is in progress.
func running(in *Input) (Decision, bool) {
	for _, b := range in.desired() {
		if b.Deleting && !b.State.Terminal() {
			return Decision{Action: Wait, Reason: reasonDeleting, BuildName: b.Name,
				Message: fmt.Sprintf("MachineOSBuild %s is being deleted; a new one follows", b.Name)}, true
		}
		if !b.State.Terminal() {
			return waitFor(b, "the image is being built"), true
		}
	}
	return Decision{}, false
}

func waitFor(b Known, what string) Decision {
	return Decision{Action: Wait, Reason: ReasonBuilding, BuildName: b.Name, Attempt: b.Attempt, Retries: b.Retries,
		Forced: b.Forced, Message: fmt.Sprintf("%s by MachineOSBuild %s", what, b.Name)}
}

// failed: the latest attempt at the desired content did not succeed. An older success counts again once another build
// was current since.
func failed(in *Input) (Decision, bool) {
	all := in.desired()
	if len(all) == 0 {
		return Decision{}, false
	}
	last := all[0]
	superseded := in.Current != last.Name || last.State == machineosbuild.Interrupted
	if superseded && succeeded(all) != nil {
		return Decision{}, false
	}
	switch {
	case last.State == machineosbuild.Interrupted:
		d := in.next(Build, reasonInterrupted, fmt.Sprintf("MachineOSBuild %s was interrupted", last.Name))
		d.Retries, d.Forced = last.Retries, last.Forced
		return d, true
	case last.State != machineosbuild.Failed:
		return Decision{}, false
	case !MayPass(last.Class):
		return giveUp(last, ReasonBuildFailed, "waits for a change or for the rebuild annotation"), true
	case last.Retries >= in.Policy.limit():
		next := fmt.Sprintf("%d retries have failed; waits for a change or for the rebuild annotation", last.Retries)
		return giveUp(last, ReasonRetriesExhausted, next), true
	}
	return in.retry(last), true
}

// MayPass reports whether a failure may go away without a change. The user's input and limits do not change themselves.
func MayPass(c build.Class) bool { return c == build.ClassTransient || c == build.ClassInfrastructure }

func giveUp(b Known, reason, next string) Decision {
	return Decision{Action: GiveUp, Reason: reason, BuildName: b.Name, Attempt: b.Attempt, Retries: b.Retries,
		Message: fmt.Sprintf("MachineOSBuild %s failed (%s): %s; %s", b.Name, b.Class, b.Message, next)}
}

// clockSkew is how far in the future a build may have ended: clocks differ by seconds, and the API keeps whole ones.
const clockSkew = 10 * time.Second

func (in *Input) retry(last Known) Decision {
	pause := in.Policy.pause(last.Retries)
	due := last.Ended.Add(pause)
	// a longer wait means that a clock was set since: the pause no longer counts
	if left := due.Sub(in.Now); left > 0 && left <= pause+clockSkew {
		return Decision{Action: Wait, Reason: ReasonBackoff, BuildName: last.Name, Attempt: last.Attempt,
			Retries: last.Retries, After: min(left, pause),
			Message: fmt.Sprintf("MachineOSBuild %s failed (%s): %s; tries again at %s", last.Name, last.Class, last.Message,
				due.UTC().Format(time.RFC3339))}
	}
	d := in.next(Retry, reasonTransientFailure, fmt.Sprintf("MachineOSBuild %s failed (%s): %s", last.Name, last.Class,
		last.Message))
	d.Retries, d.Forced = last.Retries+1, last.Forced
	return d
}

// reuse: an image with this content exists.
func reuse(in *Input) (Decision, bool) {
	b := succeeded(in.desired())
	if b == nil {
		return Decision{}, false
	}
	d := Decision{Action: Reuse, Reason: reasonSameContent, BuildName: b.Name, Attempt: b.Attempt, Image: b.Image,
		Message: fmt.Sprintf("MachineOSBuild %s has an image with this content", b.Name)}
	if in.InUse == b.Name {
		d.Action, d.Reason, d.Message = None, reasonUpToDate, fmt.Sprintf("the pool's image is that of MachineOSBuild %s",
			b.Name)
	}
	return d, true
}

func succeeded(list []Known) *Known {
	for i, b := range list {
		if b.State == machineosbuild.Succeeded && !b.Gone && !b.Deleting {
			return &list[i]
		}
	}
	return nil
}

// preBuilt: the image that the nodes were installed with is the first one.
func preBuilt(in *Input) (Decision, bool) {
	if in.PreBuilt == "" || in.InUse != "" || len(in.Own) > 0 {
		return Decision{}, false
	}
	d := in.next(Reuse, ReasonPreBuiltImage, "the pool was installed with "+in.PreBuilt)
	d.Image = in.PreBuilt
	return d, true
}

// shared: another pool asks for the same content in the same repository.
func shared(in *Input) (Decision, bool) {
	if b := succeeded(in.Others); b != nil {
		d := in.next(Reuse, ReasonSharedImage,
			fmt.Sprintf("MachineOSBuild %s of MachineOSConfig %s has an image with this content", b.Name, b.Owner))
		d.Image, d.From = b.Image, b.Name
		return d, true
	}
	for _, b := range in.Others {
		if !b.State.Terminal() && !b.Deleting {
			return Decision{Action: Wait, Reason: ReasonSharedBuild, From: b.Name,
				Message: fmt.Sprintf("MachineOSBuild %s of MachineOSConfig %s builds the same content", b.Name, b.Owner)}, true
		}
	}
	return Decision{}, false
}

// begin: there is no image with this content.
func begin(in *Input) (Decision, bool) {
	reason, message := reasonNewContent, "no image has this content"
	for _, b := range in.desired() {
		if b.Gone {
			reason, message = reasonImageGone, fmt.Sprintf("the registry does not have the image of MachineOSBuild %s any more",
				b.Name)
		}
	}
	return in.next(Build, reason, message), true
}

func (in *Input) nextAttempt() int {
	if all := in.desired(); len(all) > 0 {
		return all[0].Attempt + 1
	}
	return 0
}

// next names the next build of the desired content. The name is free even when a build for an older repository has the
// same attempt.
func (in *Input) next(action Action, reason, message string) Decision {
	d := Decision{Action: action, Reason: reason, Message: message, Attempt: in.nextAttempt()}
	for {
		d.BuildName = machineosbuild.AttemptName(in.Owner, in.Address, d.Attempt)
		if find(in.Own, d.BuildName) == nil {
			return d
		}
		d.Attempt++
	}
}

// start: a new build needs its inputs and a free slot. A running build that it replaces gives its slot.
func start(in *Input, d Decision) Decision {
	if in.Blocked != nil {
		return block(*in.Blocked)
	}
	if in.Free <= 0 && len(obsolete(in, d)) == 0 {
		return Decision{Action: Wait, Reason: ReasonQueued, Message: "waits until fewer builds run: " + d.Message}
	}
	return d
}

// obsolete names own builds that run and that the decision does not wait for.
func obsolete(in *Input, d Decision) []string {
	var names []string
	for _, b := range in.Own {
		keep := b.Name == d.BuildName || (!d.Action.Starts() && in.desires(b))
		if !b.State.Terminal() && !keep {
			names = append(names, b.Name)
		}
	}
	slices.Sort(names)
	return names
}
