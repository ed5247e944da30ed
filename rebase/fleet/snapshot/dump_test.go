package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const (
	nodeA = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "managedFields": [{"manager": "kubelet"}]},
		"status": {"phase": "Running", "images": [{"names": ["x"]}]}}`
	nodeB = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}}`
)

// nodesOf reads a file as a dump.
func nodesOf(t *testing.T, name, text string) ([]corev1.Node, error) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	d, err := ReadDump(dir)
	if err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	require.NoError(t, d.List(t.Context(), &nodes))
	return nodes.Items, nil
}

func TestFormsOfADump(t *testing.T) {
	const item = "- apiVersion: v1\n  kind: Node\n  metadata:\n    managedFields:\n    - manager: kubelet\n    name: a\n" +
		"  status:\n    images:\n    - names: [x]\n    phase: Running\n"
	for _, c := range []struct {
		name, file, text string
		want             string
	}{
		{"a list in JSON", "l.json", `{"apiVersion": "v1", "items": [` + nodeA + "," + nodeB + `], "kind": "List"}`, "ab"},
		{"a list in JSON, its kind first", "l.json", `{"kind": "List", "apiVersion": "v1", "items": [` + nodeA + `]}`, "a"},
		{"an empty list", "l.json", `{"kind": "List", "apiVersion": "v1", "items": []}`, ""},
		{"objects in a row", "l.json", nodeA + "\n" + nodeB, "ab"},
		{"JSON in a YAML file, after spaces", "l.yaml", "\n  " + nodeA, "a"},
		{"JSON documents", "l.yaml", "---\n" + nodeA + "\n---\n" + nodeB + "\n", "ab"},
		{"a list in YAML", "l.yaml", "apiVersion: v1\nitems:\n" + item + strings.ReplaceAll(item, "name: a", "name: b") +
			"kind: List\nmetadata:\n  resourceVersion: \"\"\n", "ab"},
		{"a list in YAML with a comment", "l.yaml", "# nodes\napiVersion: v1\nkind: List\nitems:\n" + item, "a"},
		{"a list in a list", "l.json", `{"kind": "List", "apiVersion": "v1", "items": [{"kind": "List", "apiVersion": "v1", ` +
			`"items": [` + nodeB + `]}]}`, "b"},
		{"a note in JSON", "n.json", `{"items": {"a": 1}, "kind": "Node"}`, ""},
		{"a report that is cut short", "n.json", `{"kind": "Report", "lines": [1, 2`, ""},
		{"lines of a log", "n.json", "12:00 {\"a\": 1}\n", ""},
		{"nothing", "n.json", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes, err := nodesOf(t, c.file, c.text)
			require.NoError(t, err)
			names := ""
			for _, n := range nodes {
				if names += n.Name; n.Name == "a" {
					assert.Equal(t, corev1.NodeRunning, n.Status.Phase)
					assert.Empty(t, n.Status.Images, "no plan looks at them")
					assert.Empty(t, n.ManagedFields)
				}
			}
			assert.Equal(t, c.want, names)
		})
	}
}

// An object with a value of another kind is an error only for who asks for its kind, and it is named.
func TestObjectThatCannotBeRead(t *testing.T) {
	for _, c := range []struct{ name, metadata, status, at string }{
		{"status", `{"name": "a"}`, `{"phase": 5}`, "/status/phase"},
		{"metadata before the name", `{"labels": {"x": 1}, "name": "a"}`, `{}`, "/metadata/labels/x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "l.json"), []byte(`{"apiVersion": "v1", "kind": "List", "items": [
				{"apiVersion": "v1", "kind": "Node", "metadata": `+c.metadata+`, "status": `+c.status+`}]}`), 0o600))
			d, err := ReadDump(dir)
			require.NoError(t, err)
			err = d.List(t.Context(), &corev1.NodeList{})
			require.ErrorContains(t, err, "l.json: Node a: ")
			require.ErrorContains(t, err, c.at)
			require.NoError(t, d.List(t.Context(), &corev1.ConfigMapList{}))
		})
	}
}

// A list that ends in the middle is no list of fewer nodes.
func TestListThatIsCutShort(t *testing.T) {
	whole := `{"apiVersion": "v1", "items": [` + nodeA + "," + nodeB + `], "kind": "List"}`
	for end := strings.Index(whole, nodeA) + 1; end < len(whole); end += 7 {
		_, err := nodesOf(t, "l.json", whole[:end])
		require.ErrorContains(t, err, "l.json is damaged or cut short", whole[:end])
	}
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
}
