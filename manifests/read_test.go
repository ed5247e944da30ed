package manifests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

const aPool = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata:\n  name: %s\n"

func dirOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestReadDirKeepsOrder(t *testing.T) {
	dir := dirOf(t, map[string]string{
		"b.yaml": "# a comment\n" + fmt.Sprintf(aPool, "three"),
		"a.txt":  "\xef\xbb\xbf" + fmt.Sprintf(aPool, "one") + "--- # next\n" + fmt.Sprintf(aPool, "two") + "---\n\n",
		"c.json": `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfigPool",` +
			`"metadata":{"name":"four"}}` + "\n" + `{"apiVersion":"v1","kind":"List","metadata":{"name":"l"}}`,
	})
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	set, err := ReadDir(dir, ReadOptions{})
	require.NoError(t, err)
	var names []string
	for _, p := range set.Pools {
		names = append(names, p.Object.Name)
	}
	assert.Equal(t, []string{"one", "two", "three", "four"}, names)
	assert.Equal(t, Origin{File: "a.txt", Document: 2, Line: 6}, set.Pools[1].Origin)
	require.Len(t, set.Skipped, 1)
	assert.Equal(t, TypeName{"v1", "List", "l"}, set.Skipped[0].Object)
	assert.Equal(t, Origin{File: "c.json", Document: 2, Line: 2}, set.Skipped[0].Origin)
}

func TestReadExpandsLists(t *testing.T) {
	raw := []byte(
		"apiVersion: v1\nkind: List\nitems:\n- apiVersion: machineconfiguration.openshift.io/v1\n" +
			"  kind: MachineConfigPool\n  metadata: {name: a}\n- {apiVersion: v1, kind: Node}\n")
	set, err := Read(raw, "f", ReadOptions{})
	require.NoError(t, err)
	assert.Empty(t, set.Pools)
	set, err = Read(raw, "f", ReadOptions{ExpandLists: true})
	require.NoError(t, err)
	assert.Len(t, set.Pools, 1)
	assert.Len(t, set.Skipped, 1)
}

func TestReadDirRefusals(t *testing.T) {
	for _, c := range []struct {
		name             string
		text, rule, path string
		line             int
	}{
		{"a sentence", "This is a note.\n", "type", "", 1},
		{"no kind", "apiVersion: v1\n", "kind-missing", "kind", 1},
		{"broken YAML in document two", fmt.Sprintf(aPool, "a") + "---\na: b\n c: d\n", "syntax", "", 7},
		{"broken JSON", `{"apiVersion":"v1",`, "syntax", "", 1},
		{"text behind the separator", "--- {a: b}\n", "syntax", "", 1},
		{"a number as label", fmt.Sprintf(aPool, "a") + "  labels:\n    x: 1\n", "type", "metadata.labels[x]", 6},
		{"a list as spec", fmt.Sprintf(aPool, "a") + "spec: []\n", "type", "spec", 5},
		{"a mapping of lists, unclosed", "a: [" + strings.Repeat("[", 100) + "\n", "syntax", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ReadDir(dirOf(t, map[string]string{"f.yaml": c.text}), ReadOptions{})
			findings := report.Of(err)
			require.Len(t, findings, 1, "%v", err)
			assert.Equal(t, "f.yaml", findings[0].File)
			assert.Equal(t, c.rule, findings[0].Rule)
			assert.Equal(t, c.path, findings[0].Path)
			assert.NotEmpty(t, findings[0].Next)
			if c.line > 0 {
				assert.Equal(t, c.line, findings[0].Line)
			}
		})
	}
}

func TestReadDirReportsAllFiles(t *testing.T) {
	_, err := ReadDir(dirOf(t, map[string]string{"a.yaml": "a: b: c\n", "b.yaml": "kind: X\n"}), ReadOptions{})
	assert.Len(t, report.Of(err), 2)
}

func TestReadDirIsBounded(t *testing.T) {
	rule := func(err error) string {
		findings := report.Of(err)
		require.NotEmpty(t, findings, "%v", err)
		return findings[0].Rule
	}
	t.Run("a file that is too large is not read", func(t *testing.T) {
		dir := t.TempDir()
		file, err := os.Create(filepath.Join(dir, "huge.yaml"))
		require.NoError(t, err)
		require.NoError(t, file.Truncate(100<<20))
		require.NoError(t, file.Close())
		_, err = ReadDir(dir, ReadOptions{})
		assert.Equal(t, "file-too-large", rule(err))
	})
	t.Run("too many documents", func(t *testing.T) {
		_, err := ReadDir(dirOf(t, map[string]string{"f.yaml": strings.Repeat(fmt.Sprintf(aPool, "a")+"---\n", 10000)}),
			ReadOptions{})
		assert.Equal(t, "too-many-documents", rule(err))
	})
	t.Run("all files together", func(t *testing.T) {
		_, err := ReadDir(dirOf(t, map[string]string{"a.yaml": fmt.Sprintf(aPool, "a"), "b.yaml": fmt.Sprintf(aPool, "b")}),
			ReadOptions{MaxTotalBytes: 100})
		assert.Equal(t, "file-too-large", rule(err))
	})
	t.Run("a document that is too large", func(t *testing.T) {
		text := fmt.Sprintf(aPool, "a") + "spec:\n  list:\n" + strings.Repeat("  - a\n", 1<<20)
		_, err := ReadDir(dirOf(t, map[string]string{"a.yaml": text}), ReadOptions{})
		assert.Equal(t, "document-too-large", rule(err))
	})
	t.Run("deep nesting", func(t *testing.T) {
		_, err := Read(append(bytes.Repeat([]byte("["), 200000), bytes.Repeat([]byte("]"), 200000)...), "f.yaml",
			ReadOptions{})
		require.Error(t, err)
	})
	t.Run("a pyramid of aliases", func(t *testing.T) {
		text := "a: &a [x,x,x,x,x,x,x,x,x]\n"
		for c := 'b'; c < 'k'; c++ {
			text += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
		}
		_, err := Read([]byte(text), "f.yaml", ReadOptions{})
		assert.Equal(t, "syntax", rule(err))
	})
}

func TestReadDirFollowsLinksOnlyInside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret.yaml")
	require.NoError(t, os.WriteFile(outside, []byte(fmt.Sprintf(aPool, "stolen")), 0o600))
	dir := dirOf(t, map[string]string{"a.yaml": fmt.Sprintf(aPool, "a")})
	require.NoError(t, os.Symlink("a.yaml", filepath.Join(dir, "b.yaml")))
	set, err := ReadDir(dir, ReadOptions{})
	require.NoError(t, err)
	assert.Len(t, set.Pools, 2)
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "c.yaml")))
	_, err = ReadDir(dir, ReadOptions{})
	require.Len(t, report.Of(err), 1)
	assert.Equal(t, "unreadable-file", report.Of(err)[0].Rule)
	require.NoError(t, os.Remove(filepath.Join(dir, "c.yaml")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	_, err = ReadDir(dir, ReadOptions{})
	require.Len(t, report.Of(err), 1)
	assert.Equal(t, "not-a-file", report.Of(err)[0].Rule)
}

func TestUnknownFieldsAreWarnings(t *testing.T) {
	set, err := Read(
		[]byte("apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineOSConfig\nmetadata:\n  name: a\nspec:\n"+
			"  containerfile: x\n---\n"+
			"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: a\nspec:\n"+
			"  kernelArgs: [x]\n"), "f.yaml", ReadOptions{})
	require.NoError(t, err)
	require.Len(t, set.Findings, 2)
	assert.Equal(t, "spec.containerfile", set.Findings[0].Path)
	assert.Equal(t, "spec.kernelArgs", set.Findings[1].Path)
	assert.Equal(t, report.Warning, set.Findings[1].Severity)
}

func TestMarshalGivesTypeAndStableBytes(t *testing.T) {
	set, err := Read([]byte(fmt.Sprintf(aPool, "a")), "f.yaml", ReadOptions{})
	require.NoError(t, err)
	pool := set.Pools[0].Object
	pool.APIVersion, pool.Kind = "", ""
	raw, err := Marshal(pool)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(raw),
		"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\n"))
	assert.Empty(t, pool.Kind)
	again, err := Marshal(pool)
	require.NoError(t, err)
	assert.Equal(t, string(raw), string(again))
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(aPool, "a") + "---\n" + fmt.Sprintf(aPool, "b")))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Secret"}{"apiVersion":"v1","kind":"Secret"}`))
	f.Add([]byte(
		"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nspec:\n  config:\n" +
			"    ignition: {version: 3.4.0}\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		set, err := Read(raw, "f", ReadOptions{})
		if err != nil {
			require.NotEmpty(t, report.Of(err), "%v", err)
			return
		}
		for _, c := range set.MachineConfigs {
			_, _ = Marshal(c.Object) // may refuse, must not panic
		}
	})
}

func TestFindingsNameFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(dir, "dangling.yaml")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.yaml"), []byte("a: ["), 0o600))
	_, err := ReadDir(dir, InstallDirectory("openshift"))
	var files []string
	for _, f := range report.Of(err) {
		files = append(files, f.File)
	}
	assert.Equal(t, []string{"openshift/broken.yaml", "openshift/dangling.yaml"}, files)
}

func TestOldMachineOSConfig(t *testing.T) {
	set, err := Read(
		[]byte("apiVersion: machineconfiguration.openshift.io/v1alpha1\nkind: MachineOSConfig\nmetadata:\n  name: worker\n"),
		"a.yaml", ReadOptions{})
	require.NoError(t, err)
	require.Len(t, set.Findings, 1)
	assert.Equal(t, "machineosconfig-version", set.Findings[0].Rule)
	assert.Contains(t, set.Findings[0].Message, "MachineOSConfig worker")
}
