package decide

import (
	"time"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
)

// Action is what is to be done.
type Action string

// The actions. Build, Rebuild and Retry begin a build; Rebuild does so although an image with these inputs may exist,
// Retry because an attempt failed in a way that may pass. Reuse takes an image that exists. Wait ends by itself or with
// an event, GiveUp only when the admin changes something or requests a rebuild. None: the image is up to date.
const (
	Build   Action = "Build"
	Reuse   Action = "Reuse"
	Rebuild Action = "Rebuild"
	Retry   Action = "Retry"
	Wait    Action = "Wait"
	GiveUp  Action = "GiveUp"
	None    Action = "None"
)

// Starts reports whether the action begins a build.
func (a Action) Starts() bool { return a == Build || a == Rebuild || a == Retry }

// Reasons of decisions, one word for programs. They are part of the API: conditions and events show them.
const (
	reasonNewContent       = "NewContent"
	reasonImageGone        = "ImageGone"
	reasonInterrupted      = "InterruptedBefore"
	reasonRebuildRequested = "RebuildAsked"
	reasonTransientFailure = "TransientFailure"
	ReasonBackoff          = "RetryBackoff"
	ReasonBuilding         = "Building"
	ReasonSharedBuild      = "SharedBuild"
	ReasonQueued           = "Queued"
	ReasonBuildFailed      = "BuildFailed"
	ReasonRetriesExhausted = "RetriesExhausted"
	reasonSameContent      = "SameContent"
	ReasonSharedImage      = "SharedImage"
	ReasonPreBuiltImage    = "PreBuiltImage"
	reasonUpToDate         = "UpToDate"
	reasonDeleting         = "BuildBeingDeleted"
)

const (
	// DefaultRetryLimit is how many retries in a row may fail (original story MCO-760 asks for a limit; 5 is dayone's).
	DefaultRetryLimit = 5
	// DefaultBackoff is the pause before the first retry; it doubles with each.
	DefaultBackoff = 20 * time.Second
	// DefaultMaxBackoff bounds the pause.
	DefaultMaxBackoff = 15 * time.Minute
)

// Policy bounds retries. The zero value has the defaults.
type Policy struct {
	// RetryLimit is how many retries in a row may fail before they stop; default DefaultRetryLimit, negative means never
	// to retry.
	RetryLimit int
	// Backoff is the pause before the first retry, MaxBackoff the longest; defaults DefaultBackoff and DefaultMaxBackoff.
	Backoff, MaxBackoff time.Duration
}

func (p Policy) limit() int {
	if p.RetryLimit == 0 {
		return DefaultRetryLimit
	}
	return max(p.RetryLimit, 0)
}

// Again is the pause before the next retry after so many; ok is false when no retry is left.
func (p Policy) Again(retries int) (pause time.Duration, ok bool) {
	return p.pause(retries), retries < p.limit()
}

// pause before the retry that follows so many.
func (p Policy) pause(retries int) time.Duration {
	pause, longest := p.Backoff, p.MaxBackoff
	if pause <= 0 {
		pause = DefaultBackoff
	}
	if longest <= 0 {
		longest = DefaultMaxBackoff
	}
	for i := 0; i < retries && pause < longest; i++ {
		pause *= 2
	}
	return min(pause, longest)
}

// Known is a MachineOSBuild as far as decisions need it.
type Known struct {
	Name string
	// Owner is the MachineOSConfig that it was made for.
	Owner string
	// Address is its content address, Repository where its image lies.
	Address, Repository string
	State               machineosbuild.State
	// Class and Message are the cause of a failure.
	Class   build.Class
	Message string
	// Attempt counts the builds of one address from 0, Retries those in a row that were retries.
	Attempt, Retries int
	// Forced means that it was built although an image may have existed.
	Forced bool
	Ended  time.Time
	// Image is the result by digest.
	Image string
	// Gone means that the registry says that it does not have the image. A registry that refuses or fails says nothing.
	Gone bool
	// Deleting means that the object has a deletion timestamp.
	Deleting bool
}

// Problem keeps a build from beginning. It is an error, so that the function that meets it returns it as one.
type Problem struct {
	Reason, Message string
	// Waits means that it may end without a change by the admin; otherwise the build is stalled.
	Waits bool
	// After is when to check again; 0 means that an event will come.
	After time.Duration
}

// Error is the message alone: the reason stands beside it in conditions.
func (p *Problem) Error() string { return p.Message }

// Input is everything that a decision depends on.
type Input struct {
	// Owner is the MachineOSConfig.
	Owner string
	// Address is the desired content address, Repository the desired place of the image. Both are empty with a Problem.
	Address, Repository string
	// Problem says why there is no address.
	Problem *Problem
	// Blocked says why a build cannot begin although it is known what to build: a Secret is missing.
	Blocked *Problem
	// Own are the builds of this MachineOSConfig, Others those of others with the same address and repository.
	Own, Others []Known
	// Current names the build that the last decision was about, InUse the one whose image the pool uses.
	Current, InUse string
	// RebuildRequested means that the admin requests a rebuild, Serving names the build that serves the request.
	RebuildRequested bool
	Serving          string
	// PreBuilt is an image by digest that shall be taken over as the first one.
	PreBuilt string
	// Free is how many more builds may run at once.
	Free   int
	Policy Policy
	Now    time.Time
}

// Decision is what is to be done and why.
type Decision struct {
	Action Action
	// Reason is one of the Reason constants or a Problem's.
	Reason string
	// Message is a sentence for people. It does not change as time goes by.
	Message string
	// BuildName is the build to begin, to use or to wait for.
	BuildName string
	// Attempt, Retries and Forced are those of the build to begin.
	Attempt, Retries int
	Forced           bool
	// Image is what is reused, From the build of another MachineOSConfig that made it.
	Image, From string
	// After is when to decide again; 0 means that an event will come.
	After time.Duration
	// Interrupt names builds of this MachineOSConfig that run and are obsolete.
	Interrupt []string
	// Discard names failed attempts that a rebuild deletes.
	Discard []string
}
