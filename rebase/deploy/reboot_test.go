package deploy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The programs are scripts in a PATH of their own: nothing else may be found.
func TestAShutdownThatEndsTheProgramThatAskedForItIsNoFailure(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails bool
	}{{"kill -TERM $$", false}, {"kill -KILL $$", true}, {"exit 1", true},
		{"exit 0", false}} {
		dir := t.TempDir()
		for _, name := range []string{"systemctl", "reboot"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+c.name+"\n"), 0o755))
		}
		t.Setenv("PATH", dir)
		err := rebootSystem(t.Context())
		assert.Equal(t, c.fails, err != nil, "%s: %v", c.name, err)
	}
}
