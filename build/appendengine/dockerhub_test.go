package appendengine

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKeychainKnowsDockerHubByEachOfItsNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth.json")
	for _, key := range []string{"docker.io", "docker.io/acme", "docker.io/acme/os", "index.docker.io/v1",
		"https://index.docker.io/v1/", "registry-1.docker.io"} {
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil,
			`{"auths":{%q:{"auth":"aHViOnB3"},"quay.io":{"auth":"cXVheTpwdw=="}}}`, key), 0o600))
		keys, err := readKeys(file)
		require.NoError(t, err)
		auth, err := keys.Resolve(name.MustParseReference("docker.io/acme/os:1").Context())
		require.NoError(t, err)
		config, err := auth.Authorization()
		require.NoError(t, err)
		assert.Equal(t, "hub", config.Username, key)
	}
}
