package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/host"
	"dayone.dev/dayone/registry/forwarder"
)

func newStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Print this node's deployments with their images, and its registry forwarder, as JSON",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			choice, err := host.Choose(c.Context(), "/", "", nil)
			if err != nil {
				return err
			}
			status, err := choice.Deployer.Status(c.Context())
			if err != nil {
				return err
			}
			forward, err := readForwarder(forwarderState)
			if err != nil {
				return err
			}
			out := json.NewEncoder(c.OutOrStdout())
			out.SetIndent("", "  ")
			return out.Encode(struct {
				deploy.Status
				Forwarder *forwarder.State `json:",omitempty"`
			}{status, forward})
		},
	}
}
