package openshift_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

// A release's image that a policy refuses is built from once it is signed, although it was copied before, and although
// only the second of its mirrors has it.
func TestReleaseBaseThatIsSignedLater(t *testing.T) {
	const release, policyFile = "quay.example.com/ocp/base-os", "base-policy.json"
	n := newNode(t, func(c *installconfig.Config) {
		onePool(c)
		c.Signing.BaseImagePolicy = policyFile
	})
	vendor, err := sign.LoadOrCreate(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(n.order.Dir, policyFile), fmt.Appendf(nil,
		`{"default":[{"type":"reject"}],"transports":{"docker":{%q:[{"type":"sigstoreSigned","keyData":%q,`+
			`"signedIdentity":{"type":"matchRepository"}}]}}}`, release,
		base64.StdEncoding.EncodeToString(vendor.Public)), 0o600))
	repository, digest, _ := strings.Cut(n.order.Base, "@")
	n.order.Base = release + "@" + digest
	empty := registrytest.Start(t)
	n.put("/etc/containers/registries.conf", fmt.Appendf(nil, "[[registry]]\nlocation = %q\n"+
		"[[registry.mirror]]\nlocation = %q\n[[registry.mirror]]\nlocation = %q\n",
		release, empty.Addr+"/ocp/base-os", repository))
	n.bootkube() // MCO's objects name the release's image

	require.NoError(t, n.mco())
	end := n.run("render-second", "ran")
	require.ErrorContains(t, end.Err, "exit status")
	assert.Contains(t, end.Log, "no signature exists")

	_, err = vendor.Sign(t.Context(), sign.Image{Repository: release, Endpoint: transfer.Endpoint{
		Reference: "docker://" + repository + "@" + digest, CAFile: n.release.CAFile, AuthFile: n.release.PushAuthFile}})
	require.NoError(t, err)
	end = n.run("render-second", "ran")
	require.ErrorContains(t, end.Err, "killed", end.Log)
}
