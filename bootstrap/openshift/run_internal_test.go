package openshift

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMisplaced(t *testing.T) {
	root := t.TempDir()
	assert.Contains(t, misplaced(root), "dayone ignition")
	require.NoError(t, os.MkdirAll(filepath.Join(root, installerManifests), 0o755))
	assert.Empty(t, misplaced(root))
}
