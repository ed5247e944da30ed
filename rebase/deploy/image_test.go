package deploy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseImage(t *testing.T) {
	const digest = "@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	image, err := ParseImage("docker://192.168.77.1:5000/ocp/os" + digest)
	require.NoError(t, err)
	assert.Equal(t, "192.168.77.1:5000/ocp/os", image.Repository)
	assert.Equal(t, "192.168.77.1:5000/ocp/os"+digest, image.String())
	for _, bad := range []string{"", "host/os", "host/os:tag", "host/os:tag" + digest, "host/os@sha256:short", "host/OS" +
		digest, "-"} {
		_, err := ParseImage(bad)
		require.Error(t, err, bad)
	}
}
