package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/rebase/deploy/host"
)

func newDrift() *cobra.Command {
	return &cobra.Command{
		Use:   "drift",
		Short: "Print as JSON what of /etc is unlike the booted image; such files no longer follow the image",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			changes, err := host.EtcChanges(c.Context(), "/")
			if err != nil {
				return err
			}
			out := json.NewEncoder(c.OutOrStdout())
			out.SetIndent("", "  ")
			return out.Encode(changes)
		},
	}
}
