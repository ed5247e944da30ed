package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree writes files and gives their directory, with those that every tree has.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{"docs/README.md": "# Pages\n"}
	for _, name := range rootPages() {
		all[name] = "# " + name + "\n"
	}
	maps.Copy(all, files)
	for name, content := range all {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
	}
	return root
}

// TestTheDocumentation makes the website of this tree: every link leads to a page and a heading.
func TestTheDocumentation(t *testing.T) {
	out := t.TempDir()
	require.NoError(t, run("../..", out))
	home, err := os.ReadFile(filepath.Join(out, "index.html"))
	require.NoError(t, err)
	for _, want := range []string{"<title>Documentation – dayone</title>", "<summary>Users</summary>",
		`<a href="users/getting-started.html">Getting started</a>`, `href="index.html" aria-current="page"`} {
		if strings.Contains(want, "aria-current") {
			assert.NotContains(t, string(home), want, "the index is no page of its own navigation")
			continue
		}
		assert.Contains(t, string(home), want)
	}
	assert.FileExists(t, filepath.Join(out, "developers/decisions/index.html"))
	assert.FileExists(t, filepath.Join(out, "readme.html"))
}

func TestWebsite(t *testing.T) {
	root := tree(t, map[string]string{
		"docs/README.md": "# Pages\n\n## Users: install\n\n" +
			"| [One](users/one.md) | read |\n|---|---|\n| [Two](b/README.md#x) | do |\n",
		"docs/users/one.md": "# One & all\n\n[two](../b/README.md#twice-1) [code](../../main.go) " +
			"[web](https://example.com/) [here](#one--all) ![board](pictures/board.png)\n",
		"docs/users/pictures/board.png": "a picture",
		"docs/b/README.md":              "# Two\n\n## X\n\n## Twice\n\n## Twice\n\n<script>alert(1)</script>\n",
	})
	out := t.TempDir()
	require.NoError(t, run(root, out))
	one, err := os.ReadFile(filepath.Join(out, "users/one.html"))
	require.NoError(t, err)
	for _, want := range []string{"<title>One &amp; all – dayone</title>", `<a href="../b/index.html#twice-1">two</a>`,
		`<h1 id="one--all">`, `<a href="https://example.com/">web</a>`, `<a href="#one--all">here</a>`, `<img src="../users/pictures/board.png" alt="board"`,
		`<a href="../users/one.html" aria-current="page">One</a>`, `<a href="../index.html">dayone</a>`} {
		assert.Contains(t, string(one), want)
	}
	picture, err := os.ReadFile(filepath.Join(out, "users/pictures/board.png"))
	require.NoError(t, err)
	assert.Equal(t, "a picture", string(picture))
	assert.NotContains(t, string(one), "main.go", "a link to source code keeps its text alone")
	assert.Contains(t, string(one), " code ")
	two, err := os.ReadFile(filepath.Join(out, "b/index.html"))
	require.NoError(t, err)
	assert.NotContains(t, string(two), "<script>")
}

func TestBrokenLinks(t *testing.T) {
	for _, c := range []struct{ name, page, want string }{
		{"no page", "[x](two.md)", "docs/one.md: link to two.md: there is no such page"},
		{"no heading", "[x](README.md#nothing)", "docs/README.md has no such heading"},
		{"no picture", "![x](x.png)", "read a picture of docs/one.md"},
		{"no heading here", "# One\n\n[x](#two)", "docs/one.md has no such heading"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.ErrorContains(t, run(tree(t, map[string]string{"docs/one.md": c.page}), t.TempDir()), c.want)
		})
	}
}
