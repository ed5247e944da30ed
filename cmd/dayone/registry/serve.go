package registry

import (
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/transfer"
)

// Command is dayone registry: the bootstrap host's registry on its own.
func Command() *cobra.Command {
	return cli.NewGroup("registry", "Serve, fill and look after an OCI registry on this host", newServeCommand(),
		newCopyCommand(), newListCommand(), newUsageCommand(), newCollectCommand(), newVerifyCommand(),
		newRemoveCommand(), newStatusCommand(), newNodeConfigCommand())
}

func newServeCommand() *cobra.Command {
	var o registry.RunOptions
	var config, htpasswd string
	var upstream transfer.Endpoint
	cmd := &cobra.Command{
		Use:   "serve --root DIR --listen HOST:PORT",
		Short: "Serve a registry until SIGTERM",
		Long: "Serve makes a CA, a certificate (ROOT/tls) and a push and a pull account (ROOT/accounts) when you name " +
			"none. It reads a\n" +
			"changed users file or certificate again by itself or on SIGHUP: it refuses accounts that the file no longer " +
			"has from\nthe next request on, and new connections get the new certificate.",
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return readSettings(cmd, config, &o, &upstream)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			if htpasswd != "" {
				o.UsersFile, o.UsersRole = htpasswd, registry.RolePush
			}
			o.Log = cli.Log(cmd)
			o.Started = func(addr string) { fmt.Fprintln(cmd.OutOrStdout(), addr) }
			return registry.Run(ctx, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Root, "root", "", "directory of the images (required)")
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:5000", "HOST:PORT to listen on")
	flags.StringVar(&o.CertFile, "tls-cert", "", "server certificate (PEM)")
	flags.StringVar(&o.KeyFile, "tls-key", "", "key of the server certificate (PEM)")
	flags.StringSliceVar(&o.Hosts, "host", nil,
		"further name or address of the certificate that is made here (repeatable)")
	flags.BoolVar(&o.InsecureHTTP, "insecure-http", false, "serve plain HTTP, on a loopback address only")
	flags.StringVar(&o.UsersFile, "users", "", "accounts, lines of NAME:BCRYPT:ROLE with role push or pull")
	flags.StringVar(&htpasswd, "htpasswd", "", "accounts that may push, lines of NAME:BCRYPT as distribution has them")
	flags.StringVar(&o.Realm, "realm", "", "what a login names, \"dayone bootstrap registry\" without it")
	flags.StringVar(&config, "config", "", "file in distribution's configuration format; flags win, and what serve does "+
		"not do is refused")
	flags.BoolVar(&o.ReadOnly, "read-only", false, "refuse every change, write nothing below the root")
	flags.BoolVar(&o.Sparse, "sparse", false, "accept indexes and manifests whose images or layers are not all there")
	flags.Var((*size)(&o.MaxBytes), "max-bytes", "what the images may take, as 200MiB, 0 for no limit")
	flags.Var((*size)(&o.MinFreeBytes), "min-free-bytes", "what stays free of the disk, 0 for 256MiB")
	flags.DurationVar(&o.CollectEvery, "gc-every", 0, "collect garbage this often, 0 for 6h, negative for never")
	flags.DurationVar(&o.ScrubEvery, "scrub-every", 0, "read all blobs this often to find rot, 0 for a week, negative "+
		"for never")
	flags.Var((*size)(&o.ScrubRate), "scrub-rate", "read this much a second for it, 0 for 32MiB")
	flags.DurationVar(&o.UploadIdle, "upload-idle", 0, "end an upload without a request after this time, 0 for 1h")
	flags.IntVar(&o.MaxUploads, "max-uploads", 0, "unfinished uploads of one account, 0 for 1024")
	upstreamFlags(flags, &o, &upstream)
	_ = cmd.MarkFlagRequired("root")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	cmd.MarkFlagsMutuallyExclusive("insecure-http", "tls-cert")
	cmd.MarkFlagsMutuallyExclusive("users", "htpasswd")
	return cmd
}

func upstreamFlags(flags *pflag.FlagSet, o *registry.RunOptions, upstream *transfer.Endpoint) {
	flags.StringVar(&upstream.Reference, "upstream", "", "HOST[:PORT] of a registry from which to fetch images that this "+
		"one lacks (pull-through); pushes are refused then")
	flags.StringVar(&upstream.AuthFile, "upstream-authfile", "", "pull secret for the upstream")
	flags.StringVar(&upstream.CAFile, "upstream-ca", "", "CA of the upstream (PEM), the system's without it")
	flags.DurationVar(&o.UpstreamTTL, "upstream-ttl", 0, "remove an image of the upstream that no client requested "+
		"for this long; 0 keeps images until disk space runs low")
}

// readSettings adds what the configuration file says, "" is none, and makes the client of the upstream.
func readSettings(cmd *cobra.Command, config string, o *registry.RunOptions,
	upstream *transfer.Endpoint) (err error) {
	if config != "" {
		if err := applyConfig(cmd, config, upstream); err != nil {
			return err
		}
	}
	if upstream.Reference != "" {
		o.Upstream, err = transfer.NewUpstream(*upstream)
		return err
	}
	if upstream.AuthFile+upstream.CAFile+upstream.Username != "" || o.UpstreamTTL != 0 {
		return errors.New("--upstream is missing: what else is said of the upstream needs it")
	}
	return nil
}
