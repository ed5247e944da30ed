package codeblocks_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/codeblocks"
)

func TestOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(file, []byte("# Page\n\n```\ntext\n```\n\n1. a step:\n\n   ```sh on-a-host\n"+
		"   one --long \\\n     flag   # why\n\n   two\n   ```\n\n```console\n$ three\nsays\n```\n"), 0o600))
	blocks, err := codeblocks.Of(file)
	require.NoError(t, err)
	require.Len(t, blocks, 3)
	assert.Equal(t, codeblocks.Block{Line: 4, Text: "text\n"}, blocks[0])
	assert.Empty(t, blocks[0].Commands())
	assert.Equal(t, "on-a-host", blocks[1].Where)
	assert.Equal(t, []string{"one --long    flag   # why", "two"}, blocks[1].Commands())
	assert.Empty(t, blocks[1].Output())
	assert.Equal(t, []string{"three"}, blocks[2].Commands())
	assert.Equal(t, "says\n", blocks[2].Output())
}

func TestIndented(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(file, []byte("# Page\n\n    one\n    two\n\ntext\n    goes on\n\n- a step:\n\n"+
		"      three\n\n```sh\n    fenced\n```\n"), 0o600))
	blocks, err := codeblocks.Indented(file)
	require.NoError(t, err)
	assert.Equal(t, []codeblocks.Block{{Line: 3, Text: "one\ntwo\n"}, {Line: 11, Text: "three\n"}}, blocks)
}

func TestSpans(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(file, []byte("Run `one\n--flag`.\n\n| a | b |\n|---|---|\n| `two` | |\n"), 0o600))
	spans, err := codeblocks.Spans(file)
	require.NoError(t, err)
	assert.Equal(t, []string{"one\n--flag", "two"}, spans)
}
