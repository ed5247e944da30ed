package support

import (
	"errors"
	"fmt"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/bootstrap/gather/analyze"
	"dayone.dev/dayone/bootstrap/gather/bundle"
	"dayone.dev/dayone/bootstrap/gather/page"
	"dayone.dev/dayone/cmd/internal/cli"
)

// errFault makes the exit code 1 when the verdict is a failure.
var errFault = errors.New("the bundle shows a failure; the verdict above names it and what to do")

func newAnalyzeCommand() *cobra.Command {
	var html string
	cmd := &cobra.Command{
		Use:   "analyze BUNDLE|DIR",
		Short: "Explain what happened from a log bundle: verdict first, then the timeline",
		Long: "Analyze reads log-bundle-*.tar.gz of dayone gather or openshift-install gather bootstrap, or its " +
			"unpacked directory. It needs\n" +
			"no network and no root. The exit code is 1 when the bundle shows a failure.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := bundle.Open(args[0])
			if err != nil {
				return err
			}
			r := analyze.Bundle(b)
			if lost, err := gather.ReadLost(args[0]); err != nil {
				return err
			} else if lost != nil {
				r.Vanished(lost.Since, lost.Error)
			}
			if html != "" {
				if err := writePage(html, r); err != nil {
					return err
				}
				fmt.Fprintln(cmd.ErrOrStderr(), "wrote "+html)
			}
			if err = cli.Print(cmd, "Analysis", r, r.WriteText); err == nil && r.Verdict.Bad() {
				return errFault
			}
			return err
		},
	}
	cmd.Flags().StringVar(&html, "html", "", "also write the report as one HTML file")
	return cmd
}

// writePage writes the HTML report; it appears whole or not at all.
func writePage(name string, r *analyze.Report) error {
	f, err := renameio.NewPendingFile(name, renameio.WithPermissions(0o644))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer f.Cleanup() //nolint:errcheck // after the replacement there is nothing to clean up
	if err := page.Write(f, r); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
