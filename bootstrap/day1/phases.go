package day1

import (
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
)

// PhaseIdentity is the first phase of every flow: after it the host has its CA and its credentials.
const PhaseIdentity = "identity"

const phaseRegistry = "registry"

func buildPhase(pool string) string { return "build-" + pool }

// Phases announces the steps of a flow: first are those of its first rendering, after those that follow the builds.
func Phases(in *preflight.Input, first, after []journal.Phase) []journal.Phase {
	out := []journal.Phase{{Name: PhaseIdentity, Title: "make certificates and credentials"},
		{Name: phaseRegistry, Title: "start the embedded registry"}}
	out = append(out, first...)
	for _, p := range BuiltHere(in) {
		out = append(out, journal.Phase{Name: buildPhase(p.Name), Title: "build the image of pool " + p.Name})
	}
	return append(out, after...)
}
