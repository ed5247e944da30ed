package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/installconfig/report"
)

// Print prints data on standard output as -o asks for: JSON, YAML, or for people, which text writes.
func Print(cmd *cobra.Command, data any, text func(io.Writer) error) error {
	w := cmd.OutOrStdout()
	switch Output(cmd) {
	case "json":
		return writeJSON(w, data)
	case "yaml":
		raw, err := yaml.Marshal(data)
		if err != nil {
			return fmt.Errorf("print the answer: %w", err)
		}
		_, err = w.Write(raw)
		return err
	}
	return text(w)
}

// PrintLine prints data as Print does, for people one line.
func PrintLine(cmd *cobra.Command, data any, format string, args ...any) error {
	return Print(cmd, data, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, format+"\n", args...)
		return err
	})
}

// PrintTable prints data as Print does, for people a table.
func PrintTable(cmd *cobra.Command, data any, rows func(io.Writer)) error {
	return Print(cmd, data, func(w io.Writer) error { return WriteTable(w, rows) })
}

// Output is the form of data that -o asks for: text, json, or yaml where AllowYAML lets it pass.
func Output(cmd *cobra.Command) string {
	o, _ := cmd.Flags().GetString("output")
	return o
}

// AllowYAML lets a command and those below it print YAML, too.
func AllowYAML(cmd *cobra.Command) *cobra.Command {
	acceptOutput(cmd, "text, json or yaml", "text", "json", "yaml")
	if f := cmd.PersistentFlags().Lookup("output"); f != nil {
		f.Usage = "text, json or yaml: how data is printed on standard output"
	}
	return cmd
}

// acceptOutput refuses other forms of output; of such checks cobra runs the one nearest to the command.
func acceptOutput(cmd *cobra.Command, names string, forms ...string) {
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if o := Output(cmd); !slices.Contains(forms, o) {
			return Usagef("--output %q: write %s", o, names)
		}
		return nil
	}
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// WriteTable aligns the columns of rows whose cells are separated by tabs.
func WriteTable(w io.Writer, rows func(io.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	rows(t)
	return t.Flush()
}

// WriteFindings writes a line for each finding.
func WriteFindings(w io.Writer, findings []report.Finding) {
	for _, f := range findings {
		fmt.Fprintf(w, "%s: %s\n", f.Severity, f.Error())
	}
}

// Log is the log of one command, on standard error.
func Log(cmd *cobra.Command) *logrus.Entry {
	l := logrus.New()
	l.SetOutput(cmd.ErrOrStderr())
	l.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, DisableColors: true})
	if verbose, _ := cmd.Flags().GetBool("verbose"); verbose {
		l.SetLevel(logrus.DebugLevel)
	}
	return logrus.NewEntry(l)
}
