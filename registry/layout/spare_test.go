package layout_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/layout"
)

func TestABlobThatIsThereIsNotWrittenAgain(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	d := push(t, s, "a/b", []byte("bytes"))
	used := s.Used()
	for name, tc := range map[string]struct {
		body io.Reader
		ok   bool
	}{
		"the same bytes are linked":                {strings.NewReader("bytes"), true},
		"other bytes are refused":                  {strings.NewReader("other"), false},
		"no bytes are refused":                     {strings.NewReader(""), false},
		"one who only knows the digest is refused": {strings.NewReader("byte"), false},
	} {
		t.Run(name, func(t *testing.T) {
			repo := "x/" + strings.ReplaceAll(name, " ", "-")
			u, err := s.NewUpload(repo)
			require.NoError(t, err)
			defer u.Release()
			u.Expect(d)
			require.NoError(t, u.Append(tc.body))
			err = u.Commit(d)
			if !tc.ok {
				require.ErrorIs(t, err, layout.ErrDigest)
				require.NoError(t, u.Cancel())
			} else {
				require.NoError(t, err)
			}
			_, err = s.StatBlob(repo, d)
			assert.Equal(t, tc.ok, err == nil)
			assert.Equal(t, used, s.Used(), "nothing was stored")
		})
	}
}

func TestAnUploadOfKnownBytesThatBreaksGoesOnFromItsStart(t *testing.T) {
	s := open(t, t.TempDir(), layout.Options{})
	d := push(t, s, "a/b", []byte("bytes"))
	u, err := s.NewUpload("c/d")
	require.NoError(t, err)
	defer u.Release()
	u.Expect(d)
	cut := errors.New("cut")
	require.ErrorIs(t, u.Append(io.MultiReader(strings.NewReader("by"), iotest.ErrReader(cut))), cut)
	assert.Zero(t, u.Size())
	require.NoError(t, u.Append(strings.NewReader("bytes")))
	require.NoError(t, u.Commit(d))
	_, err = s.StatBlob("c/d", d)
	require.NoError(t, err)
}

func TestAKnownBlobThatGoesAwayDuringItsUploadIsAskedForAgain(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	d := push(t, s, "a/b", []byte("bytes"))
	u, err := s.NewUpload("c/d")
	require.NoError(t, err)
	defer u.Release()
	u.Expect(d)
	require.NoError(t, u.Append(strings.NewReader("bytes")))
	require.NoError(t, os.Remove(blobFile(root, d)))
	require.ErrorContains(t, u.Commit(d), "push it again")
	require.NoError(t, u.Cancel())
	_, err = s.StatBlob("c/d", d)
	require.ErrorIs(t, err, layout.ErrNotFound)
	push(t, s, "c/d", []byte("bytes"))
}

func TestTheEmptyBlobAndAnUploadWithoutBytesOutliveARestart(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	empty := push(t, s, "a/b", nil)
	u, err := s.NewUpload("a/b")
	require.NoError(t, err)
	u.Release()

	s = open(t, root, layout.Options{})
	size, err := s.StatBlob("a/b", empty)
	require.NoError(t, err)
	assert.Zero(t, size)
	again, err := s.AcquireUpload("a/b", u.ID())
	require.NoError(t, err)
	defer again.Release()
	require.NoError(t, again.Append(strings.NewReader("x")))
	require.NoError(t, again.Commit(digest.FromString("x")))
}

func TestABlobThatWasDeletedFromARepositoryIsNotRememberedThere(t *testing.T) {
	s := open(t, t.TempDir(), layout.Options{})
	d := push(t, s, "a/b", []byte("bytes"))
	ok, err := s.Mount("a/b", "c/d", d)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, s.DeleteBlob("c/d", d))
	_, err = s.StatBlob("c/d", d)
	require.ErrorIs(t, err, layout.ErrNotFound)
	_, err = s.StatBlob("a/b", d)
	require.NoError(t, err)
	_, err = s.Collect(t.Context(), layout.CollectOptions{Grace: -1})
	require.NoError(t, err)
	_, err = s.StatBlob("a/b", d)
	require.ErrorIs(t, err, layout.ErrNotFound)
}
