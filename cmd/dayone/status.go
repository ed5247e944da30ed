package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap"
)

// statusInterval is how often --watch looks at the journal.
const statusInterval = time.Second

// errNotRunning ends --watch: nothing would change.
var errNotRunning = errors.New("the bootstrap does not run; dayone bootstrap with the same --state-dir goes on where it ended")

// statusOutput is the journal and what it cannot know of itself.
type statusOutput struct {
	*bootstrap.Journal
	// Running says that a process works in the state directory now.
	Running bool `json:"running"`
	// HandedOver says since when nobody needs this host any more.
	HandedOver *bootstrap.HandedOver `json:"handedOver,omitempty"`
}

func newStatusCommand() *cobra.Command {
	var stateDir string
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how far the bootstrap on this host is",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for {
				j, err := bootstrap.OpenJournal(stateDir)
				if err != nil {
					return err
				}
				running, err := bootstrap.Running(stateDir)
				if err != nil {
					return err
				}
				handedOver, err := bootstrap.ReadHandedOver(stateDir)
				if err != nil {
					return err
				}
				if out := (statusOutput{Journal: j, Running: running, HandedOver: handedOver}); wantsJSON(cmd) {
					err = printJSON(cmd.OutOrStdout(), out)
				} else {
					err = out.print(cmd.OutOrStdout(), time.Now())
				}
				if err != nil || !watch {
					return err
				}
				switch {
				case handedOver != nil, running && j.Endpoints != nil:
					return nil
				case !running && len(j.Records) > 0:
					return errNotRunning
				}
				if err := pause(cmd.Context(), statusInterval); err != nil {
					return nil // told to stop watching
				}
			}
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", bootstrap.DefaultStateDir, "the bootstrap's state directory")
	cmd.Flags().BoolVar(&watch, "watch", false, "print again every second until the bootstrap serves or ends")
	return cmd
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (s statusOutput) print(w io.Writer, now time.Time) error {
	j, running := s.Journal, s.Running
	if len(j.Records) == 0 {
		_, err := fmt.Fprintln(w, "no bootstrap has run here; start one with dayone bootstrap")
		return err
	}
	for _, r := range j.Records {
		note := ""
		if r.Reused {
			note = " (by an earlier run)"
		}
		if r.Attempts > 1 {
			note += fmt.Sprintf(" (attempt %d)", r.Attempts)
		}
		if r.Status == bootstrap.PhaseRunning && !running {
			// Nobody knows when it was cut off.
			if _, err := fmt.Fprintf(w, "%-8s %-14s %9s  %s%s\n", "cut off", r.Name, "", r.Title, note); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintf(w, "%-8s %-14s %8.2fs  %s%s\n", r.Status, r.Name, r.Duration(now).Seconds(), r.Title, note); err != nil {
			return err
		}
		if r.Error != "" {
			if _, err := fmt.Fprintf(w, "         %s\n", r.Error); err != nil {
				return err
			}
		}
	}
	return s.printEnd(w)
}

// printEnd says what comes next.
func (s statusOutput) printEnd(w io.Writer) (err error) {
	switch e := s.Endpoints; {
	case s.HandedOver != nil && s.HandedOver.Instead != "":
		_, err = fmt.Fprintf(w, "given up at %s, and needed by nobody: %s\n", s.HandedOver.Time.Format(time.RFC3339), s.HandedOver.Instead)
	case s.HandedOver != nil:
		_, err = fmt.Fprintf(w, "handed over at %s: the cluster has all, and this host may go\n", s.HandedOver.Time.Format(time.RFC3339))
	case !s.Running:
		_, err = fmt.Fprintln(w, errNotRunning)
	case e != nil:
		_, err = fmt.Fprintf(w, "serving Ignition at %s, images at %s (authority: %s)\n", e.ConfigServer, e.Registry, e.CAFile)
	}
	return err
}
