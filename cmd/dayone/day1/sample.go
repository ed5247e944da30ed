package day1

import (
	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
)

// sample is what dayone sample says.
type sample struct {
	// Dir is the directory that was made.
	Dir string `json:"dir"`
	// Flow is standalone or openshift.
	Flow string `json:"flow"`
}

func newSampleCommand() *cobra.Command {
	var dir, flow string
	cmd := &cobra.Command{
		Use:   "sample",
		Short: "Write a sample install directory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write := assets.WriteSample
			switch installconfig.Flow(flow) {
			case installconfig.FlowStandalone:
			case installconfig.FlowOpenShift:
				write = assets.WriteOpenShiftSample
			default:
				return errUnknownFlow()
			}
			if err := write(dir); err != nil {
				return err
			}
			return cli.PrintLine(cmd, "SampleDirectory", sample{dir, flow},
				"wrote %s; next: dayone prepare --dir %s", dir, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "sample-cluster", "the directory to make")
	cmd.Flags().StringVar(&flow, "flow", string(installconfig.FlowStandalone),
		"standalone, or openshift for openshift-install's bootstrap node")
	return cmd
}
