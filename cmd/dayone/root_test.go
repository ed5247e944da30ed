package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
)

func TestExitCodes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	bad := filepath.Join(t.TempDir(), "bad")
	require.NoError(t, assets.WriteSample(bad))
	require.NoError(t, os.Remove(filepath.Join(bad, "layering/master.yaml")))
	cases := []struct {
		name string
		args []string
		code int
		says string
	}{
		{"good input", []string{"prepare", "--dir", dir}, cli.ExitOK, "next: dayone manifests"},
		{"again", []string{"prepare", "--dir", dir}, cli.ExitOK, "next: dayone manifests"},
		{"the next step", []string{"manifests", "--dir", dir}, cli.ExitOK, "next: dayone bootstrap"},
		{"refused input", []string{"prepare", "--dir", bad}, cli.ExitRefused, "mosc-missing"},
		{"an unknown command", []string{"frobnicate"}, cli.ExitUsage, "frobnicate"},
		{"an unknown flag", []string{"prepare", "--nope"}, cli.ExitUsage, "--nope"},
		{"a mistyped command", []string{"plna"}, cli.ExitUsage, "did you mean plan? dayone help lists them"},
		{"help for a mistyped command", []string{"help", "plna"}, cli.ExitUsage, "did you mean plan?"},
		{"help for one below", []string{"help", "cluster", "stats"}, cli.ExitUsage, "did you mean status?"},
		{"help for a command", []string{"help", "cluster", "status"}, cli.ExitOK, "dayone cluster status"},
		{"help", []string{"help"}, cli.ExitOK, "Available Commands"},
		{"a mistyped command below one that also works alone", []string{"render", "dif"}, cli.ExitUsage,
			"did you mean diff? dayone help render"},
		{"a mistyped flag", []string{"prepare", "--platfrom", "linux/amd64"}, cli.ExitUsage, "did you mean --platform?"},
		{"an unknown output form", []string{"prepare", "-o", "xml"}, cli.ExitUsage, "text, json or yaml"},
		{"a missing flag", []string{"registry", "ls"}, cli.ExitUsage, "root"},
		{"half of a pair of flags", []string{"serve", "--cert", "c"}, cli.ExitUsage, "[key]"},
		{"a missing destination", []string{"render", "--manifest-dir", dir}, cli.ExitUsage, "--dest-dir"},
		{"an install directory for render", []string{"render", "--manifest-dir", dir, "--explain"}, cli.ExitRefused,
			"[install-directory] (dayone plan --dir " + dir},
		{"no network", []string{"serve", "--allow-network", "192.0.2.1"}, cli.ExitUsage, "192.0.2.0/24"},
		{"a directory that is none", []string{"prepare", "--dir", "/nowhere"}, cli.ExitRefused, "/nowhere"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := dayone(t, c.args...)
			assert.Equal(t, c.code, code, stderr)
			assert.Contains(t, stdout+stderr, c.says)
		})
	}
}

func TestRefusalsAsJSON(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	file := filepath.Join(dir, installconfig.FileName)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Replace(raw, []byte("  flow:"), []byte("  flwo:"), 1), 0o600))
	code, stdout, stderr := dayone(t, "prepare", "--dir", dir, "-o", "json")
	assert.Equal(t, cli.ExitRefused, code)
	var got cli.Failure
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Len(t, got.Findings, 1)
	assert.Equal(t, "unknown-key", got.Findings[0].Rule)
	assert.Equal(t, cli.ExitRefused, got.ExitCode)
	assert.Contains(t, stderr, "flwo")
}

func TestFailuresForPrograms(t *testing.T) {
	void := filepath.Join(t.TempDir(), "void")
	for _, c := range []struct {
		name string
		args []string
		want cli.Failure
		says string
	}{
		{"a wrong flag", []string{"plan", "--nope"}, cli.Failure{ExitCode: cli.ExitUsage}, "--nope"},
		{"no command", []string{"frobnicate"}, cli.Failure{ExitCode: cli.ExitUsage}, "dayone help lists them"},
		{"a wrong flag where codes are answers", []string{"plan", "--exit-code", "--nope"},
			cli.Failure{ExitCode: cli.ExitFailed}, "--nope"},
		{"a file that is not there", []string{"build", "lint", void}, cli.Failure{ExitCode: cli.ExitFailed, File: void},
			"there is no " + void},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := dayone(t, append(c.args, "-o", "json")...)
			assert.Equal(t, c.want.ExitCode, code, stderr)
			var got cli.Failure
			require.NoError(t, json.Unmarshal([]byte(stdout), &got))
			assert.Contains(t, got.Message, c.says)
			assert.Contains(t, stderr, got.Message, "people read the same")
			got.Message = ""
			assert.Equal(t, c.want, got)
			_, stdout, _ = dayone(t, append(c.args, "-o", "yaml")...)
			assert.Contains(t, stdout, "kind: Error\n")
			_, stdout, _ = dayone(t, c.args...)
			assert.Empty(t, stdout)
		})
	}
}

// The page for people and the program's own help say the same of exit codes.
func TestTableOfExitCodes(t *testing.T) {
	page, err := os.ReadFile("../../docs/users/troubleshooting.md")
	require.NoError(t, err)
	code, help, _ := dayone(t, "help", "exit-codes")
	require.Equal(t, cli.ExitOK, code)
	help = strings.Join(strings.Fields(help), " ")
	rows := regexp.MustCompile(`(?m)^\| (\d) \| (.+) \|$`).FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, 8)
	for _, row := range rows {
		assert.Contains(t, help+" ", " "+row[1]+": "+strings.ReplaceAll(row[2], "`", "")+" ")
	}
}

func TestRefusedPrepareChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	require.NoError(t, os.Remove(filepath.Join(dir, "layering/secrets.yaml")))
	before, err := os.ReadFile(filepath.Join(dir, installconfig.FileName))
	require.NoError(t, err)
	code, _, stderr := dayone(t, "prepare", "--dir", dir)
	assert.Equal(t, cli.ExitRefused, code)
	assert.Contains(t, stderr, "secret-missing")
	after, err := os.ReadFile(filepath.Join(dir, installconfig.FileName))
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
	assert.NoDirExists(t, filepath.Join(dir, ".dayone"))
}

// Without dayone prepare there is no key, and no node would ask for signatures.
func TestUnpreparedDirectoryIsRefused(t *testing.T) {
	for _, flow := range []string{"standalone", "openshift"} {
		dir := filepath.Join(t.TempDir(), "cluster")
		code, _, stderr := dayone(t, "sample", "--dir", dir, "--flow", flow)
		require.Equal(t, cli.ExitOK, code, stderr)
		for _, args := range [][]string{{"manifests", "--dir", dir},
			{"bootstrap", "--dir", dir, "--state-dir", t.TempDir()}} {
			code, stdout, stderr := dayone(t, args...)
			assert.Equal(t, cli.ExitRefused, code, "%s %s", flow, args)
			assert.Contains(t, stderr, "[not-prepared] (run dayone prepare --dir "+dir+" first)")
			assert.Empty(t, stdout)
		}
		assert.NoFileExists(t, filepath.Join(dir, "openshift/99_dayone-clusterimagepolicy.yaml"))
	}
}

// Openshift-install removes what lies in openshift/ before it has made manifests.
func TestManifestsBeforeOpenShiftInstallsOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	for _, args := range [][]string{{"sample", "--dir", dir, "--flow", "openshift"}, {"prepare", "--dir", dir}} {
		code, _, stderr := dayone(t, args...)
		require.Equal(t, cli.ExitOK, code, stderr)
	}
	for _, want := range []string{
		"openshift-install create manifests --dir " + dir + ", then dayone manifests --dir " + dir,
		"openshift-install create ignition-configs --dir " + dir} {
		code, stdout, stderr := dayone(t, "manifests", "--dir", dir)
		require.Equal(t, cli.ExitOK, code, stderr)
		assert.Contains(t, stdout, "next: "+want)
		_ = os.Remove(filepath.Join(dir, installconfig.FileName)) // as openshift-install does
	}
}

func TestEveryCommandSaysWhatItDoes(t *testing.T) {
	for _, c := range newRootCommand().Commands() {
		assert.NotEmpty(t, c.Short, c.Name())
		assert.False(t, strings.HasSuffix(c.Short, "."), c.Name())
	}
}

func TestStatusWithoutBootstrap(t *testing.T) {
	code, stdout, _ := dayone(t, "status", "--state-dir", t.TempDir())
	assert.Equal(t, cli.ExitOK, code)
	assert.Contains(t, stdout, "no bootstrap has run here")
}

func TestBootstrapNeedsRootAndAgent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	code, _, stderr := dayone(t, "prepare", "--dir", dir)
	require.Equal(t, cli.ExitOK, code, stderr)
	code, _, stderr = dayone(t, "bootstrap", "--dir", dir, "--state-dir", t.TempDir(), "--daemon",
		"/nowhere/dayone-daemon")
	assert.Equal(t, cli.ExitFailed, code)
	if os.Geteuid() == 0 {
		assert.Contains(t, stderr, "make build")
	} else {
		assert.Contains(t, stderr, "needs root")
	}
}
