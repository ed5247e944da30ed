package cli

import (
	"runtime"

	"github.com/spf13/cobra"
)

// programVersion is what -o json prints of a version.
type programVersion struct {
	// Version is the program's.
	Version string `json:"version"`
	// Go is the version of Go that made it.
	Go string `json:"go"`
	// Platform is OS/ARCH.
	Platform string `json:"platform"`
}

func newVersion(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the program's version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := programVersion{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return PrintLine(cmd, "Version", v, "%s (%s, %s)", v.Version, v.Go, v.Platform)
		},
	}
}
