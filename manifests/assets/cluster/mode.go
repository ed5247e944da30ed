package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Mode is how dayone lives with the Machine Config Operator (MCO) of a cluster. An installation has one.
type Mode string

const (
	// Advisor leaves everything to MCO, which runs untouched. dayone forecasts, explains and watches. It writes policies,
	// requests of rebuilds and objects of its own.
	Advisor Mode = "advisor"
	// Building lets dayone build the images that MCO rolls out.
	Building Mode = "builder"
	// Full lets dayone do everything in MCO's place.
	Full Mode = "full"
)

// Modes are all of them, from the one that touches least.
func Modes() []Mode { return []Mode{Advisor, Building, Full} }

// ParseMode reads a mode; an unknown one is an error that names those that exist.
func ParseMode(text string) (Mode, error) {
	if m := Mode(text); slices.Contains(Modes(), m) {
		return m, nil
	}
	names := make([]string, 0, len(Modes()))
	for _, m := range Modes() {
		names = append(names, string(m))
	}
	return "", fmt.Errorf("mode %q is none of %s", text, strings.Join(names, ", "))
}

// Namespace is where an installation in this mode lives by default. An advisor keeps out of MCO's own namespace; a
// builder needs the Secrets that MachineOSConfigs name, which the API demands there.
func (m Mode) Namespace() string {
	if m == Advisor {
		return AdvisorNamespace
	}
	return DefaultNamespace
}
