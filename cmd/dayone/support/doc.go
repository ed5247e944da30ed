// Package support holds the commands for trouble: a log bundle of a host or a cluster, and what it shows.
//
//	bootstrap host | cluster -> gather -> log bundle -> analyze -> verdict, timeline
package support

import "github.com/spf13/cobra"

// Commands are the group's; version is the program's.
func Commands(version string) []*cobra.Command {
	return []*cobra.Command{newGatherCommand(version), newAnalyzeCommand()}
}
