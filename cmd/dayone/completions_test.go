package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/cmd/internal/cli"
)

// completed is what a shell offers after the words.
func completed(t *testing.T, words ...string) (offers []string, directive string) {
	t.Helper()
	code, stdout, stderr := dayone(t, append([]string{"__complete"}, words...)...)
	require.Equal(t, cli.ExitOK, code, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	for _, line := range lines[:len(lines)-1] {
		offer, _, _ := strings.Cut(line, "\t")
		offers = append(offers, offer)
	}
	return offers, lines[len(lines)-1]
}

// Directives of cobra: no files, directories only.
const (
	noFiles         = ":4"
	directoriesOnly = ":16"
)

func TestCompletions(t *testing.T) {
	dir := installDirectory(t)
	for _, c := range []struct {
		name      string
		words     []string
		want      []string
		directive string
	}{
		{"commands", []string{"boot"}, []string{"bootstrap"}, noFiles},
		{"a form of output", []string{"plan", "-o", ""}, []string{"text", "json", "yaml"}, noFiles},
		{"a flow", []string{"sample", "--flow", ""}, []string{"standalone", "openshift"}, noFiles},
		{"a mode", []string{"cluster", "install", "--mode", ""}, []string{"advisor", "builder", "full"}, noFiles},
		{"a directory", []string{"plan", "--dir", ""}, nil, directoriesOnly},
		{"a registry's root", []string{"registry", "ls", "--root", ""}, nil, directoriesOnly},
		{"pools of a directory", []string{"build", "--dir", dir, "--pool", ""}, []string{"master", "worker"}, noFiles},
		{"pools of no directory", []string{"build", "--dir", "/nowhere", "--pool", ""}, nil, noFiles},
		{"kinds", []string{"schema", "Vers"}, []string{"Version"}, noFiles},
		{"pools without a cluster", []string{"cluster", "--kubeconfig", "/nowhere", "logs", ""}, nil, noFiles},
	} {
		t.Run(c.name, func(t *testing.T) {
			offers, directive := completed(t, c.words...)
			assert.Equal(t, c.want, offers)
			assert.Equal(t, c.directive, directive)
		})
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, stdout, stderr := dayone(t, "completion", shell)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Contains(t, stdout, "__complete", shell)
		if shell != "bash" {
			continue
		}
		check := exec.Command("bash", "-n")
		check.Stdin = strings.NewReader(stdout)
		out, err := check.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

func TestManualPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	t.Setenv("SOURCE_DATE_EPOCH", "1767323045")
	code, _, stderr := dayone(t, "man", dir)
	require.Equal(t, cli.ExitOK, code, stderr)
	for _, argv := range [][]string{{"dayone"}, {"kubectl-dayone"}} {
		for _, c := range leaves(program(argv)) {
			page := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
			raw, err := os.ReadFile(filepath.Join(dir, page))
			require.NoError(t, err)
			assert.Contains(t, string(raw), ".TH", page)
			assert.Contains(t, string(raw), ".SH EXAMPLE", page)
			assert.Contains(t, string(raw), "Jan 2026", page)
			assert.NotContains(t, string(raw), t.TempDir(), "nothing of this machine")
		}
	}
}

// What podman login or docker login wrote counts where no auth file is named.
func TestAuthFilesOfTheUser(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	used := func(args ...string) string {
		cmd, rest, err := newRootCommand().Find([]string{"sbom"})
		require.NoError(t, err)
		require.NoError(t, cmd.ParseFlags(append(rest, args...)))
		assert.Empty(t, cmd.Flags().Lookup("authfile").DefValue, "help is the same for everybody")
		return cmd.Flag("authfile").Value.String()
	}
	write := func(name string) string {
		file := filepath.Join(home, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte("{}"), 0o600))
		return file
	}
	assert.Empty(t, used())
	docker := write(".docker/config.json")
	assert.Equal(t, docker, used())
	t.Setenv("DOCKER_CONFIG", filepath.Dir(write("else/config.json")))
	assert.Equal(t, filepath.Join(home, "else/config.json"), used())
	podman := write("run/containers/auth.json")
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(home, "run"))
	assert.Equal(t, podman, used())
	t.Setenv("REGISTRY_AUTH_FILE", "/nowhere/auth.json")
	assert.Equal(t, "/nowhere/auth.json", used(), "who names a file means it")
	assert.Equal(t, "mine.json", used("--authfile", "mine.json"))
}
