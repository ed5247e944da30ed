package day1

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/installconfig/report"
)

// The installer's bundle gets the journal of a run that has ended, also when the run was cancelled.
func TestKeepForInstaller(t *testing.T) {
	const journal = `{"version":1,"phases":[]}`
	o := day1.Options{Dir: t.TempDir(), StateDir: t.TempDir(), Log: report.NoLog()}
	dir := filepath.Join(t.TempDir(), "dayone.d")
	ctx, cancel := context.WithCancel(t.Context())
	end := keepForInstaller(ctx, &o, dir)
	require.NoError(t, os.WriteFile(filepath.Join(o.StateDir, "journal.json"), []byte(journal), 0o600))
	cancel()
	end()
	kept, err := os.ReadFile(filepath.Join(dir, "journal.json"))
	require.NoError(t, err)
	assert.JSONEq(t, journal, string(kept))
}
