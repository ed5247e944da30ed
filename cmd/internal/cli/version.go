package cli

import (
	"runtime"

	"github.com/spf13/cobra"
)

// programVersion is what -o json prints of a version.
type programVersion struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Version    string `json:"version"`
	Go         string `json:"go"`
	Platform   string `json:"platform"` // OS/ARCH
}

func newVersion(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the program's version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := programVersion{"dayone.dev/v1", "Version", version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return PrintLine(cmd, v, "%s (%s, %s)", v.Version, v.Go, v.Platform)
		},
	}
}
