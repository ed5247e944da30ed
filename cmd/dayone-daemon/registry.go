package main

import (
	"github.com/spf13/cobra"

	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
)

func newRegistry() *cobra.Command {
	var o startOptions
	c := &cobra.Command{
		Use:   "registry",
		Short: "Bring the registry of this control-plane node its list of images, and take its report",
		Long: "What start does for the node's dayone-registry, for nodes whose config and image are somebody else's: a\n" +
			"DaemonSet's pod beside the Machine Config Operator.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := o.log(c)
			if err != nil {
				return err
			}
			if o.node, err = nodeName(o.node); err != nil {
				return err
			}
			cfg, err := access(o.kubeconfig, accountDir)
			if err != nil {
				return err
			}
			log = log.WithField("node", o.node)
			api, err := kubeapi.New(cfg, o.node, log)
			if err != nil {
				return err
			}
			daemon.ServeRegistry(c.Context(), daemon.RegistryOptions{Node: o.node, Cluster: api, Root: o.root, Log: log})
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; default: the pod's service account")
	f.StringVar(&o.node, "node", "", "name of this node's object; default: NODE_NAME, then the host's name")
	f.StringVar(&o.root, "root", "/", "where the host's / is, of which /var/lib/dayone is needed")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warning or error")
	return c
}
