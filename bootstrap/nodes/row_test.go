package nodes

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/firstboot"
)

func TestPoolOfAConfig(t *testing.T) {
	for config, want := range map[string]string{"rendered-master-0a1b": "master", "rendered-my-pool-0a1b": "my-pool",
		"rendered--0a1b": "", "rendered-master": "", "master-0a1b": "", "rendered-": "", "": ""} {
		pool, ok := poolOf(config)
		assert.Equal(t, want, pool, config)
		assert.Equal(t, want != "", ok, config)
	}
}

// What was counted of one image is not counted for another.
func TestAnotherImageIsCountedAnew(t *testing.T) {
	const reference, other = "registry.example.com/ocp/master-os@" + digest, "sha256:other"
	says := firstboot.Report{State: firstboot.StateStaged, Image: reference}
	half := Row{Image: digest, Bytes: 5, Total: 10}
	cases := []struct {
		name string
		got  Row
		want [2]int64
	}{
		{"the node says the same image", half.reported(start, says), [2]int64{5, 10}},
		{"the node says another image", Row{Image: other, Bytes: 5, Total: 10}.reported(start, says), [2]int64{0, 0}},
		{"the node says an image for the first time", Row{Bytes: 5, Total: 10}.reported(start, says), [2]int64{5, 10}},
		{"the node says no image", half.reported(start, firstboot.Report{State: firstboot.StateStaged}), [2]int64{5, 10}},
		{"the cluster says the same image", half.joined(start, Member{Image: reference}), [2]int64{5, 10}},
		{"the cluster says another image", Row{Image: other, Bytes: 5, Total: 10}.joined(start,
			Member{Image: reference}), [2]int64{0, 0}},
	}
	for _, c := range cases {
		assert.Equal(t, c.want, [2]int64{c.got.Bytes, c.got.Total}, c.name)
	}
}

// A node that begins to pull, or goes on, is watched from the moment at which it said so first.
func TestWhenPullingBegan(t *testing.T) {
	pulls := func(r Row, at time.Time) Row {
		return r.reported(at, firstboot.Report{State: firstboot.StateStaging})
	}
	row := pulls(Row{}, start)
	assert.Equal(t, start, row.LastByte)
	assert.Equal(t, start, pulls(row, start.Add(time.Minute)).LastByte)
	assert.Zero(t, Row{}.reported(start, firstboot.Report{State: firstboot.StateStaged}).LastByte)
}

// A table that cannot be read is begun anew; one that cannot be written keeps the node waiting for its answer.
func TestTableThatIsDamaged(t *testing.T) {
	now, dir := start, t.TempDir()
	file := filepath.Join(dir, File)
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err := Read(dir)
	assert.ErrorContains(t, err, "read "+File)
	tr := newTracker(t, dir, &now)
	assert.Empty(t, tr.table.Rows())
	const report = `{"version":1,"node":"m","state":"Waiting"}`
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Mkdir(file, 0o700))
	assert.Equal(t, http.StatusInsufficientStorage, send(tr, "10.0.0.7:1", report).Code)
	require.NoError(t, os.Remove(file))
	assert.Equal(t, http.StatusNoContent, send(tr, "10.0.0.7:1", report).Code, "it is tried again")
	rows, err := Read(dir)
	require.NoError(t, err)
	assert.Len(t, rows, 1)
}

// What changed last is written when the host's work ends.
func TestRunWritesAtItsEnd(t *testing.T) {
	now, dir := start, t.TempDir()
	tr := newTracker(t, dir, &now)
	tr.Config("10.0.0.7:4711", "master", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tr.Run(ctx)
	rows, err := Read(dir)
	require.NoError(t, err)
	assert.Len(t, rows, 1)
}
