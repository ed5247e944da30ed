package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/installconfig/report"
)

// APIVersion is that of all data that programs read. A later version may have more fields; a field that is gone or
// means something else is another version. docs/schemas has the JSON schema of each kind.
const APIVersion = "dayone.dev/v1"

// Print prints data on standard output as -o asks for: JSON, YAML, or for people, which text writes. For programs it
// adds APIVersion and kind, and a list becomes an object with items. Data that has both already has no kind here.
func Print(cmd *cobra.Command, kind string, data any, text func(io.Writer) error) error {
	if Output(cmd) == "text" {
		return text(cmd.OutOrStdout())
	}
	return write(cmd.OutOrStdout(), Output(cmd), kind, data)
}

// PrintLine prints data as Print does, for people one line.
func PrintLine(cmd *cobra.Command, kind string, data any, format string, args ...any) error {
	return Print(cmd, kind, data, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, format+"\n", args...)
		return err
	})
}

// PrintTable prints data as Print does, for people a table.
func PrintTable(cmd *cobra.Command, kind string, data any, rows func(io.Writer)) error {
	return Print(cmd, kind, data, func(w io.Writer) error { return WriteTable(w, rows) })
}

// printOneOfMany prints data as Print does, but JSON on one line and YAML as one document of a stream.
func printOneOfMany(cmd *cobra.Command, kind string, data any, text func(io.Writer) error) error {
	w := cmd.OutOrStdout()
	switch Output(cmd) {
	case "json":
		raw, err := document(kind, data)
		if err != nil {
			return err
		}
		_, err = w.Write(append(raw, '\n'))
		return err
	case "yaml":
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
	}
	return Print(cmd, kind, data, text)
}

// write writes one document as JSON or YAML.
func write(w io.Writer, form, kind string, data any) error {
	raw, err := document(kind, data)
	if err != nil {
		return err
	}
	if form == "yaml" {
		if raw, err = yaml.JSONToYAML(raw); err != nil {
			return fmt.Errorf("print %s as YAML: %w", kind, err)
		}
		_, err = w.Write(raw)
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return fmt.Errorf("print %s as JSON: %w", kind, err)
	}
	out.WriteByte('\n')
	_, err = out.WriteTo(w)
	return err
}

// document is the JSON of data with its kind in front.
func document(kind string, data any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // nobody shows it in a page; people read it, too
	if err := enc.Encode(data); err != nil {
		return nil, fmt.Errorf("print %s: %w", kind, err)
	}
	raw := bytes.TrimSpace(out.Bytes())
	if kind == "" {
		return raw, nil
	}
	head := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q`, APIVersion, kind)
	switch {
	case bytes.Equal(raw, []byte("{}")):
		return append(head, '}'), nil
	case raw[0] == '{':
		return append(append(head, ','), raw[1:]...), nil
	case bytes.Equal(raw, []byte("null")):
		raw = []byte("[]")
	}
	return append(append(append(head, `,"items":`...), raw...), '}'), nil
}

// Output is the form of data that -o asks for: text, json or yaml.
func Output(cmd *cobra.Command) string {
	if f := cmd.Flags().Lookup("output"); f != nil {
		return f.Value.String()
	}
	return "text" // a command without a program around it
}

// checkOutput refuses other forms of output.
func checkOutput(cmd *cobra.Command, _ []string) error {
	if o := Output(cmd); !slices.Contains([]string{"text", "json", "yaml"}, o) {
		return Usagef("--output %q: write text, json or yaml", o)
	}
	return nil
}

// WriteFindings writes a line for each finding.
func WriteFindings(w io.Writer, findings []report.Finding) {
	for _, f := range findings {
		severity := string(f.Severity)
		if f.Severity == report.Error {
			severity = alarming(w, severity)
		}
		fmt.Fprintf(w, "%s: %s\n", severity, f.Error())
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
