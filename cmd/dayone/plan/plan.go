package plan

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/preview"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/render"
)

func newPlan(version string) *cobra.Command {
	f := &sourceFlags{Flags: &connect.Flags{Version: version}}
	var dir, platform string
	var code bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what an installation from a directory will do, or what the directory would change",
		Long: "Plan reads an install directory and starts nothing. It shows which objects dayone generates, which images\n" +
			"it builds from what, how often nodes boot, and which MachineConfig each file and unit comes from. --from names\n" +
			"the directory that a cluster was installed from, a dump of the cluster or its kubeconfig: then plan shows what\n" +
			"the directory would change there. With --exit-code it exits with 0 when no service and no pod is affected, 2\n" +
			"when units reload or restart, 3 when nodes drain, 4 when they reboot, 5 when installed nodes cannot apply the\n" +
			"change, 7 when not everything is known that the answer depends on, and 1 for any error.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := ofDirectory(cmd.Context(), dir, platform, f)
			if err != nil {
				return err
			}
			err = cli.Print(cmd, "Plan", p, func(w io.Writer) error { return writeEffects(cli.Prose(w), p) })
			if err != nil || !code {
				return err
			}
			return answerOf(&p.Plan, cli.Answer(p.Level()))
		},
	}
	cli.InstallDir(cmd, &dir, &platform)
	cmd.Flags().StringVar(&f.from, "from", "",
		"the state to compare with: an install directory, a directory of objects as kubectl get -o yaml or "+
			"must-gather write them, or a kubeconfig file")
	f.addAt(cmd)
	cmd.Flags().BoolVar(&code, "exit-code", false, "make the exit code the answer")
	return cmd
}

// ofDirectory plans an installation, or with --from the change of what is there.
func ofDirectory(ctx context.Context, dir, platform string, f *sourceFlags) (*preview.Forecast, error) {
	versions := render.VersionsOf(f.Version)
	d, err := preview.Read(dir, platform, versions)
	if err != nil {
		return nil, err
	}
	if f.from != "" && !preview.IsInstallDirectory(f.from) {
		s, at, err := f.open(ctx)
		if err != nil {
			return nil, err
		}
		return d.Over(ctx, s, at, versions)
	}
	at, err := f.moment()
	if err != nil || f.from == "" {
		return d.Forecast(at), err
	}
	earlier, err := preview.Read(f.from, platform, versions)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.from, err)
	}
	return d.Since(ctx, earlier, at)
}
