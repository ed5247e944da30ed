package transfer_test

import (
	"fmt"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/transfer"
)

func TestKeychain(t *testing.T) {
	for _, key := range []string{"docker.io", "docker.io/acme", "docker.io/acme/os", "index.docker.io/v1",
		"https://index.docker.io/v1/", "registry-1.docker.io"} {
		accounts, err := credentials.Parse(fmt.Appendf(nil,
			`{"auths":{%q:{"auth":"aHViOnB3"},"quay.io":{"auth":"cXVheTpwdw=="},"broken.io":{"auth":"!"}}}`, key))
		require.NoError(t, err)
		auth, err := transfer.Keychain(accounts).Resolve(name.MustParseReference("docker.io/acme/os:1").Context())
		require.NoError(t, err)
		config, err := auth.Authorization()
		require.NoError(t, err)
		assert.Equal(t, "hub", config.Username, key)
		_, err = transfer.Keychain(accounts).Resolve(name.MustParseReference("broken.io/acme/os:1").Context())
		require.ErrorContains(t, err, "entry broken.io")
	}
	auth, err := transfer.Keychain(nil).Resolve(name.MustParseReference("a.example.com/bb").Context())
	require.NoError(t, err)
	assert.Equal(t, authn.Anonymous, auth)
}

func TestNewUpstream(t *testing.T) {
	for name, e := range map[string]transfer.Endpoint{
		"no registry":        {},
		"a layout":           {Reference: "oci:/srv/images"},
		"an upper-case path": {Reference: "registry.example.com/OS"},
		"no such auth file":  {Reference: "registry.example.com", AuthFile: "/nowhere/auth.json"},
	} {
		_, err := transfer.NewUpstream(e)
		require.Error(t, err, name)
	}
	_, err := transfer.NewUpstream(transfer.Endpoint{Reference: "registry.example.com:5000"})
	require.NoError(t, err)
}
