package support

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/cmd/internal/pageflags"
)

// gatherFlags are those of dayone gather.
type gatherFlags struct {
	options       gather.Options
	out           string
	stdout        bool
	every         time.Duration
	host, command string
	listen        string
	ssh           string
	ofCluster     bool
	limit         time.Duration
	cluster       connect.Flags
	page          pageflags.Flags
}

// remoteCommand finds the program where a bootstrap node has it: on many systems sudo does not look there.
const remoteCommand = `sudo env PATH="/usr/local/bin:$PATH" dayone gather --stdout`

func newGatherCommand(version string) *cobra.Command {
	f := &gatherFlags{cluster: connect.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:   "gather",
		Short: "Write a log bundle of the bootstrap host or of a cluster, without secrets",
		Long: "Gather writes log-bundle-<id>.tar.gz in the layout of openshift-install gather bootstrap: the journal of\n" +
			"phases, service records, build logs, rendered configs without content, journals and network of the host. It\n" +
			"removes secrets. With --host it runs on another host over ssh and writes the bundle here. With --every it\n" +
			"renews the bundle until it is stopped, so that the last state of a bootstrap host that disappears is kept.\n" +
			"With --receive it waits for the bundles that the bootstrap host sends (logSpool in install-config.yaml).\n" +
			"dayone analyze reads bundles.",
		Args: cobra.NoArgs,
		RunE: f.run,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.options.StateDir, "state-dir", day1.DefaultStateDir, "the bootstrap's state directory")
	flags.StringVar(&f.options.InstallDir, "dir", "", "the install directory, whose manifests to gather too")
	flags.StringVar(&f.options.ID, "id", "", "the bundle's name after log-bundle- (default: the time)")
	flags.StringVar(&f.out, "out", ".", "the directory for the bundle")
	flags.BoolVar(&f.stdout, "stdout", false, "write the bundle to standard output")
	flags.DurationVar(&f.every, "every", 0, "renew the bundle at this interval until stopped")
	flags.StringVar(&f.host, "host", "", "gather on another host, as USER@HOST for ssh")
	flags.StringVar(&f.command, "remote-command", remoteCommand, "command to run there")
	flags.StringVar(&f.ssh, "ssh", "ssh",
		"the program that reaches the other host; it gets HOST and the command as arguments")
	flags.StringVar(&f.listen, "receive", "",
		"HOST:PORT on which to receive, over HTTPS with a token, the bundles that a bootstrap host sends; the token is "+
			"written to OUT/receiver")
	flags.BoolVar(&f.ofCluster, "cluster", false, "gather a cluster's objects and logs instead of this host's")
	flags.DurationVar(&f.limit, "timeout", 0,
		"time limit of --cluster or --host; a cluster's bundle then holds what was gathered so far (default 5m)")
	f.page.Add(flags, "gather from a bootstrap's status page, https://HOST:PORT: neither ssh nor root is needed there")
	f.cluster.Add(flags)
	flags.Lookup("kubeconfig").Usage = "kubeconfig file for --cluster; default: KUBECONFIG or ~/.kube/config"
	return cmd
}

func (f *gatherFlags) run(cmd *cobra.Command, _ []string) error {
	f.options.Log = cli.Log(cmd)
	if f.listen != "" {
		return f.receive(cmd)
	}
	from, err := f.source()
	if err != nil {
		return err
	}
	switch {
	case f.stdout && f.every > 0:
		return cli.Usagef("--stdout and --every exclude each other: pass --out")
	case f.stdout:
		return from(cmd.Context(), f.options, cmd.OutOrStdout())
	case f.every > 0:
		f.options.ID = cmp.Or(f.options.ID, "spool")
		return gather.Spool(cmd.Context(), f.out, f.options, f.every, from)
	}
	name, err := gather.Write(cmd.Context(), f.out, f.options, from)
	if err != nil {
		return err
	}
	return cli.PrintLine(cmd, "LogBundle", gathered{name}, "wrote %s; next: dayone analyze %s", name, name)
}

// gathered is what dayone gather says.
type gathered struct {
	// Bundle is the file.
	Bundle string `json:"bundle"`
}

// source is what is gathered.
func (f *gatherFlags) source() (func(context.Context, gather.Options, io.Writer) error, error) {
	switch {
	case f.limit < 0:
		return nil, cli.Usagef("--timeout %s: must not be negative", f.limit)
	case f.ofCluster && f.host != "" || f.ofCluster && f.page.URL != "" || f.host != "" && f.page.URL != "":
		return nil, cli.Usagef("--cluster, --host and --url exclude each other: pass one")
	case f.ofCluster:
		_, cfg, err := f.cluster.Client()
		if err != nil {
			return nil, err
		}
		return gather.Cluster{Config: cfg, Namespace: f.cluster.Namespace, Limit: f.limit}.Gather, nil
	case f.page.URL != "":
		client, err := f.page.Client()
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, _ gather.Options, w io.Writer) error {
			return client.Bundle(ctx, w, gather.DefaultMaxTotal)
		}, nil
	case f.host != "":
		if strings.HasPrefix(f.host, "-") {
			return nil, cli.Usagef("--host %q: write USER@HOST", f.host)
		}
		return gather.Remote{Command: []string{f.ssh, f.host, f.command}, Limit: f.limit}.Gather, nil
	}
	if _, err := os.ReadDir(f.options.StateDir); errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("read the state directory (run it with sudo): %w", err)
	}
	if f.options.InstallDir != "" { // its secrets are looked for in everything else: a mistyped name must not pass
		if _, err := os.ReadDir(f.options.InstallDir); err != nil {
			return nil, fmt.Errorf("read the install directory (is --dir right? it may be left out): %w", err)
		}
	}
	return gather.Host, nil
}
