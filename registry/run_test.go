package registry_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"dayone.dev/dayone/registry"
)

// TestFilesThatChangeDuringTheStart: what is written after the files were read and before the server looks for changes
// comes into force, too, and the server says that it works by files only when it does.
func TestFilesThatChangeDuringTheStart(t *testing.T) {
	dir := t.TempDir()
	own, more := filepath.Join(dir, "users"), filepath.Join(dir, "more")
	line := func(name string) []byte {
		hash, err := bcrypt.GenerateFromPassword([]byte("p"), bcrypt.MinCost)
		require.NoError(t, err)
		return []byte(name + ":" + string(hash) + ":pull\n")
	}
	before, after := line("before"), line("after")
	require.NoError(t, os.WriteFile(own, before, 0o600))
	accepted, works := make(chan string, 8), make(chan string, 8)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	o := registry.RunOptions{UsersFile: own, MoreUsersFile: more,
		Options:  registry.Options{Root: filepath.Join(dir, "root"), Listen: "127.0.0.1:0"},
		Accepted: func(content []byte) { accepted <- string(content) },
		Reading: func() func() {
			raw, err := os.ReadFile(own)
			assert.NoError(t, err)
			return func() { works <- string(raw) }
		},
		Started: func(string) {
			assert.NoError(t, os.WriteFile(more, line("more"), 0o600))
			assert.NoError(t, os.WriteFile(own, after, 0o600))
		}}
	go func() { ended <- registry.Run(ctx, o) }()
	assert.Empty(t, next(t, accepted), "what was read first")
	assert.Contains(t, next(t, accepted), "more:")
	assert.Equal(t, string(after), next(t, works), "it never says that it works by the files before")
	cancel()
	require.NoError(t, <-ended)
}

func next(t *testing.T, from chan string) string {
	t.Helper()
	select {
	case text := <-from:
		return text
	case <-time.After(time.Minute):
		require.Fail(t, "nothing comes")
		return ""
	}
}
