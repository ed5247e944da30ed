package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/registryimages"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
)

func newRegistryAdd(c *connect.Flags) *cobra.Command {
	var o registryimages.Options
	cmd := &cobra.Command{
		Use:   "add SRC PATH --ca FILE --authfile FILE",
		Short: "Copy an image of pods into the registries of the control plane, where it stays as long as it is listed",
		Long: "SRC is oci:DIRECTORY[:REF], docker-archive:FILE or HOST/REPOSITORY[:TAG|@DIGEST], PATH the name behind the " +
			"registries' own.\nThe image comes with its signatures and referrers. Prints its name, for an object that runs " +
			"it.\nThe ConfigMap dayone-registry-images lists it, beside the one before it of the same PATH.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.From.Reference, o.Path, o.Namespace = args[0], args[1], c.Namespace
			api, _, err := c.Client()
			if err != nil {
				return err
			}
			if o.Registry == "" {
				if o.Registry, err = publishedName(cmd.Context(), api, c.Namespace); err != nil {
					return err
				}
			}
			o.Transfer.Log = cli.Log(cmd)
			added, err := registryimages.Add(cmd.Context(), api, o)
			if err != nil {
				return err
			}
			for _, node := range slices.Sorted(maps.Keys(added.Missing)) {
				fmt.Fprintf(cmd.ErrOrStderr(), "the registry of node %s does not have it yet: %s\n", node, added.Missing[node])
			}
			if o.PullAuthFile != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "pods of the namespace %s pull it with the imagePullSecret %s\n", c.Namespace,
					cluster.RegistryImagesPull)
			}
			return cli.PrintLine(cmd, "RegistryImage", added, "%s", added.Image)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Registry, "registry", "", "HOST:PORT in the names of images; default: that of the cluster")
	flags.StringVar(&o.CAFile, "ca", "", "CA of the registries, ca.crt of .dayone/registry or dayone registry "+
		"node-config (required)")
	flags.StringVar(&o.AuthFile, "authfile", "", "account that may push, push-auth.json beside it (required)")
	flags.StringVar(&o.PullAuthFile, "pull-authfile", "", "account that pulls, pull-auth.json beside it: the Secret "+
		cluster.RegistryImagesPull+" gets it, for imagePullSecrets (default: pods have a Secret of yours)")
	flags.StringVar(&o.Transfer.Platform, "platform", "", "copy only this OS/ARCH[/VARIANT] of an index")
	_ = errors.Join(cmd.MarkFlagRequired("ca"), cmd.MarkFlagRequired("authfile"))
	return cmd
}

// publishedName is what the cluster's controllers say.
func publishedName(ctx context.Context, api client.Client, namespace string) (string, error) {
	p, err := registrystatus.ReadPublished(ctx, api, namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", err
	}
	if err != nil || p.Peers == nil {
		return "", cli.Usagef("no controller has published the name of the registries: give --registry HOST:PORT, as in " +
			"names of images")
	}
	return p.Peers.Registry, nil
}
