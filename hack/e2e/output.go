package e2e

import (
	"encoding/json"
	"errors"
	"io"
)

// Output is the flag -o of a demo: text or json.
type Output string

// String gives the flag's value.
func (o *Output) String() string { return string(*o) }

// Set takes the flag's value and refuses an unknown one.
func (o *Output) Set(value string) error {
	if value != "text" && value != "json" {
		return errors.New("write text or json")
	}
	*o = Output(value)
	return nil
}

// Show writes what a demo ends with.
func (o *Output) Show(w io.Writer, report interface{ Print(w io.Writer) }) error {
	if *o == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(report)
	}
	report.Print(w)
	return nil
}
