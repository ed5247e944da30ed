package decide

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
)

const repository = "registry.example.test/os/custom"

// at is when the tests take place.
func at() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }

func address(letter string) string { return strings.Repeat(letter, 64) }

func name(letter string, attempt int) string {
	return machineosbuild.AttemptName("worker", address(letter), attempt)
}

// known is a build of the pool's for an address.
func known(letter string, attempt int, state machineosbuild.State) Known {
	b := Known{Name: name(letter, attempt), Owner: "worker", Address: address(letter), Repository: repository,
		State: state, Attempt: attempt,
		Ended: at().Add(-time.Second)}
	if state == machineosbuild.Succeeded {
		b.Image = repository + "@sha256:" + address(letter)
	}
	return b
}

func failure(letter string, attempt, retries int, class build.Class) Known {
	b := known(letter, attempt, machineosbuild.Failed)
	b.Class, b.Message, b.Retries = class, "it broke", retries
	return b
}

func of(b Known, change func(*Known)) Known {
	change(&b)
	return b
}

// wants asks for address a with a place free.
func wants(own ...Known) Input {
	return Input{Owner: "worker", Address: address("a"), Repository: repository, Own: own, Free: 1, Now: at()}
}

func with(in Input, change func(*Input)) Input {
	change(&in)
	return in
}

type verdict struct {
	action Action
	reason string
	build  string
}

func TestDecisions(t *testing.T) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			d := Decide(c.in)
			assert.Equal(t, c.want, verdict{d.Action, d.Reason, d.BuildName}, d.Message)
			assert.NotContains(t, d.Interrupt, d.BuildName)
			if c.in.Problem == nil && c.in.Blocked == nil {
				assert.NotEmpty(t, d.Message)
			}
		})
	}
}

func TestRebuildDiscardsFailures(t *testing.T) {
	d := Decide(with(wants(known("b", 0, machineosbuild.Succeeded), failure("b", 1, 0, build.ClassUser),
		failure("a", 0, 2, build.ClassTransient)),
		func(in *Input) { in.RebuildRequested, in.Current = true, name("a", 0) }))
	assert.ElementsMatch(t, []string{name("b", 1), name("a", 0)}, d.Discard)
	assert.Equal(t, 3, d.Retries)
	assert.True(t, d.Forced)
}

func TestRetryOfRebuild(t *testing.T) {
	d := Decide(with(wants(of(failure("a", 1, 1, build.ClassTransient), func(b *Known) { b.Forced = true })),
		func(in *Input) { in.Now = at().Add(time.Hour) }))
	assert.Equal(t, Retry, d.Action)
	assert.True(t, d.Forced, "an image of the same inputs from before the rebuild does not do")
}

func TestInterrupt(t *testing.T) {
	running := known("b", 0, machineosbuild.Building)
	assert.Equal(t, []string{name("b", 0)}, Decide(wants(running)).Interrupt)
	assert.Equal(t, []string{name("b", 0)}, Decide(wants(running, known("a", 0, machineosbuild.Succeeded))).Interrupt)
	assert.Empty(t, Decide(Input{Problem: &Problem{Waits: true}, Own: []Known{running}}).
		Interrupt, "as long as it is not known what is asked for")
}

func TestBackoff(t *testing.T) {
	for retries, want := range map[int]time.Duration{0: 20 * time.Second, 1: 40 * time.Second, 4: 320 * time.Second,
		30: 15 * time.Minute} {
		assert.Equal(t, want, Policy{}.pause(retries))
	}
	ahead := of(failure("a", 0, 0, build.ClassTransient), func(b *Known) { b.Ended = at().Add(24 * time.Hour) })
	assert.Equal(t, Retry, Decide(wants(ahead)).Action, "a clock that went back does not prolong it")
	ahead.Ended = at().Add(2 * time.Second)
	assert.Equal(t, verdict{Wait, ReasonBackoff, ahead.Name}, verdict{Decide(wants(ahead)).Action, Decide(wants(ahead)).
		Reason, ahead.Name}, "the API keeps whole seconds")
	assert.Equal(t, DefaultBackoff, Decide(wants(ahead)).After)
}

func TestSettled(t *testing.T) {
	for state, settled := range map[machineosbuild.State]bool{machineosbuild.Building: false,
		machineosbuild.Succeeded: true, machineosbuild.Failed: true, machineosbuild.Interrupted: true} {
		in := wants(known("a", 1, state))
		in.RebuildRequested, in.Serving = true, name("a", 1)
		assert.Equal(t, settled, Settled(in), state)
	}
	other := wants(known("b", 1, machineosbuild.Interrupted))
	other.Serving = name("b", 1)
	assert.False(t, Settled(other), "an edit took its place; the request stays")
}

// example is an input with what is to come of it.
type example struct {
	name string
	in   Input
	want verdict
}

func cases() []example { return append(ordinary(), rebuilds()...) }

func elsewhere() Known {
	return of(known("a", 0, machineosbuild.Succeeded), func(b *Known) { b.Name, b.Owner = "infra-x", "infra" })
}

func ordinary() []example {
	other := elsewhere()
	return []example{
		{"nothing is known", wants(), verdict{Build, reasonNewContent, name("a", 0)}},
		{"only other content is known", wants(known("b", 0, machineosbuild.Succeeded)),
			verdict{Build, reasonNewContent, name("a", 0)}},
		{"the image exists", wants(known("a", 0, machineosbuild.Succeeded)),
			verdict{Reuse, reasonSameContent, name("a", 0)}},
		{"the image exists and is in use", with(wants(known("a", 0, machineosbuild.Succeeded)),
			func(in *Input) { in.InUse = name("a", 0) }), verdict{None, reasonUpToDate, name("a", 0)}},
		{"the image is gone", wants(of(known("a", 0, machineosbuild.Succeeded),
			func(b *Known) { b.Gone = true })), verdict{Build, reasonImageGone, name("a", 1)}},
		{"the image lies in an older repository", wants(of(known("a", 0, machineosbuild.Succeeded),
			func(b *Known) { b.Repository = "old.example.test/x" })), verdict{Build, reasonNewContent, name("a", 1)}},
		{"the newest of two images counts", wants(known("a", 0, machineosbuild.Succeeded),
			known("a", 2, machineosbuild.Succeeded)), verdict{Reuse, reasonSameContent, name("a", 2)}},
		{"it is being built", wants(known("a", 0, machineosbuild.Building)),
			verdict{Wait, ReasonBuilding, name("a", 0)}},
		{"its build is being deleted", wants(of(known("a", 0, machineosbuild.Building),
			func(b *Known) { b.Deleting = true })), verdict{Wait, reasonDeleting, name("a", 0)}},
		{"its build was interrupted", wants(known("a", 0, machineosbuild.Interrupted)),
			verdict{Build, reasonInterrupted, name("a", 1)}},
		{"a user's fault waits for a change", wants(failure("a", 0, 0, build.ClassUser)),
			verdict{GiveUp, ReasonBuildFailed, name("a", 0)}},
		{"a limit waits for a change", wants(failure("a", 0, 0, build.ClassPolicy)),
			verdict{GiveUp, ReasonBuildFailed, name("a", 0)}},
		{"a transient fault waits its time", wants(failure("a", 0, 0, build.ClassTransient)),
			verdict{Wait, ReasonBackoff, name("a", 0)}},
		{"a transient fault is tried again", with(wants(failure("a", 0, 0, build.ClassTransient)),
			func(in *Input) { in.Now = at().Add(time.Minute) }),
			verdict{Retry, reasonTransientFailure, name("a", 1)}},
		{"infrastructure is tried again", with(wants(failure("a", 3, 3, build.ClassInfrastructure)),
			func(in *Input) { in.Now = at().Add(time.Hour) }),
			verdict{Retry, reasonTransientFailure, name("a", 4)}},
		{"retries have an end", with(wants(failure("a", 5, 5, build.ClassTransient)), func(in *Input) {
			in.Now = at().
				Add(time.Hour)
		}),
			verdict{GiveUp, ReasonRetriesExhausted, name("a", 5)}},
		{"the end can be set", with(wants(failure("a", 1, 1, build.ClassTransient)),
			func(in *Input) { in.Policy.RetryLimit = 1 }),
			verdict{GiveUp, ReasonRetriesExhausted, name("a", 1)}},
		{"retries can be forbidden", with(wants(failure("a", 0, 0, build.ClassTransient)),
			func(in *Input) { in.Policy.RetryLimit = -1 }),
			verdict{GiveUp, ReasonRetriesExhausted, name("a", 0)}},
		{"a rebuild that failed is current", with(wants(known("a", 0, machineosbuild.Succeeded),
			failure("a", 1, 1, build.ClassUser)), func(in *Input) { in.Current = name("a", 1) }),
			verdict{GiveUp, ReasonBuildFailed, name("a", 1)}},
		{"a failure of before other content was asked for does not count", with(wants(known("a", 0, machineosbuild.Succeeded),
			failure("a", 1, 1, build.ClassUser),
			known("b", 0, machineosbuild.Succeeded)), func(in *Input) { in.Current = name("b", 0) }),
			verdict{Reuse, reasonSameContent, name("a", 0)}},
		{"another pool has the image", with(wants(), func(in *Input) { in.Others = []Known{other} }),
			verdict{Reuse, ReasonSharedImage, name("a", 0)}},
		{"another pool builds it", with(wants(),
			func(in *Input) { in.Others = []Known{of(other, func(b *Known) { b.State = machineosbuild.Building })} }),
			verdict{Wait, ReasonSharedBuild, ""}},
		{"another pool failed at it", with(wants(),
			func(in *Input) { in.Others = []Known{of(other, func(b *Known) { b.State = machineosbuild.Failed })} }),
			verdict{Build, reasonNewContent, name("a", 0)}},
		{"the installation had an image", with(wants(), func(in *Input) { in.PreBuilt = repository + "@sha256:1" }),
			verdict{Reuse, ReasonPreBuiltImage, name("a", 0)}},
		{"no place is free", with(wants(), func(in *Input) { in.Free = 0 }), verdict{Wait, ReasonQueued, ""}},
		{"its own older build has a place", with(wants(known("b", 0, machineosbuild.Building)),
			func(in *Input) { in.Free = 0 }), verdict{Build, reasonNewContent, name("a", 0)}},
		{"a Secret is missing", with(wants(), func(in *Input) { in.Blocked = &Problem{Reason: "SecretMissing"} }),
			verdict{GiveUp, "SecretMissing", ""}},
		{"a Secret is missing for nothing", with(wants(known("a", 0, machineosbuild.Succeeded)),
			func(in *Input) { in.Blocked = &Problem{Reason: "SecretMissing"} }),
			verdict{Reuse, reasonSameContent, name("a", 0)}},
		{"there is no address", Input{Problem: &Problem{Reason: "PoolMissing"}},
			verdict{GiveUp, "PoolMissing", ""}},
		{"there is no address yet", Input{Problem: &Problem{Reason: "NotRendered", Waits: true}},
			verdict{Wait, "NotRendered", ""}},
	}
}

func rebuilds() []example {
	other := elsewhere()
	return []example{
		{"a rebuild of what exists", with(wants(known("a", 0, machineosbuild.Succeeded)),
			func(in *Input) { in.RebuildRequested = true }), verdict{Rebuild, reasonRebuildRequested, name("a", 1)}},
		{"a rebuild of nothing", with(wants(), func(in *Input) { in.RebuildRequested = true }),
			verdict{Rebuild, reasonRebuildRequested, name("a", 0)}},
		{"a rebuild at the end of retries", with(wants(failure("a", 5, 5, build.ClassTransient)),
			func(in *Input) { in.RebuildRequested = true }), verdict{Rebuild, reasonRebuildRequested, name("a", 6)}},
		{"a rebuild that was announced", with(wants(known("a", 0, machineosbuild.Succeeded)),
			func(in *Input) { in.RebuildRequested, in.Serving = true, name("a", 3) }),
			verdict{Rebuild, reasonRebuildRequested, name("a", 3)}},
		{"a rebuild that runs", with(wants(known("a", 1, machineosbuild.Building)),
			func(in *Input) { in.RebuildRequested, in.Serving = true, name("a", 1) }),
			verdict{Wait, ReasonBuilding, name("a", 1)}},
		{"a rebuild that has ended", with(wants(known("a", 1, machineosbuild.Succeeded)),
			func(in *Input) { in.RebuildRequested, in.Serving = true, name("a", 1) }),
			verdict{Reuse, reasonSameContent, name("a", 1)}},
		{"a rebuild whose content changed", with(wants(known("b", 1, machineosbuild.Building)),
			func(in *Input) { in.RebuildRequested, in.Serving = true, name("b", 1) }),
			verdict{Rebuild, reasonRebuildRequested, name("a", 0)}},
		{"a rebuild that an edit stopped", with(wants(known("b", 1, machineosbuild.Interrupted)),
			func(in *Input) { in.RebuildRequested, in.Serving = true, name("b", 1) }),
			verdict{Rebuild, reasonRebuildRequested, name("a", 0)}},
		{"a rebuild during another's build", with(wants(),
			func(in *Input) { in.RebuildRequested = true; in.Others = []Known{other} }),
			verdict{Rebuild, reasonRebuildRequested, name("a", 0)}},
	}
}
