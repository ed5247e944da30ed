package e2e_test

import (
	"bytes"
	"flag"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/e2e"
)

func TestOutput(t *testing.T) {
	for _, c := range []struct {
		name, value, has string
		refused          bool
	}{
		{"text", "text", "\nimage:  an image\n", false},
		{"for machines", "json", "{\n  \"image\": \"an image\"", false},
		{"unknown", "yaml", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			output := e2e.Output("text")
			flags := flag.NewFlagSet("demo", flag.ContinueOnError)
			flags.SetOutput(io.Discard)
			flags.Var(&output, "o", "")
			err := flags.Parse([]string{"-o", c.value})
			if c.refused {
				require.ErrorContains(t, err, "write text or json")
				return
			}
			require.NoError(t, err)
			var out bytes.Buffer
			require.NoError(t, output.Show(&out, &e2e.Report{Image: "an image"}))
			assert.Contains(t, out.String(), c.has)
		})
	}
}
