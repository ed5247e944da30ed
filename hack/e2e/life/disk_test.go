package life

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEnoughDisk(t *testing.T) {
	require.NoError(t, enough("/cache", 250*gb, 28.3*gb, taken))
	err := enough("/cache", 250*gb, 24*gb, taken)
	assert.ErrorContains(t, err, "/cache has 24.0 GB free of 250, and this needs 28.2")
}
