package certs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/certs"
)

func TestMadeAt(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 11, 28, 9, 30, 0, 0, time.UTC)
	_, err := certs.LoadOrCreateCA(dir, certs.CAOptions{Now: func() time.Time { return at }})
	require.NoError(t, err)
	got, err := certs.MadeAt(filepath.Join(dir, certs.CACertFile))
	require.NoError(t, err)
	assert.Equal(t, at, got.UTC())

	bad := filepath.Join(dir, "bad")
	for _, content := range []string{"", "text", "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n"} {
		require.NoError(t, os.WriteFile(bad, []byte(content), 0o600))
		_, err = certs.MadeAt(bad)
		require.ErrorContains(t, err, bad, content)
	}
	_, err = certs.MadeAt(filepath.Join(dir, "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}
