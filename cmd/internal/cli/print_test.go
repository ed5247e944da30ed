package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig/report"
)

func TestDocuments(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		data       any
		want       string
	}{
		{"an object", "Thing", struct {
			A string `json:"a"`
		}{"x"}, `{"apiVersion":"dayone.dev/v1","kind":"Thing","a":"x"}`},
		{"an empty object", "Thing", struct{}{}, `{"apiVersion":"dayone.dev/v1","kind":"Thing"}`},
		{"a list", "ThingList", []int{1, 2}, `{"apiVersion":"dayone.dev/v1","kind":"ThingList","items":[1,2]}`},
		{"an empty list", "ThingList", []int(nil), `{"apiVersion":"dayone.dev/v1","kind":"ThingList","items":[]}`},
		{"an object of Kubernetes", "", map[string]string{"apiVersion": "v1", "kind": "List"}, `{"apiVersion":"v1","kind":"List"}`},
		{"text for people", "Thing", map[string]string{"a": "<b> & c"},
			`{"apiVersion":"dayone.dev/v1","kind":"Thing","a":"<b> & c"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := document(c.kind, c.data)
			require.NoError(t, err)
			assert.Equal(t, c.want, string(got))
		})
	}
}

func TestOneOfMany(t *testing.T) {
	for form, want := range map[string]string{
		"json": `{"apiVersion":"dayone.dev/v1","kind":"Look","at":1}` + "\n" +
			`{"apiVersion":"dayone.dev/v1","kind":"Look","at":2}` + "\n",
		"yaml": "---\napiVersion: dayone.dev/v1\nat: 1\nkind: Look\n---\napiVersion: dayone.dev/v1\nat: 2\nkind: Look\n",
		"text": "look 1\nlook 2\n",
	} {
		t.Run(form, func(t *testing.T) {
			code, stdout, _ := run(t, func(cmd *cobra.Command) error {
				for at := 1; at <= 2; at++ {
					if err := printOneOfMany(cmd, "Look", map[string]int{"at": at}, func(w io.Writer) error {
						_, err := fmt.Fprintln(w, "look", at)
						return err
					}); err != nil {
						return err
					}
				}
				return nil
			}, "-o", form)
			assert.Equal(t, ExitOK, code)
			assert.Equal(t, want, stdout)
		})
	}
}

// run executes a program with one command.
func run(t *testing.T, work func(*cobra.Command) error, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	command := &cobra.Command{Use: "work", RunE: func(cmd *cobra.Command, _ []string) error { return work(cmd) }}
	code = Run(t.Context(), NewRoot("p", "a program", "v0", command), append([]string{"work"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestFailures(t *testing.T) {
	finding := report.Finding{Severity: report.Error, File: "a.yaml", Line: 3, Path: "spec.x", Rule: "r",
		Message: "m", Next: "n"}
	for _, c := range []struct {
		name string
		err  error
		code int
		want string
	}{
		{"a finding", finding, ExitRefused, `"findings":[{"severity":"error","file":"a.yaml","line":3,"path":"spec.x",` +
			`"rule":"r","message":"m","next":"n"}]`},
		{"a build", fmt.Errorf("build: %w", &build.Failure{Class: build.ClassUser, Step: "containerfile",
			Message: "m", Line: 4, Next: "n"}), ExitFailed, `"build":{"class":"user","step":"containerfile","message":"m","line":4,"next":"n"}`},
		{"what the same input brings again", Hopeless(errors.New("no")), exitHopeless, `"message":"no","exitCode":6`},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := run(t, func(*cobra.Command) error { return c.err }, "-o", "json")
			assert.Equal(t, c.code, code)
			compact := strings.NewReplacer("\n", "", "  ", "", ": ", ":").Replace(stdout)
			assert.Contains(t, compact, `{"apiVersion":"dayone.dev/v1","kind":"Error",`)
			assert.Contains(t, compact, c.want)
			assert.NotEmpty(t, stderr)
		})
	}
}

// Who printed an answer and fails prints no second document.
func TestAnswerAndFailure(t *testing.T) {
	code, stdout, stderr := run(t, func(cmd *cobra.Command) error {
		if err := Print(cmd, "Thing", struct{}{}, nil); err != nil {
			return err
		}
		return errors.New("but it is bad")
	}, "-o", "json")
	assert.Equal(t, ExitFailed, code)
	assert.Equal(t, 1, strings.Count(stdout, "apiVersion"))
	assert.Contains(t, stderr, "but it is bad")
}

// Flags that a command sets from a file before it runs are those that are checked.
func TestPreRunStays(t *testing.T) {
	ran := false
	command := &cobra.Command{Use: "work", RunE: func(*cobra.Command, []string) error { return nil },
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			ran = true
			return cmd.Flags().Set("must", "x")
		}}
	command.Flags().String("must", "", "")
	require.NoError(t, command.MarkFlagRequired("must"))
	var out bytes.Buffer
	assert.Equal(t, ExitOK, Run(t.Context(), NewRoot("p", "a program", "v0", command), []string{"work"}, &out, &out),
		out.String())
	assert.True(t, ran)
}
