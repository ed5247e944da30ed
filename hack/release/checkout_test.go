package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/program"
)

// sources copies what git knows of this checkout, and what is new in it.
func sources(t *testing.T, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(to, 0o700))
	copied, err := exec.Command("sh", "-c",
		`cd ../.. && git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$0"`, to).
		CombinedOutput()
	require.NoError(t, err, string(copied))
}

// checkout is the sources with a commit that has them all.
func checkout(t *testing.T, at string) (commit string) {
	t.Helper()
	sources(t, at)
	cmd := exec.Command("sh", "-ec", "git init -q\ngit add -A\ngit commit -q -m all\ngit rev-parse HEAD")
	cmd.Dir = at
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@example.com", "GIT_AUTHOR_DATE="+made+" +0000", "GIT_COMMITTER_DATE="+made+" +0000")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))
	return strings.TrimSpace(string(said))
}

// asThePage makes the release by the commands of the page. The environment says what differs here, as it may for make:
// a database of vulnerabilities, since the network has the real one, and fewer architectures.
func asThePage(t *testing.T, source string) (out string) {
	t.Helper()
	bin := t.TempDir()
	require.NoError(t, program.Build(t.Context(), "", program.Options{Package: "dayone.dev/dayone/cmd/dayone", Cgo: true},
		filepath.Join(bin, "dayone")))
	typed(t, source, "dayone keygen", "PATH="+bin+":"+os.Getenv("PATH"), "ARCH="+strings.Join(architectures(), ","),
		"DARWIN="+darwin, "VULNDB=file://"+vulnerabilities(t, module+"/x"))
	return filepath.Join(source, "out/release")
}

// compiledByHand is the program that the page's command installs. Without the first flag Go compiles everything anew.
func compiledByHand(t *testing.T, source string) {
	bin := t.TempDir()
	typed(t, source, "go install", "GOFLAGS=-trimpath -buildvcs=false -ldflags=-s", "GOBIN="+bin)
	assert.Contains(t, say(t, filepath.Join(bin, "dayone"), "--help"), "dayone COMMAND")
}

// typed runs a block of the page in a checkout.
func typed(t *testing.T, source, begins string, environment ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.Join(ofThePage(t, begins), "\n"))
	cmd.Dir, cmd.Env = source, append(os.Environ(), environment...)
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))
}
