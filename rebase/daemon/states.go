package daemon

import (
	"context"
	"slices"
	"time"
)

// State is where the agent is on the way to a target. It is in the journal: a new process goes on in it.
type State string

// The states, in the order of the way.
const (
	// Idle: the node has what it should have, as far as the agent knows. It watches for another target and for drift.
	Idle State = "Idle"
	// Planning: the target is read, and what it does to the node is computed.
	Planning State = "Planning"
	// Draining: the node's pods are leaving.
	Draining State = "Draining"
	// Applying: the image is staged, files are written.
	Applying State = "Applying"
	// Acting: services are reloaded and restarted.
	Acting State = "Acting"
	// Rebooting: a reboot has been asked for, or is about to be.
	Rebooting State = "Rebooting"
	// Verifying: what is on the node is compared with the target.
	Verifying State = "Verifying"
	// Uncordoning: pods may come again.
	Uncordoning State = "Uncordoning"
)

// ways is the table of moves; every other one is a fault of the program. A state may go back to Planning as long as the
// node has not been asked to reboot: the target has changed. What disturbs pods goes back to Draining when they may
// have come again.
func (s State) allows(next State) bool {
	ways := map[State][]State{
		Idle:        {Planning},
		Planning:    {Draining, Applying},
		Draining:    {Applying, Planning},
		Applying:    {Acting, Rebooting, Planning},
		Acting:      {Verifying, Draining, Planning},
		Rebooting:   {Verifying, Draining, Planning},
		Verifying:   {Uncordoning, Planning},
		Uncordoning: {Idle},
	}
	return slices.Contains(ways[s], next)
}

// alone tells whether the agent goes on in a state while the API is away: what it needs is on the disk.
func (s State) alone() bool {
	switch s {
	case Idle, Applying, Acting, Rebooting, Verifying:
		return true
	}
	return false
}

// do carries out a state.
func (a *Agent) do(ctx context.Context, s State, n node) (State, time.Duration, error) {
	// A target that changed makes a new plan, as long as the old one has not come to its reboot.
	if s != Idle && s != Planning && s != Rebooting && s != Verifying && s != Uncordoning &&
		n.target() != a.journal.Target {
		return Planning, 0, nil
	}
	if s != Idle {
		a.ahead.end() // The update has the line, the disk and the repository for itself.
	}
	switch s {
	case Idle:
		return a.idle(ctx, n)
	case Planning:
		return a.planning(ctx, n)
	case Draining:
		return a.draining(ctx, n)
	case Applying:
		return a.applying(ctx, n)
	case Acting:
		return a.acting(ctx, n)
	case Rebooting:
		return a.rebooting(ctx, n)
	case Verifying:
		return a.verifying(ctx, n)
	}
	return a.uncordoning(ctx, n)
}
