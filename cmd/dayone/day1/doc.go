// Package day1 holds the commands of an installation, in the order in which an administrator types them.
//
//	sample -> prepare -> manifests -> plan -> build -> ignition | bootstrap -> status -> handover
package day1

import (
	"github.com/spf13/cobra"
)

// Commands are the group's; version is the program's.
func Commands(version string) []*cobra.Command {
	return []*cobra.Command{newPrepareCommand(), newManifestsCommand(), newSampleCommand(), newIgnitionCommand(),
		newBuildCommand(version), newBootstrapCommand(version), newStatusCommand(), newHandOverCommand()}
}
