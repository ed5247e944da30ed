package e2e_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/e2e"
)

// TestMastersTakeSignedImagesOnly is a Day 1 by the defaults: nodes require a signature by the key that prepare made.
func TestMastersTakeSignedImagesOnly(t *testing.T) {
	o := options(t)
	o.Masters = 1
	r, err := e2e.Prepare(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	require.NoError(t, r.MakeMasters(t.Context()))
	require.NoError(t, r.StartBootstrap(t.Context()))
	require.NoError(t, r.BootMasters(t.Context()))
	n := r.Masters[0]
	image, err := n.Output(t.Context(), "cat", "/etc/machine-config-daemon/currentimage")
	require.NoError(t, err)
	policy, err := n.Output(t.Context(), "cat", "/etc/containers/policy.json")
	require.NoError(t, err)
	assert.Contains(t, policy, "sigstoreSigned")
	repository, _, _ := strings.Cut(image, "@")
	assert.Contains(t, policy, `"`+repository+`"`)
	diff, err := n.Output(t.Context(), "ostree", "admin", "config-diff")
	require.NoError(t, err)
	assert.NotContains(t, diff, "policy.json", "the image has it, too: a later one brings other keys")
	assert.NotContains(t, diff, "sigstore-registries.yaml")
	// The same image again, by the policy that the image brought: the registry's mirror has its signature.
	_, err = n.Output(t.Context(), "/usr/local/bin/dayone-daemon", "stage", image)
	require.NoError(t, err)
	_, err = n.Output(t.Context(), "sed", "-i", "s/LS0tLS1CRUdJTi[A-Za-z0-9+=/]*/"+strangers+"/",
		"/etc/containers/policy.json")
	require.NoError(t, err)
	said, err := n.Exec(t.Context(), "/usr/local/bin/dayone-daemon", "stage", image)
	require.NoError(t, err)
	assert.Contains(t, said.Stderr, "does not allow it from 192.168.77.1:5000")
}

// strangers is somebody's public key, as policy.json has it.
const strangers = "LS0tLS1CRUdJTiBQVUJMSUMgS0VZLS0tLS0KTUZrd0V3WUhLb1pJemowQ0FRWUlLb1pJemowREFRY0RRZ0FF" +
	"blROc3ZYTDkzcGFRY0dlSHJ5WGtEWjl6WGtsdAp5VldzTEtLV3g4aFovZFB3U0FYeWpaTmNEaHVLU1g2azExVEJWQkszZmVCWE9B" +
	"b1ZTNUlRNFVMVlh3PT0KLS0tLS1FTkQgUFVCTElDIEtFWS0tLS0tCg=="
