package storage

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A writer that does not append begins anew, and what was there takes no room any more.
func TestWriterBeginsAnewOrGoesOn(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	require.NoError(t, err)
	path := uploadDir("a/b", "x") + "/" + dataFile
	write := func(appendTo bool, text string) int64 {
		w, err := s.driver.Writer(t.Context(), path, appendTo)
		require.NoError(t, err)
		_, err = w.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return w.Size()
	}
	assert.Equal(t, int64(5), write(false, "first"))
	assert.Equal(t, int64(8), write(true, "111"))
	assert.Equal(t, int64(8), s.Used())
	assert.Equal(t, int64(3), write(false, "new"))
	assert.Equal(t, int64(3), s.Used())
	content, err := s.driver.GetContent(t.Context(), path)
	require.NoError(t, err)
	assert.Equal(t, "new", string(content))
}

// An upload that somebody used since it was found idle goes on.
func TestIdleUploadThatIsUsed(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	require.NoError(t, err)
	u, err := s.Repository("a/b").NewUpload(t.Context(), "u")
	require.NoError(t, err)
	require.NoError(t, u.Append(strings.NewReader("1")))
	require.NoError(t, u.Release())
	found, _ := s.unfinished.get(u.ID())
	later := found
	later.used = found.used.Add(time.Second)
	s.unfinished.put(u.ID(), later)
	gone, err := endIdle(t.Context(), s, u.ID(), found)
	require.NoError(t, err)
	assert.False(t, gone)
	gone, err = endIdle(t.Context(), s, u.ID(), later)
	require.NoError(t, err)
	assert.True(t, gone)
	gone, err = endIdle(t.Context(), s, u.ID(), later)
	require.NoError(t, err)
	assert.False(t, gone, "it ended meanwhile")
}

// Room runs low when what is reserved would take the disk below twice what stays free.
func TestReservedBytesCountForLow(t *testing.T) {
	s, err := Open(t.TempDir(), Options{MinFreeBytes: 1 << 20})
	require.NoError(t, err)
	free, err := s.Free()
	require.NoError(t, err)
	s.driver.budget.unwritten.Store(free - 1)
	assert.True(t, s.Low())
}
