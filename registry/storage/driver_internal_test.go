package storage

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	storagedriver "github.com/distribution/distribution/v3/registry/storage/driver"
	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
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

// A file that cannot be begun is an error that names it.
func TestPlaceWithoutADirectory(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	err := place(filepath.Join(none, "link"), []byte("x"))
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, "write link")
	err = syncDir(none)
	require.ErrorIs(t, err, ErrNotFound)
	assert.ErrorContains(t, err, "sync directory")
}

// Accounts that push no more take no memory.
func TestCountsEndWithTheirUploads(t *testing.T) {
	var u unfinished
	for range 2 {
		require.NoError(t, u.begin("u", 2))
	}
	u.drop("u")
	assert.Equal(t, map[string]int{"u": 1}, u.count)
	u.drop("u")
	assert.Empty(t, u.count)
}

// What distribution warns of is for who looks for it.
func TestLogOfDistribution(t *testing.T) {
	log, said := test.NewNullLogger()
	log.SetLevel(logrus.DebugLevel)
	forDistribution(log.WithField("root", "r")).Warn("it is odd")
	require.Len(t, said.AllEntries(), 1)
	assert.Equal(t, logrus.DebugLevel, said.LastEntry().Level)
	assert.Equal(t, logrus.Fields{"root": "r", "source": "distribution", "detail": "it is odd"}, said.LastEntry().Data)
	forDistribution(nil).Warn("nobody wants to know")
}

// A root that is only read keeps a blob that has rotted where it is and serves it no more, although it was well before
// and its file has the times that it had.
func TestRottenBlobOfARootThatIsRead(t *testing.T) {
	root := t.TempDir()
	s, err := Open(root, Options{})
	require.NoError(t, err)
	d := digest.FromString("good bytes")
	require.NoError(t, s.driver.PutContent(t.Context(), blobData(d), []byte("good bytes")))
	s, err = Open(root, Options{ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.driver.full(blobData(d)), []byte("evil bytes"), 0o600))
	s.driver.blobs.trust(d)
	_, err = s.driver.blobs.stat(d)
	require.NoError(t, err, "as if the disk had rotted since")
	_, err = s.driver.blobs.rehash(d, func(r io.Reader) io.Reader { return r })
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = s.driver.blobs.stat(d)
	require.ErrorIs(t, err, ErrCorrupt)
	assert.FileExists(t, s.driver.full(blobData(d)))
}

func TestBlobOfAPath(t *testing.T) {
	d := digest.FromString("x")
	for _, c := range []struct {
		path string
		want bool
	}{
		{blobData(d), true}, {blobData(digest.SHA512.FromString("x")), true}, {blobData(d) + ".tmp", false},
		{"/elsewhere" + blobData(d), false}, {blobs + "/sha256/00/short/" + dataFile, false},
		{uploadDir("a/b", "x") + "/" + dataFile, false},
	} {
		_, ok := blobOf(c.path)
		assert.Equal(t, c.want, ok, c.path)
	}
}

// What moves has to be there, and nothing is known any more of a blob that was deleted.
func TestMoveAndDelete(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	require.NoError(t, err)
	d := digest.FromString("bytes")
	from := uploadDir("a/b", "x") + "/" + dataFile
	err = s.driver.Move(t.Context(), from, blobData(d))
	require.ErrorAs(t, err, &storagedriver.PathNotFoundError{})
	require.NoError(t, s.driver.PutContent(t.Context(), from, []byte("bytes")))
	require.NoError(t, s.driver.Move(t.Context(), from, blobData(d)))
	_, known := s.driver.blobs.seen.Load(d)
	assert.True(t, known)
	require.NoError(t, s.driver.Delete(t.Context(), blobData(d)))
	_, known = s.driver.blobs.seen.Load(d)
	assert.False(t, known)
}

// An upload is idle from its last use on.
func TestReleaseNotesTheUse(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	require.NoError(t, err)
	u, err := s.Repository("a/b").NewUpload(t.Context(), "u")
	require.NoError(t, err)
	began := time.Now()
	s.unfinished.put(u.ID(), unfinishedUpload{"a/b", "u", began.Add(-time.Hour)})
	require.NoError(t, u.Release())
	found, ok := s.unfinished.get(u.ID())
	require.True(t, ok)
	assert.False(t, found.used.Before(began))
}

// Who reads along with an upload goes on when it is committed; who comes later is told that it was.
func TestReaderOfACommittedUpload(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	require.NoError(t, err)
	u, err := s.Repository("a/b").NewUpload(t.Context(), "u")
	require.NoError(t, err)
	require.NoError(t, u.Append(strings.NewReader("bytes")))
	along, err := u.Reader()
	require.NoError(t, err)
	defer along.Close()
	require.NoError(t, u.Commit(t.Context(), digest.FromString("bytes")))
	text, err := io.ReadAll(along)
	require.NoError(t, err)
	assert.Equal(t, "bytes", string(text))
	_, err = u.Reader()
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, u.Release())
}
