package decide

import (
	"fmt"
	"slices"
	"time"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
)

// policy has an opinion or leaves the matter to the next one.
type policy func(*Input) (Decision, bool)

// chain in the order in which policies are asked.
func chain() []policy {
	return []policy{problem, rebuild, running, failed, reuse, preBuilt, shared, begin}
}

// Decide asks the policies one after the other.
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
	d.Address = in.Address
	if in.Problem == nil {
		d.Interrupt = obsolete(&in, d)
	}
	return d
}

// Settled tells whether the build that serves a wish for a rebuild has ended, so that the wish is fulfilled, whatever
// the outcome. A build that was interrupted because other content is asked for now has not served it.
func Settled(in Input) bool {
	b := find(in.Own, in.Accepted)
	if b == nil || !b.State.Terminal() {
		return false
	}
	return b.State != machineosbuild.Interrupted || (in.Problem == nil && in.wants(*b))
}

func (in *Input) wants(b Known) bool {
	return b.Address == in.Address && b.Repository == in.Repository
}

// wanted are the own builds of what is asked for, the latest attempt first.
func (in *Input) wanted() []Known {
	var list []Known
	for _, b := range in.Own {
		if in.wants(b) {
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
	d := Decision{Action: GiveUp, Reason: p.Reason, Message: p.Message}
	if p.Waits {
		d.Action = Wait
	}
	return d
}

// rebuild: the admin's wish goes before everything that is known about earlier builds.
func rebuild(in *Input) (Decision, bool) {
	if !in.RebuildAsked || Settled(*in) {
		return Decision{}, false
	}
	accepted := find(in.Own, in.Accepted)
	if accepted != nil && in.wants(*accepted) && !accepted.Deleting {
		d := waitFor(*accepted, "the rebuild that was asked for runs")
		d.Forget = in.failures()
		return d, true
	}
	d := in.next(Rebuild, ReasonRebuildAsked, "a rebuild was asked for")
	d.Forced = true
	switch before := find(in.Own, in.Current); {
	case accepted != nil: // the same wish, for other content
		d.Retries = accepted.Retries
	case before != nil && before.State != machineosbuild.Succeeded:
		d.Retries = before.Retries + 1
	default:
		d.Retries = 1
	}
	if attempt, ok := in.attemptNamed(in.Accepted); ok && accepted == nil {
		d.BuildName, d.Attempt = in.Accepted, attempt
	}
	d.Forget = in.failures()
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

// attemptNamed recognises the name of a build of what is asked for that has been announced and not been made yet.
func (in *Input) attemptNamed(name string) (int, bool) {
	if name == "" {
		return 0, false
	}
	next := in.nextAttempt()
	for attempt := range next + attemptsAhead {
		if machineosbuild.AttemptName(in.Owner, in.Address, attempt) == name {
			return attempt, find(in.Own, name) == nil
		}
	}
	return 0, false
}

// attemptsAhead: attempts that were cleared away meanwhile make the announced number larger than the next one.
const attemptsAhead = 64

// running: a build of what is asked for is under way.
func running(in *Input) (Decision, bool) {
	for _, b := range in.wanted() {
		if b.Deleting && !b.State.Terminal() {
			return Decision{Action: Wait, Reason: ReasonDeleting, BuildName: b.Name,
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

// failed: the latest attempt at what is asked for did not succeed. An older success counts again once something else
// was current since.
func failed(in *Input) (Decision, bool) {
	all := in.wanted()
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
		d := in.next(Build, ReasonInterrupted, fmt.Sprintf("MachineOSBuild %s was interrupted", last.Name))
		d.Retries, d.Forced = last.Retries, last.Forced
		return d, true
	case last.State != machineosbuild.Failed:
		return Decision{}, false
	case !mends(last.Class):
		return giveUp(last, ReasonBuildFailed, "waits for a change or for the rebuild annotation"), true
	case last.Retries >= in.Policy.limit():
		next := fmt.Sprintf("%d retries have failed; waits for a change or for the rebuild annotation", last.Retries)
		return giveUp(last, ReasonRetriesExhausted, next), true
	}
	return in.retry(last), true
}

// mends tells whether a failure may go away without a change: what the user wrote and limits that were set do not.
func mends(c build.Class) bool { return c == build.ClassTransient || c == build.ClassInfrastructure }

func giveUp(b Known, reason, next string) Decision {
	return Decision{Action: GiveUp, Reason: reason, BuildName: b.Name, Attempt: b.Attempt, Retries: b.Retries,
		Message: fmt.Sprintf("MachineOSBuild %s failed (%s): %s; %s", b.Name, b.Class, b.Message, next)}
}

// clockSkew is how far in the future a build may have ended: clocks differ by seconds, and the API keeps whole ones.
const clockSkew = 10 * time.Second

func (in *Input) retry(last Known) Decision {
	pause := in.Policy.pause(last.Retries)
	due := last.Ended.Add(pause)
	// beyond that a clock was set since, and the pause counts no more
	if left := due.Sub(in.Now); left > 0 && left <= pause+clockSkew {
		return Decision{Action: Wait, Reason: ReasonBackoff, BuildName: last.Name, Attempt: last.Attempt,
			Retries: last.Retries,
			After:   min(left, pause),
			Message: fmt.Sprintf("MachineOSBuild %s failed (%s): %s; tries again at %s", last.Name, last.Class, last.Message,
				due.UTC().Format(time.RFC3339))}
	}
	d := in.next(Retry, ReasonTransientFailure, fmt.Sprintf("MachineOSBuild %s failed (%s): %s", last.Name, last.Class,
		last.Message))
	d.Retries, d.Forced = last.Retries+1, last.Forced
	return d
}

// reuse: an image with this content exists.
func reuse(in *Input) (Decision, bool) {
	b := succeeded(in.wanted())
	if b == nil {
		return Decision{}, false
	}
	d := Decision{Action: Reuse, Reason: ReasonSameContent, BuildName: b.Name, Attempt: b.Attempt, Image: b.Image,
		Message: fmt.Sprintf("MachineOSBuild %s has an image with this content", b.Name)}
	if in.InUse == b.Name {
		d.Action, d.Reason, d.Message = None, ReasonUpToDate, fmt.Sprintf("the pool's image is that of MachineOSBuild %s",
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

// begin: nobody has this content.
func begin(in *Input) (Decision, bool) {
	reason, message := ReasonNewContent, "no image has this content"
	for _, b := range in.wanted() {
		if b.Gone {
			reason, message = ReasonImageGone, fmt.Sprintf("the registry does not have the image of MachineOSBuild %s any more",
				b.Name)
		}
	}
	return in.next(Build, reason, message), true
}

func (in *Input) nextAttempt() int {
	if all := in.wanted(); len(all) > 0 {
		return all[0].Attempt + 1
	}
	return 0
}

// next names the next build of what is asked for. Its name is free also when an older repository has the same attempt.
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

// start: what begins a build needs its inputs and a place. What runs and is to be replaced gives its place.
func start(in *Input, d Decision) Decision {
	if in.Blocked != nil {
		return block(*in.Blocked)
	}
	if in.Free <= 0 && len(obsolete(in, d)) == 0 {
		return Decision{Action: Wait, Reason: ReasonQueued, Message: "waits until fewer builds run: " + d.Message}
	}
	return d
}

// obsolete are own builds that run and that the decision does not wait for.
func obsolete(in *Input, d Decision) []string {
	var names []string
	for _, b := range in.Own {
		keep := b.Name == d.BuildName || (!d.Action.Starts() && in.wants(b))
		if !b.State.Terminal() && !keep {
			names = append(names, b.Name)
		}
	}
	slices.Sort(names)
	return names
}
