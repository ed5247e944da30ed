package day1

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/board"
	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/bootstrap/statuspage"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/pageflags"
)

// statusInterval is how often --watch looks.
const statusInterval = time.Second

// errNotRunning ends --watch: nothing would change.
var errNotRunning = errors.New(
	"the bootstrap does not run; dayone bootstrap with the same --state-dir goes on where it ended")

// statusOutput is the journal and what it cannot know of itself.
type statusOutput struct {
	*journal.Journal
	// Running says that a process works in the state directory now.
	Running bool `json:"running"`
	// HandedOver says since when no node needs this host any more.
	HandedOver *handover.Mark `json:"handedOver,omitempty"`
	// Outcome is how the last run ended; absent while one works.
	Outcome *journal.Outcome `json:"outcome,omitempty"`
	// Nodes are those that have asked for a config or an image.
	Nodes []nodes.View `json:"nodes,omitempty"`
	// Live is what the running process tells on its socket.
	Live *statuspage.Status `json:"live,omitempty"`
	// Board is what status shows to people.
	Board board.Board `json:"board"`
}

// statusFlags are those of dayone status.
type statusFlags struct {
	cli.Looks
	stateDir string
	// nodes goes on after the last phase.
	nodes bool
	page  pageflags.Flags
}

func newStatusCommand() *cobra.Command {
	f := &statusFlags{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how far the bootstrap on this host, or on another one, is",
		Long: "Status shows the journal of the bootstrap on this host and, while it runs, what it does now. With --url " +
			"it asks the status page of\n" +
			"another host. It lists each node that has asked for its config or its image, and how far that is. With --watch\n" +
			"and -o json each look is one line of JSON. The exit code is 1 when the bootstrap has failed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			look := f.local
			if f.page.URL != "" {
				client, err := f.page.Client()
				if err != nil {
					return err
				}
				look = func(cmd *cobra.Command) (bool, error) { return f.remote(cmd, client) }
			}
			for {
				last, err := look(cmd)
				if err != nil || last || !f.Watch {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(statusInterval):
				}
			}
		},
	}
	cmd.Flags().StringVar(&f.stateDir, "state-dir", day1.DefaultStateDir, "the bootstrap's state directory")
	cmd.Flags().BoolVar(&f.Watch, "watch", false,
		"look every second until the bootstrap serves or ends: a terminal shows the state now, a pipe gets what changes")
	cmd.Flags().BoolVar(&f.nodes, "nodes", false,
		"with --watch: go on while the bootstrap serves, to see the nodes come")
	f.page.Add(cmd.Flags(), "https://HOST:PORT of another host's status page")
	return cmd
}

// local looks at a state directory of this host; last says that nothing more will change.
func (f *statusFlags) local(cmd *cobra.Command) (last bool, err error) {
	j, err := journal.Open(f.stateDir)
	if err != nil {
		return false, err
	}
	running, err := journal.Running(f.stateDir)
	if err != nil {
		return false, err
	}
	out := statusOutput{Journal: j, Running: running}
	if out.HandedOver, err = handover.ReadMark(f.stateDir); err != nil {
		return false, err
	}
	rows, err := nodes.Read(f.stateDir)
	if err != nil {
		return false, err
	}
	out.Nodes = nodes.Views(rows, time.Now())
	if !running {
		if out.Outcome, err = journal.ReadOutcome(f.stateDir); err != nil {
			return false, err
		}
	}
	if live, err := statuspage.NewSocketClient(statusSocket).Fetch(cmd.Context()); running && err == nil &&
		f.stateDir == day1.DefaultStateDir {
		live.Board = board.Board{} // it is in the output itself
		out.Live = &live
	}
	out.Board = out.board(time.Now())
	err = f.Print(cmd, "BootstrapStatus", out, out.Board)
	switch {
	case err != nil:
		return false, err
	case !f.Watch && out.failed():
		return true, cli.Answer(cli.ExitFailed) // what was printed says why
	case out.HandedOver != nil, running && j.Endpoints != nil && !f.nodes:
		return true, nil
	case f.Watch && !running && len(j.Records) > 0:
		return true, errNotRunning
	}
	return false, nil
}

// remote looks at another host's status page.
func (f *statusFlags) remote(cmd *cobra.Command, client *statuspage.Client) (last bool, err error) {
	s, err := client.Fetch(cmd.Context())
	if err != nil {
		return false, err
	}
	done := len(s.Phases) == s.Total && s.Total > 0 && !f.nodes
	for _, p := range s.Phases {
		done = done && p.Status == journal.StatusDone
	}
	if err := f.Print(cmd, "BootstrapProgress", s, s.Board); err != nil || f.Watch {
		return done, err
	}
	if s.Failed() {
		return true, cli.Answer(cli.ExitFailed)
	}
	return done, nil
}

// failed tells whether the bootstrap ended with an error, and nothing works on since.
func (s statusOutput) failed() bool {
	if s.Running || s.HandedOver != nil {
		return false
	}
	return s.Outcome != nil && s.Outcome.Error != "" ||
		slices.ContainsFunc(s.Records, func(r journal.Record) bool { return r.Status == journal.StatusFailed })
}

// board is the output for people: the journal, the nodes and what comes next.
func (s statusOutput) board(now time.Time) board.Board {
	if len(s.Records) == 0 {
		note := "no bootstrap has run here; start one with dayone bootstrap"
		if o := s.Outcome; o != nil && o.Error != "" {
			note = fmt.Sprintf("the last run ended before its first phase, at %s: %s", o.Ended.UTC().Format(time.RFC3339),
				o.Error)
		}
		return board.Board{Notes: []string{note}}
	}
	b := statuspage.OfJournal(s.Journal, s.Running, s.Live, s.Nodes, now).Board
	if note := s.next(); note != "" {
		b.Notes = append(b.Notes, note)
	}
	return b
}

// next says what comes next.
func (s statusOutput) next() string {
	switch e := s.Endpoints; {
	case s.HandedOver != nil && s.HandedOver.Instead != "":
		return fmt.Sprintf("given up at %s; no node needs it: %s", s.HandedOver.Time.Format(time.RFC3339),
			s.HandedOver.Instead)
	case s.HandedOver != nil:
		return fmt.Sprintf("handed over at %s: the cluster has all, and this host may go",
			s.HandedOver.Time.Format(time.RFC3339))
	case !s.Running:
		return errNotRunning.Error()
	case e != nil:
		return fmt.Sprintf("serving Ignition at %s, images at %s (CA: %s)", e.ConfigServer, e.Registry, e.CAFile)
	}
	return ""
}
