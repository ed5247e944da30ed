package day1

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
)

// A process that is killed between the mark and the end of its work leaves passwords, and a phase that seems to run.
func TestEndedFinishesTheHandOver(t *testing.T) {
	dir := t.TempDir()
	_, err := loadIdentity(dir, "127.0.0.1:9500")
	require.NoError(t, err)
	onLoopback := filepath.Join(dir, identityDir, pullAuthFile+loopbackEnd)
	require.NoError(t, os.WriteFile(onLoopback, []byte("{}"), 0o600))
	j, err := journal.Open(dir)
	require.NoError(t, err)
	j.Records = []journal.Record{{Name: "hand-over", Status: journal.StatusRunning, Started: time.Now()}}
	require.NoError(t, j.Save())
	require.NoError(t, handover.Mark{Time: time.Now().UTC()}.Write(dir))
	done, err := Ended(dir, "hand-over")
	require.NoError(t, err)
	left, err := filepath.Glob(filepath.Join(dir, identityDir, "*"+passwordEnd))
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.NoFileExists(t, onLoopback, "that of dayone handover, which was killed")
	j, err = journal.Open(dir)
	require.NoError(t, err)
	assert.Equal(t, journal.StatusDone, j.Find("hand-over").Status)
	assert.Equal(t, 1, j.Find("hand-over").Interruptions)
	assert.True(t, done.Time.Equal(j.Find("hand-over").Finished))
	_, err = Ended(dir, "hand-over")
	require.NoError(t, err)
}

func TestWithoutProxy(t *testing.T) {
	for _, c := range []struct{ name, upper, lower, want string }{
		{"nothing set", "", "", "192.0.2.1"},
		{"both spellings", "a.example.com, 10.0.0.0/8", "b.example.com,a.example.com",
			"a.example.com,10.0.0.0/8,b.example.com,192.0.2.1"},
		{"already there", "192.0.2.1", "", "192.0.2.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, withoutProxy(c.upper, c.lower, "192.0.2.1"))
		})
	}
}
