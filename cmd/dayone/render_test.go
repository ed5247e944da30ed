package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cases is where the renderer keeps its own inputs.
const cases = "../../manifests/render/testdata"

func renderArgs(name, out string, more ...string) []string {
	args := []string{"render", "--manifest-dir", filepath.Join(cases, name, "in"), "--version-raw", "v1", "--version-hash",
		"h", "--payload-version", "1.0.0"}
	if out != "" {
		args = append(args, "--dest-dir", out)
	}
	return append(args, more...)
}

func TestRenderWritesAllOrNothing(t *testing.T) {
	var stdout, stderr bytes.Buffer
	out := t.TempDir()
	require.Zero(t, run(t.Context(), renderArgs("a-layered-pool", out), &stdout, &stderr), stderr.String())
	assert.FileExists(t, filepath.Join(out, "machine-pools", "master.yaml"))
	assert.Contains(t, stdout.String(), "rendered-master-")

	refused := filepath.Join(t.TempDir(), "none")
	for _, args := range [][]string{
		renderArgs("a-kubelet-field-that-the-platform-sets", refused),
		renderArgs("two-machineosconfigs-on-a-pool", refused, "--strict"),
		renderArgs("a-layered-pool", refused, "--pull-secret", "/nowhere"),
		renderArgs("a-layered-pool", ""),
	} {
		stderr.Reset()
		assert.NotZero(t, run(t.Context(), args, &stdout, &stderr), "%v", args)
		assert.NotEmpty(t, stderr.String())
		assert.NoDirExists(t, refused)
	}
}

func TestRenderExplainsComparesAndJudges(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), renderArgs("a-user-image-beats-the-layered-one", "", "--explain"), &stdout, &stderr),
		stderr.String())
	assert.Contains(t, stdout.String(),
		"from 99-mine (a.yaml), over the ControllerConfig and 10-prebuiltimage-osimageurl-master")

	one, two := t.TempDir(), t.TempDir()
	require.Zero(t, run(t.Context(), renderArgs("a-layered-pool", one), &stdout, &stderr))
	require.Zero(t, run(t.Context(), renderArgs("a-user-image-beats-the-layered-one", two), &stdout, &stderr))
	config := func(dir string) string {
		found, err := filepath.Glob(filepath.Join(dir, "machine-configs", "*.yaml"))
		require.NoError(t, err)
		require.Len(t, found, 1)
		return found[0]
	}
	stdout.Reset()
	assert.NotZero(t, run(t.Context(), []string{"render", "diff", config(one), config(two), "-o", "json"}, &stdout,
		&stderr))
	assert.Contains(t, stdout.String(), `"path": "osImageURL"`)
	stdout.Reset()
	require.Zero(t, run(t.Context(), renderArgs("a-layered-pool", one, "-o", "json"), &stdout, &stderr))
	name := strings.TrimSuffix(filepath.Base(config(one)), ".yaml")
	assert.JSONEq(t, `{"apiVersion":"dayone.dev/v1","kind":"RenderedConfigList","items":[{"pool":"master","config":"`+name+`"}]}`,
		stdout.String())
	stdout.Reset()
	assert.Zero(t, run(t.Context(), []string{"render", "diff", config(one), config(one), "-o", "json"}, &stdout, &stderr))
	assert.JSONEq(t, `{"apiVersion":"dayone.dev/v1","kind":"ConfigChangeList","items":[]}`, stdout.String())

	dump := t.TempDir()
	for _, file := range []string{config(two), filepath.Join(two, "machine-pools", "master.yaml")} {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dump, filepath.Base(file)), raw, 0o600))
	}
	stdout.Reset()
	assert.NotZero(t, run(t.Context(), []string{"render", "parity", "--cluster", dump, "--bootstrap", one}, &stdout,
		&stderr))
	assert.Contains(t, stdout.String(), "master: only osImageURL differs")
	assert.Zero(t, run(t.Context(), []string{"render", "parity", "--cluster", filepath.Join(one, "machine-pools"),
		"--bootstrap", one}, &stdout, &stderr))
}
