package cluster

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/gather/buildlogs"
	"dayone.dev/dayone/build/buildlog"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
)

// logsFlags are those of dayone cluster logs.
type logsFlags struct {
	*connect.Flags
	build    string
	follow   bool
	registry buildlogs.Registry
}

func newLogs(c *connect.Flags) *cobra.Command {
	l := &logsFlags{Flags: c}
	cmd := &cobra.Command{
		Use:   "logs POOL",
		Short: "Show the log of a pool's newest build, even after its pod is deleted",
		Long: "Logs prints the log of a pool's newest build: from its pod while the build is active, afterwards from the\n" +
			"registry, which keeps it beside the image. -o json adds the build, its outcome and its image. When the registry\n" +
			"has no log, logs prints the cause of the build's state and exits with status 1. It uses the credentials of the\n" +
			"MachineOSConfig's push Secret, unless you pass a file.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return showLog(cmd, args[0], l) },
	}
	f := cmd.Flags()
	f.StringVar(&l.build, "build", "", "the MachineOSBuild whose log to show (default: the pool's newest)")
	f.BoolVarP(&l.follow, "follow", "f", false, "go on while the build is active")
	f.StringVar(&l.registry.Address, "registry", "",
		"HOST:PORT under which this machine reaches the registry (default: its name in the image)")
	f.StringVar(&l.registry.CAFile, "registry-ca", "",
		"PEM file of the CA that signed the registry's certificate (default: the cluster's trust bundle)")
	f.StringVar(&l.registry.AuthFile, "registry-auth", "", "auth.json for the registry (default: the push Secret)")
	return cmd
}

func showLog(cmd *cobra.Command, pool string, l *logsFlags) error {
	api, config, err := l.Client()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	b, err := buildlogs.Newest(ctx, api, pool, l.build)
	if err != nil {
		return err
	}
	state := machineosbuild.StateOf(b)
	if state.Active() {
		if cli.Output(cmd) == "text" { // line by line
			return buildlogs.Follow(ctx, api, config, l.Namespace, b, l.follow, cmd.OutOrStdout())
		}
		var text strings.Builder
		if err := buildlogs.Follow(ctx, api, config, l.Namespace, b, l.follow, &text); err != nil {
			return err
		}
		return printLog(cmd, map[string]any{"machineOSBuild": b.Name, "pool": pool, "outcome": state,
			"text": text.String()})
	}
	kept, err := buildlogs.Stored(ctx, api, l.Namespace, b, l.registry)
	if errors.Is(err, buildlog.ErrNotFound) {
		cause := machineosbuild.CauseOf(b).Text()
		err = fmt.Errorf("show log of MachineOSBuild %s: %w; standard output has the build's cause", b.Name, err)
		return errors.Join(cli.PrintLine(cmd, map[string]any{"machineOSBuild": b.Name, "pool": pool, "outcome": state,
			"cause": cause}, "%s: %s", state, cause), err)
	}
	if err != nil {
		return err
	}
	return printLog(cmd, map[string]any{
		"machineOSBuild": kept.Build, "pool": kept.Pool, "outcome": kept.Outcome, "image": kept.Image,
		"created": kept.Created.Format(time.RFC3339), "text": string(kept.Text),
	})
}

// printLog prints a log's text alone, or as -o asks for with what it is the log of.
func printLog(cmd *cobra.Command, log map[string]any) error {
	return cli.Print(cmd, log, func(w io.Writer) error {
		_, err := fmt.Fprint(w, log["text"])
		return err
	})
}
