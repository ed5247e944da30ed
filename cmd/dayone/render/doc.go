// Package render holds the commands that render a directory of manifests and serve the result.
//
//	manifests -> render -> rendered configs and pools -> serve -> Ignition; render diff, render parity compare
package render

import "github.com/spf13/cobra"

// Commands are the group's.
func Commands() []*cobra.Command { return []*cobra.Command{newRenderCommand(), newServeCommand()} }
