package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	installed "dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
)

func newUninstall(c *connect.Flags) *cobra.Command {
	a := &applyFlags{}
	var yes, crds bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove dayone's controllers from a cluster",
		Long: "Uninstall removes what install created. MachineOSConfigs, pools, users' Secrets, images and namespaces " +
			"stay, and nodes continue to run their images. With --crds it also removes the kinds that install defined, with " +
			"every object of those kinds.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, _, err := a.target(cmd, c)
			if err != nil {
				return err
			}
			optedIn, err := clusterinstall.OptedIn(cmd.Context(), t)
			if err != nil {
				return err
			}
			verifies, err := clusterinstall.VerifiesImages(cmd.Context(), t)
			if err != nil {
				return err
			}
			warn(cmd.ErrOrStderr(), t, optedIn, crds)
			if verifies {
				fmt.Fprintf(cmd.ErrOrStderr(), "Nodes take signed images only (ClusterImagePolicy %s), and another builder does "+
					"not sign: sign its images with dayone sign, or delete that object.\n", installed.ImagePolicy)
			}
			if !yes {
				if err := confirm(cmd.InOrStdin(), cmd.ErrOrStderr(), "uninstall"); err != nil {
					return err
				}
			}
			if err := clusterinstall.Uninstall(cmd.Context(), t, crds); err != nil {
				return err
			}
			return printOutcome(cmd, t)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&crds, "crds", false, "also remove the kinds that install defined, with all their objects")
	a.addTimeout(cmd)
	return cmd
}

// warn lists what uninstall removes and keeps.
func warn(w io.Writer, t clusterinstall.Target, optedIn []string, crds bool) {
	fmt.Fprintf(w, "dayone's controllers in namespace %s of the cluster at %s will be removed.\n", t.Namespace,
		t.Config.Host)
	if len(optedIn) > 0 {
		fmt.Fprintf(w, "Images will no longer be built or rolled out; nodes of opted-in pools keep their images. "+
			"Opted in by MachineOSConfigs: %s.\n", strings.Join(optedIn, ", "))
	}
	if crds {
		fmt.Fprintln(w, "All MachineOSConfigs, pools and MachineConfigs will be deleted with their kinds.")
	}
}

func confirm(from io.Reader, w io.Writer, command string) error {
	if file, ok := from.(interface{ Fd() uintptr }); ok && !term.IsTerminal(int(file.Fd())) {
		return cli.Usagef("%s asks for confirmation and there is no terminal: pass --yes", command)
	}
	fmt.Fprint(w, "Continue? [y/N] ")
	answer, err := bufio.NewReader(from).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return fmt.Errorf("%s: not confirmed; nothing was changed", command)
	}
	return nil
}
