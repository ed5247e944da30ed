package openshift

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/installconfig/report"
)

// TestReadAsked reads the lines of three generations of MCO's server, as a container runtime writes them.
func TestReadAsked(t *testing.T) {
	const early = `2026-01-02T10:00:00.1Z stderr F I0102 10:00:00.100000       1 api.go:60] Pool master requested by ` +
		`address:"10.0.0.7:4711" User-Agent:"Ignition/0.35.0"` + "\n"
	const now = `2026-01-02T10:00:05.2Z stderr F I0102 10:00:05.200000       1 api.go:102] Pool arbiter requested by ` +
		`address:"[fd00::8]:4711" User-Agent:"Ignition/2.26.0" Accept-Header: "application/vnd.coreos.ignition+json" ` +
		`TokenPresent: false` + "\n"
	const others = `2026-01-02T10:00:01Z stderr F I0102 10:00:01.0 1 api.go:60] Pool master requested by ` +
		`address:"10.0.0.9:1" User-Agent:"curl/8"` + "\n" + "no log line\n" +
		`2026-01-02T10:00:01Z stderr P I0102 10:00:01.0 1 api.go:60] Pool master requested by address:"10.0.0.6:1"` + "\n"
	dir := t.TempDir()
	tracker := nodes.New(nodes.Options{StateDir: dir, ByMCO: true, Log: report.NoLog()})
	file := filepath.Join(dir, "0.log")
	require.NoError(t, os.WriteFile(file, []byte(early+others+now[:60]), 0o600))
	from, err := readAsked(file, 0, tracker)
	require.NoError(t, err)
	assert.EqualValues(t, len(early+others), from, "half a line is read when it is whole")
	require.NoError(t, os.WriteFile(file, []byte(early+others+now), 0o600))
	from, err = readAsked(file, from, tracker)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(early), 0o600))
	from, err = readAsked(file, from, tracker)
	require.NoError(t, err)
	assert.EqualValues(t, len(early), from, "a new log under the old name begins at its begin")
	_, err = readAsked(filepath.Join(dir, "none"), 0, tracker)
	require.ErrorIs(t, err, os.ErrNotExist)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tracker.Run(ended)
	rows, err := nodes.Read(dir)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	assert.Equal(t, []any{"fd00::8", "arbiter", "10.0.0.7", "master", 1, nodes.StageFetching},
		[]any{rows[0].Address, rows[0].Pool, rows[1].Address, rows[1].Pool, rows[1].Asked, rows[1].Stage})
	assert.Equal(t, time.Date(2026, 1, 2, 10, 0, 0, 1e8, time.UTC), rows[1].Since)
}
