package snapshot

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestBlockReadsAsTheLibraryDoes writes random objects with the library and reads them back: what block reads is what
// the library reads.
func TestBlockReadsAsTheLibraryDoes(t *testing.T) {
	const seed = 5000
	r := rand.New(rand.NewPCG(seed, 0))
	words := []string{"a", "yes", "on", "Null", "1", "-2", "0x1f", "1e3", "1_000", "10.0.0.1", "16384Ki", "v1.2", "a: b",
		"a #b", "- x", "it's", `say "hi"`, "a\nb", "a\n\n  b\n", "", " lead", "trail ", "2026-01-31T22:00:00Z", "2026-01-31",
		"{x", "[y", "*z", "&q", "!t", "%p", "@m", "`g", "|", ">", "~", "ä", "tab\tx", "end:", "x@sha256:ab", "100m", "07",
		".5", "12:30:45", "=", "<<", "?k", "1.5Gi", "5.14.0-427.el9.x86_64", "0o7", "+1", ".inf", "quay.io/a/b:latest",
		"k8s.io/x",
		strings.Repeat("a long message is folded ", 8) + "end", strings.Repeat("it's: folded # \"too\" ", 9) + "end"}
	var value func(depth int) any
	value = func(depth int) any {
		switch r.IntN(7) {
		case 0:
			return r.IntN(2) == 0
		case 1:
			return r.IntN(100000) - 50
		case 2:
			return nil
		case 3, 4:
			return words[r.IntN(len(words))]
		case 5:
			list := []any{}
			for range r.IntN(4) * min(depth, 1) {
				list = append(list, value(depth-1))
			}
			return list
		}
		object := map[string]any{}
		for range r.IntN(4) * min(depth, 1) {
			object[words[r.IntN(len(words))]] = value(depth - 1)
		}
		return object
	}
	read := 0
	for i := range 20000 {
		raw, err := yaml.Marshal(map[string]any{"kind": "Node", fmt.Sprintf("k%d", r.IntN(3)): value(4), "z": value(3)})
		require.NoError(t, err)
		item := "- " + strings.ReplaceAll(strings.TrimSuffix(string(raw), "\n"), "\n", "\n  ") + "\n"
		got, ok := blockJSON([]byte(item))
		if !ok {
			continue
		}
		read++
		want, err := yaml.YAMLToJSON(raw)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(got), "case %d of seed %d:\n%s", i, seed, item)
	}
	assert.Greater(t, read, 2000, "it reads what is plain")
}

func FuzzBlock(f *testing.F) {
	f.Add("a: b\nc:\n- d: 1\n  e: []\n- f\n")
	f.Add("metadata:\n  managedFields:\n  - a: b\n  name: x\nstatus:\n  images:\n  - names:\n    - y\n")
	f.Fuzz(func(t *testing.T, text string) {
		item := "- " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
		got, ok := blockJSON([]byte(item))
		if !ok || strings.Contains(text, "managedFields") || strings.Contains(text, "images") {
			return
		}
		want, err := yaml.YAMLToJSON([]byte(item))
		require.NoError(t, err, "%q", item)
		require.JSONEq(t, string(want), "["+string(got)+"]", "%q", item)
	})
}

func TestCutList(t *testing.T) {
	const list = "apiVersion: v1\nitems:\n- kind: Node\n  metadata:\n    name: a\n- kind: Node\nkind: List\n"
	items, ok := cutList([]byte(list + "metadata: {}\n"))
	require.True(t, ok)
	require.Len(t, items, 2)
	assert.Equal(t, "- kind: Node\n  metadata:\n    name: a\n", string(items[0]))
	for _, other := range []string{"", "kind: Node\n", "---\n" + list, strings.Replace(list, "kind: List\n", "", 1),
		strings.Replace(list, "- kind", "# x\n- kind", 1), list + "---\nkind: Node\n",
		strings.Replace(list, "\n- kind: Node\nkind", "\nx\nkind", 1)} {
		_, ok := cutList([]byte(other))
		assert.False(t, ok, "%q", other)
	}
	got, ok := blockJSON([]byte("- metadata:\n    managedFields:\n    - a: |\n\n        b\n    name: x\n  status:\n" +
		"    images:\n    - names: [y]\n    phase: z\n"))
	require.True(t, ok)
	assert.JSONEq(t, `{"metadata":{"name":"x"},"status":{"phase":"z"}}`, string(got))
}
