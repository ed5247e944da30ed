package daemon

import (
	"context"
	"slices"
	"time"

	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

// State is where the agent is on the way to a target. It is in the journal: a new process goes on in it.
type State string

// The states, in the order of the way.
const (
	// Idle: the node has what it should have, as far as the agent knows. The agent looks for another target and for drift.
	Idle State = "Idle"
	// Planning: the agent reads the target and computes what it does to the node.
	Planning State = "Planning"
	// Draining: the node's pods are leaving.
	Draining State = "Draining"
	// Applying: the agent writes files and stages the image.
	Applying State = "Applying"
	// Acting: the agent reloads and restarts services.
	Acting State = "Acting"
	// Rebooting: the agent has asked for a reboot, or is about to.
	Rebooting State = "Rebooting"
	// Verifying: the agent compares the node with the target.
	Verifying State = "Verifying"
	// Uncordoning: pods may come again.
	Uncordoning State = "Uncordoning"
)

// observed is what a state starts from. The loop reads it before it runs the state.
type observed struct {
	node
	// journal is what the agent remembers on disk.
	journal journal
	// current is what the node has; its config is never nil.
	current nodedisk.Current
	// begun is what plans before, and this one, may have brought onto the node beside it.
	begun []nodedisk.Current
	// boot tells this boot from others.
	boot string
	// rebootAsked: this process has asked for a reboot.
	rebootAsked bool
	// first: this process has finished no step yet.
	first bool
}

// outcome is what a state leads to. The loop writes the record, then the journal, and asks for the reboot last.
type outcome struct {
	next State
	// after is when to look again, when the state stays; the next state runs at once.
	after time.Duration
	// record changes the node's record; nil: it stays.
	record func(*nodestate.Record)
	// journal replaces what the agent remembers; nil: it stays, but for the state.
	journal *journal
	reboot  bool
}

// stateFunc carries out one state. A failure is written to the node's record, and the state runs again.
type stateFunc func(ctx context.Context, e *edges, in observed) (outcome, error)

// row is a state's line in the table.
type row struct {
	run stateFunc
	// moves are the states that may follow; every other one is a fault of the program. A state may go back to Planning
	// until the agent has asked for the reboot. What disturbs pods goes back to Draining when they may have come again.
	moves []State
	// retargets: a changed target leads back to Planning before the state runs.
	retargets bool
	// alone: the agent goes on while the API is away; what the state needs is on the disk.
	alone bool
	// phase orders the states for the conditions of the MachineConfigNode. Acting and Rebooting are two ways of one phase.
	phase int
}

// table is the state machine.
func table() map[State]row {
	return map[State]row{
		Idle:      {run: idle, alone: true, phase: 0, moves: []State{Planning}},
		Planning:  {run: planning, phase: 1, moves: []State{Draining, Applying}},
		Draining:  {run: draining, retargets: true, phase: 2, moves: []State{Applying, Planning}},
		Applying:  {run: applying, retargets: true, alone: true, phase: 3, moves: []State{Acting, Rebooting, Planning}},
		Acting:    {run: acting, retargets: true, alone: true, phase: 4, moves: []State{Verifying, Draining, Planning}},
		Rebooting: {run: rebooting, alone: true, phase: 4, moves: []State{Verifying, Draining, Planning}},
		Verifying: {run: verifying, retargets: true, alone: true, phase: 5,
			moves: []State{Uncordoning, Rebooting, Planning}},
		Uncordoning: {run: uncordoning, phase: 6, moves: []State{Idle}},
	}
}

func (s State) row() row { return table()[s] }

// allows tells whether a state may follow: itself, or one of its moves.
func (s State) allows(next State) bool { return next == s || slices.Contains(s.row().moves, next) }
