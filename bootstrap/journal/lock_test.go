package journal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLockOneRunPerStateDirectory(t *testing.T) {
	dir := t.TempDir()
	running, err := Running(dir)
	require.NoError(t, err)
	assert.False(t, running, "nothing has run here")

	unlock, err := Lock(dir)
	require.NoError(t, err)
	for range 2 {
		running, err = Running(dir)
		require.NoError(t, err)
		assert.True(t, running)
	}
	_, err = Lock(dir)
	require.ErrorContains(t, err, "another dayone bootstrap")

	unlock()
	running, err = Running(dir)
	require.NoError(t, err)
	assert.False(t, running)
	again, err := Lock(dir)
	require.NoError(t, err, "looking at the lock does not take it")
	again()
}

func TestLockOfNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Lock(file)
	require.ErrorContains(t, err, "open state lock")
	_, err = Running(file)
	require.ErrorContains(t, err, "open state lock")
}
