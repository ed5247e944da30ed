package day1

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
}

// statusFlags are those of dayone status.
type statusFlags struct {
	stateDir string
	watch    bool
	// nodes goes on after the last phase.
	nodes bool
	page  pageflags.Flags
	// shown is the last look that was printed as text.
	shown string
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
				if err != nil || last || !f.watch {
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
	cmd.Flags().BoolVar(&f.watch, "watch", false,
		"look every second until the bootstrap serves or ends, and print what has changed")
	cmd.Flags().BoolVar(&f.nodes, "nodes", false,
		"with --watch: go on while the bootstrap serves, to see the nodes come")
	f.page.Add(cmd.Flags(), "https://HOST:PORT of another host's status page")
	return cmd
}

// print writes one look: for programs on a line of its own where more follow, for people unless the one before looked
// the same.
func (f *statusFlags) print(cmd *cobra.Command, kind string, v any, text string) error {
	show := func(io.Writer) error { return f.show(cmd, text) }
	if f.watch {
		return cli.PrintOneOfMany(cmd, kind, v, show)
	}
	return cli.Print(cmd, kind, v, show)
}

// show prints a look as text unless the one before looked the same.
func (f *statusFlags) show(cmd *cobra.Command, text string) error {
	if text == f.shown {
		return nil
	}
	f.shown = text
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return err
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
		out.Live = &live
	}
	var text strings.Builder
	if err = out.print(&text, time.Now()); err == nil {
		err = f.print(cmd, "BootstrapStatus", out, text.String())
	}
	switch {
	case err != nil:
		return false, err
	case !f.watch && out.failed():
		return true, cli.Answer(cli.ExitFailed) // what was printed says why
	case out.HandedOver != nil, running && j.Endpoints != nil && !f.nodes:
		return true, nil
	case f.watch && !running && len(j.Records) > 0:
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
	var text strings.Builder
	for _, p := range s.Phases {
		note := p.Detail
		if p.Error != "" {
			note = p.Error
		}
		fmt.Fprintf(&text, "%-8s %-14s %8.2fs  %s  %s\n", p.Status, p.Name, p.Seconds, p.Title, note)
	}
	fmt.Fprintf(&text, "%d of %d phases begun\n", len(s.Phases), s.Total)
	if err := nodes.WriteText(&text, s.Nodes); err != nil {
		return done, err
	}
	if err := f.print(cmd, "BootstrapProgress", s, text.String()); err != nil || f.watch {
		return done, err
	}
	if slices.ContainsFunc(s.Phases, func(p statuspage.Phase) bool { return p.Status == journal.StatusFailed }) {
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

func (s statusOutput) print(w io.Writer, now time.Time) error {
	j, running := s.Journal, s.Running
	if o := s.Outcome; len(j.Records) == 0 && o != nil && o.Error != "" {
		_, err := fmt.Fprintf(w, "the last run ended before its first phase, at %s: %s\n", o.Ended.UTC().
			Format(time.RFC3339), o.Error)
		return err
	}
	if len(j.Records) == 0 {
		_, err := fmt.Fprintln(w, "no bootstrap has run here; start one with dayone bootstrap")
		return err
	}
	for _, r := range j.Records {
		if _, err := io.WriteString(w, phaseText(r, running, now)); err != nil {
			return err
		}
	}
	if err := printLive(w, s.Live); err != nil {
		return err
	}
	if err := nodes.WriteText(w, s.Nodes); err != nil {
		return err
	}
	return s.printEnd(w)
}

// phaseText is one phase as a line, with its error on a line below.
func phaseText(r journal.Record, running bool, now time.Time) string {
	note := ""
	if r.Reused {
		note = " (by an earlier run)"
	}
	if r.Attempts > 1 {
		note += fmt.Sprintf(" (attempt %d)", r.Attempts)
	}
	if n := r.Interruptions; n > 0 {
		note += fmt.Sprintf(" (cut off %s, found at %s)", times(n), r.Interrupted.UTC().Format("15:04:05Z"))
	}
	if r.Status == journal.StatusRunning && !running || r.Status == journal.StatusInterrupted {
		// The time at which it was cut off is unknown.
		return fmt.Sprintf("%-8s %-14s %9s  %s%s\n", "cut off", r.Name, "", r.Title, note)
	}
	text := fmt.Sprintf("%-8s %-14s %8.2fs  %s%s\n", r.Status, r.Name, r.Duration(now).Seconds(), r.Title, note)
	if r.Error != "" {
		text += fmt.Sprintf("         %s\n", r.Error)
	}
	return text
}

// times counts for people.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// printEnd says what comes next.
func (s statusOutput) printEnd(w io.Writer) (err error) {
	switch e := s.Endpoints; {
	case s.HandedOver != nil && s.HandedOver.Instead != "":
		_, err = fmt.Fprintf(w, "given up at %s, and needed by nobody: %s\n", s.HandedOver.Time.Format(time.RFC3339),
			s.HandedOver.Instead)
	case s.HandedOver != nil:
		_, err = fmt.Fprintf(w, "handed over at %s: the cluster has all, and this host may go\n",
			s.HandedOver.Time.Format(time.RFC3339))
	case !s.Running:
		_, err = fmt.Fprintln(w, errNotRunning)
	case e != nil:
		_, err = fmt.Fprintf(w, "serving Ignition at %s, images at %s (CA: %s)\n", e.ConfigServer, e.Registry,
			e.CAFile)
	}
	return err
}

// printLive says what the phases that run do now.
func printLive(w io.Writer, live *statuspage.Status) error {
	if live == nil {
		return nil
	}
	for _, p := range live.Phases {
		if p.Status == journal.StatusRunning && p.Detail != "" {
			if _, err := fmt.Fprintf(w, "now: %s: %s\n", p.Name, p.Detail); err != nil {
				return err
			}
		}
	}
	return nil
}
