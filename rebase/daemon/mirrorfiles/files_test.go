package mirrorfiles_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/pkg/sysregistriesv2"
	"github.com/containers/image/v5/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/daemon/mirrorfiles"
)

const (
	address  = "127.0.0.1:22627"
	registry = "api-int.c.example.com:22626"
	image    = registry + "/ocp/worker-os@sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

// places are where containers/image looks for an image.
func places(t *testing.T, root string) (out []string) {
	t.Helper()
	sysregistriesv2.InvalidateCache()
	sys := &types.SystemContext{RootForImplicitAbsolutePaths: root}
	r, err := sysregistriesv2.FindRegistry(sys, registry+"/ocp/worker-os")
	require.NoError(t, err)
	if r == nil {
		return nil
	}
	named, err := reference.ParseNamed(image)
	require.NoError(t, err)
	found, err := r.PullSourcesFromReference(named)
	require.NoError(t, err)
	for _, p := range found {
		assert.False(t, p.Endpoint.Insecure)
		out = append(out, reference.Domain(p.Reference))
	}
	return out
}

func TestPullsGoToTheForwarder(t *testing.T) {
	root := t.TempDir()
	m := mirrorfiles.Mirror{Registry: registry, CA: "pem", Account: mirrorfiles.Account(root, address)}
	// What a node without its agent has.
	first := filepath.Join(root, mirrorfiles.DropInPath)
	require.NoError(t, os.MkdirAll(filepath.Dir(first), 0o755))
	require.NoError(t, os.WriteFile(first, []byte("[[registry]]\nlocation = \""+registry+"\"\n[[registry.mirror]]\n"+
		"location = \"192.168.77.10:22626\"\n[[registry.mirror]]\nlocation = \"192.168.77.11:22626\"\n"), 0o644))
	assert.Equal(t, []string{"192.168.77.10:22626", "192.168.77.11:22626", registry}, places(t, root))
	changed, err := mirrorfiles.Apply(root, address, m)
	require.NoError(t, err)
	assert.Len(t, changed, 4)
	assert.Equal(t, mirrorfiles.DropInPath, changed[3], "what pulls follow comes last")
	assert.Equal(t, []string{address, registry}, places(t, root), "one mirror")
	changed, err = mirrorfiles.Apply(root, address, m)
	require.NoError(t, err)
	assert.Empty(t, changed)
	m.CA = "other pem"
	changed, err = mirrorfiles.Apply(root, address, m)
	require.NoError(t, err)
	assert.Equal(t, []string{"/etc/containers/certs.d/" + address + "/ca.crt"}, changed,
		"a new certificate is no new mirror")
	for _, path := range changed {
		fi, err := os.Stat(filepath.Join(root, path))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o644), fi.Mode().Perm(), "rpm-ostree and bootc read it as nobody")
	}
	changed, err = mirrorfiles.Apply(root, address, mirrorfiles.Mirror{})
	require.NoError(t, err)
	assert.Equal(t, mirrorfiles.DropInPath, changed[0], "what pulls follow goes first")
	assert.Empty(t, places(t, root))
	changed, err = mirrorfiles.Apply(root, address, mirrorfiles.Mirror{})
	require.NoError(t, err)
	assert.Empty(t, changed)
}

func TestAccount(t *testing.T) {
	root := t.TempDir()
	one := mirrorfiles.Account(root, address)
	assert.GreaterOrEqual(t, len(one.Password), 26, "128 bits")
	assert.NotEqual(t, one, mirrorfiles.Account(root, address))
	_, err := mirrorfiles.Apply(root, address, mirrorfiles.Mirror{Registry: registry, CA: "pem", Account: one})
	require.NoError(t, err)
	at := filepath.Join(root, mirrorfiles.AuthPath)
	fi, err := os.Stat(at)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), fi.Mode().Perm())
	assert.Equal(t, one, mirrorfiles.Account(root, address), "a restart does not end the pulls of the others")
	for _, content := range []string{"", "{", `{"auths":{"127.0.0.1:22627":{}}}`} {
		require.NoError(t, os.WriteFile(at, []byte(content), 0o600))
		other := mirrorfiles.Account(root, address)
		assert.NotEqual(t, one.Password, other.Password)
		assert.NotEmpty(t, other.Password)
	}
}
