package cluster

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/gather/buildlogs"
	"dayone.dev/dayone/build/buildlog"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// logsFlags are those of dayone cluster logs.
type logsFlags struct {
	*connect.Flags
	pool     string
	build    string
	follow   bool
	registry buildlogs.Registry
}

// buildLog is what dayone cluster logs says.
type buildLog struct {
	// MachineOSBuild is the build's name.
	MachineOSBuild string `json:"machineOSBuild"`
	// Pool is the MachineConfigPool that the image is for.
	Pool string `json:"pool"`
	// Outcome is the build's state, such as Building, Failed or Succeeded.
	Outcome string `json:"outcome"`
	// Image is what the build made, by digest.
	Image string `json:"image,omitempty"`
	// Created is when the log was written.
	Created time.Time `json:"created,omitzero"`
	// Cause is why the build failed, Attempts what was tried; dayone keeps them beside a Machine Config Operator.
	Cause    *mcobuild.Cause    `json:"cause,omitempty"`
	Attempts *mcobuild.Attempts `json:"attempts,omitempty"`
	// Summary is the cause in words.
	Summary string `json:"summary,omitempty"`
	// Text is the log.
	Text string `json:"text,omitempty"`
}

func newLogs(c *connect.Flags) *cobra.Command {
	l := &logsFlags{Flags: c}
	cmd := &cobra.Command{
		Use:   "logs POOL",
		Short: "Show the log of a pool's newest build, even after its pod is deleted",
		Long: "Logs prints the log of a pool's newest build: from its pod while the build is active, afterwards from the\n" +
			"registry, which keeps it beside the image, or from the pod if that is still there. When neither has a log, logs\n" +
			"prints the cause of the build's state and exits with status 1. Beside a Machine Config Operator it prints what\n" +
			"dayone keeps in modes advisor and builder, with the cause. -o json adds the build, its outcome and its image.\n" +
			"It uses the credentials of the MachineOSConfig's push Secret, unless you pass a file.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.Argument(connect.LayeredPools()),
		RunE: func(cmd *cobra.Command, args []string) error {
			l.pool = args[0]
			return showLog(cmd, l)
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.build, "build", "", "the MachineOSBuild whose log to show (default: the pool's newest)")
	_ = cmd.RegisterFlagCompletionFunc("build", c.Value(connect.Builds()))
	f.BoolVarP(&l.follow, "follow", "f", false, "go on while the build is active")
	f.StringVar(&l.registry.Address, "registry", "",
		"HOST:PORT under which this machine reaches the registry (default: its name in the image)")
	f.StringVar(&l.registry.CAFile, "registry-ca", "",
		"PEM file of the CA that signed the registry's certificate (default: those that the cluster's builds trust)")
	f.StringVar(&l.registry.AuthFile, "registry-auth", "", "auth.json for the registry (default: the push Secret)")
	return cmd
}

func showLog(cmd *cobra.Command, l *logsFlags) error {
	api, config, err := l.Client()
	if err != nil {
		return err
	}
	ctx, pool := cmd.Context(), l.pool
	b, err := buildlogs.Newest(ctx, api, pool, l.build)
	name, image := l.build, ""
	if err == nil {
		name, image = b.Name, string(b.Status.DigestedImagePushSpec)
	}
	kept, found := buildlogs.Kept(ctx, api, l.Namespace, pool, name)
	switch {
	case found != nil:
		return found
	case kept != nil && (b == nil || !machineosbuild.StateOf(b).Active() || len(kept.Log) > 0 && !l.follow):
		return printKept(cmd, kept, image) // the Machine Config Operator may have deleted the build
	case err != nil:
		return err
	case kept != nil:
		l.Namespace = cluster.DefaultNamespace // where that operator builds
	}
	return showOwn(cmd, api, config, b, l)
}

// showOwn shows the log of a build whose log an advisor does not keep: from its pod, and from the registry afterwards.
func showOwn(cmd *cobra.Command, api client.Reader, config *rest.Config, b *mcfgv1.MachineOSBuild, l *logsFlags) error {
	ctx, pool, state := cmd.Context(), l.pool, machineosbuild.StateOf(b)
	if state.Active() {
		if cli.Output(cmd) == "text" { // line by line
			return buildlogs.Follow(ctx, api, config, l.Namespace, b, l.follow, cmd.OutOrStdout())
		}
		var text strings.Builder
		if err := buildlogs.Follow(ctx, api, config, l.Namespace, b, l.follow, &text); err != nil {
			return err
		}
		return printLog(cmd, buildLog{MachineOSBuild: b.Name, Pool: pool, Outcome: string(state), Text: text.String()})
	}
	stored, err := buildlogs.Stored(ctx, api, l.Namespace, b, l.registry)
	if err != nil {
		return showUnstored(cmd, api, config, b, l, err)
	}
	return printLog(cmd, buildLog{MachineOSBuild: stored.Build, Pool: stored.Pool, Outcome: stored.Outcome,
		Image: stored.Image, Created: stored.Created.Truncate(time.Second), Text: string(stored.Text)})
}

// showUnstored shows what the cluster has of a build whose log the registry does not give: the log of its pod, which
// stays when it has failed, otherwise the cause.
func showUnstored(cmd *cobra.Command, api client.Reader, config *rest.Config, b *mcfgv1.MachineOSBuild, l *logsFlags,
	why error) error {
	out := buildLog{MachineOSBuild: b.Name, Pool: l.pool, Outcome: string(machineosbuild.StateOf(b)),
		Image: string(b.Status.DigestedImagePushSpec)}
	if !errors.Is(why, buildlog.ErrNotFound) {
		why = fmt.Errorf("%w; --registry, --registry-ca and --registry-auth name another way to it", why)
	}
	var text strings.Builder
	if buildlogs.Follow(cmd.Context(), api, config, l.Namespace, b, false, &text) == nil && text.Len() > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "this is the log of the build's pod, because the registry gives none: %v\n", why)
		out.Text = text.String()
		return printLog(cmd, out)
	}
	out.Summary = machineosbuild.CauseOf(b).Text()
	says := strings.TrimSuffix(out.Outcome+": "+out.Summary, ": ")
	return errors.Join(cli.PrintLine(cmd, "BuildLog", out, "%s", says),
		fmt.Errorf("show log of MachineOSBuild %s: %w; standard output has what its state says", b.Name, why))
}

// printLog prints a log's text alone, or as -o asks for with what it is the log of.
func printLog(cmd *cobra.Command, log buildLog) error {
	return cli.Print(cmd, "BuildLog", log, func(w io.Writer) error {
		_, err := fmt.Fprint(w, log.Text)
		return err
	})
}
