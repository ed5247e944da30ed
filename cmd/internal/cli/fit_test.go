package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFitTable(t *testing.T) {
	const table = "NAME\tSTATE\tDETAIL\nnode-a\tgood\tall is well with it and this goes on and on\n" +
		"no table here but long\n  kind\tit waits until the others are done\trendered-worker-1\n"
	for _, c := range []struct {
		name  string
		width int
		want  string
	}{
		{"wide", 100, table},
		{"the widest first", 70, "NAME\tSTATE\tDETAIL\n" +
			"node-a\tgood\tall is well with it and this\n\t\tgoes on and on\n" +
			"no table here but long\n" +
			"  kind\tit waits until the others are\trendered-worker-1\n\tdone\t\n"},
		{"no word is broken", 20, "NAME\tSTATE\tDETAIL\n" +
			"node-a\tgood\tall is well with\n\t\tit and this goes\n\t\ton and on\n" +
			"no table here but\nlong\n" +
			"  kind\tit waits until\trendered-worker-1\n\tthe others are\t\n\tdone\t\n"},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, fitTable(table, c.width)) })
	}
	assert.Equal(t, "a\t/etc/containers/\n\tregistries.d/a.yaml\n",
		fitTable("a\t/etc/containers/registries.d/a.yaml\n", 22), "paths break where words are too long")
	for _, line := range strings.Split(fitTable("  a b c d e f g h i j k l\tx\n", 17), "\n") {
		assert.LessOrEqual(t, len(line), 18, line)
		if strings.ContainsAny(line, "abgl") {
			assert.True(t, strings.HasPrefix(line, "  "), "%q keeps the indent", line)
		}
	}
}

func TestProse(t *testing.T) {
	var out bytes.Buffer
	assert.Same(t, &out, Prose(&out), "a pipe gets a line a line")
	w := prose{&out, 24}
	n, err := fmt.Fprintf(w, "short\n  why:     the node waits for all others\n\nend")
	require.NoError(t, err)
	assert.Equal(t, 51, n)
	assert.Equal(t, "short\n  why:     the node\n    waits for all others\n\nend", out.String())
	out.Reset()
	require.NoError(t, WriteTable(w, func(t io.Writer) { fmt.Fprintln(t, "a\tb") }))
	assert.Equal(t, "a  b\n", out.String())
}

func TestReflow(t *testing.T) {
	assert.Equal(t, "It writes two\nfiles:\n  one.yaml  the\n    first of\n    them\n  two.yaml\nand ends.\n\nMore.",
		reflow("It writes\ntwo files:\n  one.yaml  the first of them\n  two.yaml\nand\nends.\n\nMore.\n", 15))
}
