package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/transfer"
)

// TestThePullSecretIsFollowed lets the file come, change, break and go.
func TestThePullSecretIsFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pull-secret")
	log := logrus.New()
	log.SetOutput(t.Output())
	var now transfer.Keychain
	var raw []byte
	changes := 0
	files := []string{file, filepath.Join(t.TempDir(), "none")}
	p := &pullSecret{files: files, log: logrus.NewEntry(log), use: func(a transfer.Keychain, b []byte) {
		now, raw, changes = a, b,
			changes+1
	}}
	const first, second = `{"auths":{"a.example.com":{"auth":"eDp5"}}}`, `{"auths":{"b.example.com":{"auth":"eDp5"}}}`
	for _, step := range []struct {
		name, content string
		changes       int
		has           string
		fails         bool
	}{
		{name: "not there yet"},
		{name: "it comes", content: first, changes: 1, has: "a.example.com"},
		{name: "nothing new", content: first, changes: 1, has: "a.example.com"},
		{name: "it changes", content: second, changes: 2, has: "b.example.com"},
		{name: "no pull secret", content: "{", changes: 2, has: "b.example.com", fails: true},
		{name: "it goes", changes: 3},
	} {
		require.NoError(t, os.RemoveAll(file))
		if step.content != "" {
			require.NoError(t, os.WriteFile(file, []byte(step.content), 0o600))
		}
		assert.Equal(t, step.fails, p.refresh() != nil, step.name)
		assert.Equal(t, step.changes, changes, step.name)
		if step.has != "" {
			assert.Contains(t, now, step.has, step.name)
			assert.Contains(t, string(raw), step.has, step.name)
		} else {
			assert.Empty(t, now, step.name)
			assert.Empty(t, raw, step.name)
		}
	}
}

// TestTheFirstPullSecretCounts: the account that the controller makes for new nodes counts before an older one.
func TestTheFirstPullSecretCounts(t *testing.T) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "new-nodes"), filepath.Join(dir, "global")}
	require.NoError(t, os.WriteFile(files[0], []byte(`{"auths":{"r.example.com":{"auth":"bmV3Om4="}}}`), 0o600))
	_, raw, err := readAccounts(files)
	require.NoError(t, err)
	assert.Contains(t, string(raw), "bmV3Om4=", "the other is not there")
	require.NoError(t, os.WriteFile(files[1],
		[]byte(`{"auths":{"a.example.com":{"auth":"eDp5"},"r.example.com":{"auth":"b2xkOm8="}}}`), 0o600))
	known, raw, err := readAccounts(files)
	require.NoError(t, err)
	assert.JSONEq(t, `{"auths":{"a.example.com":{"auth":"eDp5"},"r.example.com":{"auth":"bmV3Om4="}}}`, string(raw))
	assert.Contains(t, known, "a.example.com")
}
