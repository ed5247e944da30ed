package build_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/registry/registrytest"
)

// TestOstreeBase: in such an image all files and links are hard links to objects. Configs find its
// links nevertheless.
func TestOstreeBase(t *testing.T) {
	const wanted, masked = "/etc/systemd/system/multi-user.target.wants/stock.service",
		"/etc/systemd/system/masked.service"
	reg := registrytest.Start(t)
	from := buildtest.Push(t, reg, buildtest.Base{
		Encapsulated: true,
		Files: map[string]string{
			"/usr/lib/systemd/system/stock.service": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
		},
		Links: map[string]string{wanted: "/usr/lib/systemd/system/stock.service", masked: "/dev/null"},
	})
	r := buildtest.Request(t, reg, from, "")
	r.Config.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},
		"storage":{"files":[{"path":"/usr/local/bin/mine","mode":493,"contents":{"source":"data:,x"}}]},
		"systemd":{"units":[{"name":"stock.service","enabled":false},{"name":"masked.service","mask":false},{"name":"vendor.service","enabled":true}]}}`)
	result, err := builder(t).Build(t.Context(), r)
	require.NoError(t, err)

	placed := map[string]configlayer.Placement{}
	for _, p := range result.Placements {
		placed[p.Path] = p
	}
	assert.Equal(t, "stock.service is not enabled in the config", placed[wanted].Reason)
	assert.Equal(t, "mask: false", placed[masked].Reason)
	assert.Equal(t, "first-boot", placed["/var/usrlocal/bin/mine"].Where)
	tree := treeOf(t, reg, result.Reference)
	for _, gone := range []string{wanted, masked} {
		_, ok := tree.Lookup(gone)
		assert.False(t, ok, gone)
	}
	local, _ := tree.Lookup("/usr/local")
	assert.Equal(t, basetree.Entry{Kind: basetree.Symlink, Link: "../var/usrlocal", Mode: 0o777}, local)
	enabled, _ := tree.Lookup("/etc/systemd/system/multi-user.target.wants/vendor.service")
	assert.Equal(t, "/usr/lib/systemd/system/vendor.service", enabled.Link, "the vendor's unit is found by its content")
}
