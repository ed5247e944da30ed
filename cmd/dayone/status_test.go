package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/cmd/internal/cli"
)

// ended is the journal of a bootstrap that served and was killed in a later run.
const ended = `{"version":1,"process":{"pid":1,"started":"2026-01-02T03:04:05Z"},"phases":[
 {"name":"base","title":"take in the base image","status":"done","attempts":1,
   "started":"2026-01-02T03:04:05Z","finished":"2026-01-02T03:04:07Z"},
 {"name":"build-master","title":"build the image of pool master","status":"running","attempts":2,
   "started":"2026-01-02T03:04:07Z"}],
 "endpoints":{"registry":"192.0.2.1:9500","configServer":"https://192.0.2.1:22623","caFile":"ca.crt"}}`

func TestStatusOfABootstrapThatEnded(t *testing.T) {
	dir := t.TempDir()
	code, stdout, stderr := dayone(t, "status", "--state-dir", dir)
	require.Equal(t, cli.ExitOK, code, stderr)
	assert.Contains(t, stdout, "no bootstrap has run here")

	require.NoError(t, os.WriteFile(filepath.Join(dir, journal.File), []byte(ended), 0o600))
	code, stdout, stderr = dayone(t, "status", "--state-dir", dir)
	require.Equal(t, cli.ExitOK, code, stderr)
	assert.Contains(t, stdout, "done     base")
	assert.Contains(t, stdout, "cut off  build-master", "nothing runs: the phase does not, either")
	later := strings.Replace(ended, `"status":"running"`,
		`"status":"interrupted","interruptions":2,"interrupted":"2026-01-02T03:05:06Z"`, 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, journal.File), []byte(later), 0o600))
	code, again, stderr := dayone(t, "status", "--state-dir", dir)
	require.Equal(t, cli.ExitOK, code, stderr)
	assert.Contains(t, again, "cut off  build-master")
	assert.Contains(t, again, "(attempt 2; cut off 2 times, found at 03:05:06Z)")
	require.NoError(t, os.WriteFile(filepath.Join(dir, journal.File), []byte(ended), 0o600))
	assert.Contains(t, stdout, "does not run")
	assert.NotContains(t, stdout, "serving")

	code, stdout, stderr = dayone(t, "status", "--state-dir", dir, "-o", "json")
	require.Equal(t, cli.ExitOK, code, stderr)
	var out struct {
		Running *bool            `json:"running"`
		Phases  []journal.Record `json:"phases"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &out))
	require.NotNil(t, out.Running)
	assert.False(t, *out.Running)
	assert.Len(t, out.Phases, 2)

	code, _, stderr = dayone(t, "status", "--state-dir", dir, "--watch")
	assert.Equal(t, cli.ExitFailed, code, "watching what will not change ends")
	assert.Contains(t, stderr, "goes on where it ended")

	require.NoError(t, day1.End(dir, "192.0.2.1:9500", ""))
	code, stdout, stderr = dayone(t, "status", "--state-dir", dir, "--watch")
	require.Equal(t, cli.ExitOK, code, stderr)
	assert.Contains(t, stdout, "this host may go")
	require.NoError(t, day1.End(dir, "192.0.2.1:9500", "fallback: the build failed"))
	_, stdout, _ = dayone(t, "status", "--state-dir", dir)
	assert.Contains(t, stdout, "no node needs it: fallback: the build failed")
}
