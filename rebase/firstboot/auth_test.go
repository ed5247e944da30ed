package firstboot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests/nodesettings"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/registry/poolaccounts"
)

func TestEndTrustLeavesTheFinalRegistry(t *testing.T) {
	root := t.TempDir()
	put := func(path, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(content), 0o644))
	}
	put(MirrorPath, "x")
	put(attachmentsPath, "x")
	put(PullAuthPath, `{"auths":{"192.168.77.1:5000":{"auth":"a"}}}`)
	put(certsDir+"/192.168.77.1:5000/ca.crt", "x")
	put(certsDir+"/registry.example.com/ca.crt", "x")
	put(AuthPath, `{"auths":{"192.168.77.1:5000":{"auth":"a"},"registry.example.com":{"auth":"b"}}}`)
	changed, err := EndTrust(root, "192.168.77.1:5000")
	require.NoError(t, err)
	assert.Equal(t, []string{MirrorPath, attachmentsPath, PullAuthPath, certsDir + "/192.168.77.1:5000/ca.crt", certsDir +
		"/192.168.77.1:5000", AuthPath}, changed)
	assert.FileExists(t, filepath.Join(root, certsDir, "registry.example.com/ca.crt"))
	raw, err := os.ReadFile(filepath.Join(root, AuthPath))
	require.NoError(t, err)
	assert.JSONEq(t, `{"auths":{"registry.example.com":{"auth":"b"}}}`, string(raw))
	info, err := os.Stat(filepath.Join(root, AuthPath))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	changed, err = EndTrust(root, "192.168.77.1:5000")
	require.NoError(t, err)
	assert.Empty(t, changed, "twice is once")
}

func TestAddAuthReachesEveryFileThatIsRead(t *testing.T) {
	root := t.TempDir()
	add := []byte(`{"auths":{"new":{"auth":"n"}}}`)
	changed, err := AddAuth(root, add)
	require.NoError(t, err)
	assert.Equal(t, []string{AuthPath}, changed, "made where there was none")
	changed, err = AddAuth(root, add)
	require.NoError(t, err)
	assert.Empty(t, changed, "twice is once")

	kubelet := filepath.Join(root, "var/lib/kubelet/config.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(kubelet), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "run/ostree"), 0o755))
	require.NoError(t, os.WriteFile(kubelet, []byte(`{"auths":{"old":{"auth":"o"}}}`), 0o644))
	link := filepath.Join(root, writableAuth[0])
	require.NoError(t, os.Symlink(kubelet, link))
	changed, err = AddAuth(root, add)
	require.NoError(t, err)
	assert.Equal(t, []string{writableAuth[0]}, changed)
	raw, err := os.ReadFile(kubelet)
	require.NoError(t, err)
	assert.JSONEq(t, `{"auths":{"old":{"auth":"o"},"new":{"auth":"n"}}}`, string(raw))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSymlink, "the link stays")
	info, err = os.Stat(kubelet)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode(), "secrets are nobody else's")
	_, err = AddAuth(root, []byte("s3cret-canary"))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "canary")
}

// TestFirstBootPullsWithTheClustersPullSecret: a node that joins when the bootstrap host is gone has no other, but for
// its account at the registries of the control plane.
func TestFirstBootPullsWithTheClustersPullSecret(t *testing.T) {
	root := t.TempDir()
	put := func(path, text string) {
		require.NoError(t, nodedisk.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
	}
	run := func() string {
		raw, err := os.ReadFile(filepath.Join(root, writableAuth[0]))
		require.NoError(t, err)
		return string(raw)
	}
	require.NoError(t, offerClusterAuth(root))
	assert.NoFileExists(t, filepath.Join(root, writableAuth[0]), "no config brings a pull secret")

	put(nodesettings.PullSecretPath, `{"auths":{"final":{"auth":"f"},"boot":{"auth":"f"}}}`)
	put(AuthPath, `{"auths":{"boot":{"auth":"b"}}}`)
	require.NoError(t, offerClusterAuth(root))
	want := `{"auths":{"final":{"auth":"f"},"boot":{"auth":"b"}},"dayone.dev/merged":"by dayone-daemon firstboot"}`
	assert.JSONEq(t, want, run())
	require.NoError(t, offerClusterAuth(root))
	assert.JSONEq(t, want, run(), "twice is once")

	put(writableAuth[0], `{"auths":{"theirs":{"auth":"t"}}}`)
	require.NoError(t, offerClusterAuth(root))
	assert.JSONEq(t, `{"auths":{"theirs":{"auth":"t"},"final":{"auth":"f"},"boot":{"auth":"f"}}}`, run())

	put(poolaccounts.AuthPath, `{"auths":{"own":{"auth":"o"},"boot":{"auth":"o"}}}`)
	require.NoError(t, offerClusterAuth(root))
	assert.JSONEq(t, `{"auths":{"theirs":{"auth":"t"},"final":{"auth":"f"},"boot":{"auth":"o"},"own":{"auth":"o"}}}`,
		run(), "the node's account counts before all")
	require.NoError(t, os.Remove(filepath.Join(root, writableAuth[0])))
	require.NoError(t, os.Remove(filepath.Join(root, nodesettings.PullSecretPath)))
	require.NoError(t, offerClusterAuth(root))
	assert.JSONEq(t, `{"auths":{"boot":{"auth":"o"},"own":{"auth":"o"}},"dayone.dev/merged":"by dayone-daemon firstboot"}`,
		run(), "an installation without a pull secret")

	for _, path := range []string{nodesettings.PullSecretPath, poolaccounts.AuthPath} {
		put(path, "s3cret-canary")
		err := offerClusterAuth(root)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "canary")
		put(path, "{}")
	}
}

func TestAuthFileIsTheImagesAgainWhenNothingInItIsTheNodes(t *testing.T) {
	const image = `{ "auths" : {"a.example.com": {"auth": "x"}} }`
	add := []byte(`{"auths":{"192.168.77.1:5000":{"auth":"a"}}}`)
	for _, c := range []struct {
		name                      string
		etc, usrEtc, vendor, want string
	}{
		{"made for the bootstrap registry alone", "", "", "", ""},
		{"begun with the vendor's", "", "", image, ""},
		{"the image's, merged into", image, image, "", image},
		{"the image's, and the admin added to it", `{"auths":{"b.example.com":{"auth":"y"}}}`, image, "",
			"\"b.example.com\""},
		{"the admin's, where the image has none", image, "", "", "\"a.example.com\""},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for _, c := range []struct {
				name string
				text string
			}{{AuthPath, c.etc}, {"/usr" + AuthPath, c.usrEtc}, {vendorAuth, c.vendor}} {
				if c.text != "" {
					require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, c.name)), 0o755))
					require.NoError(t, os.WriteFile(filepath.Join(root, c.name), []byte(c.text), 0o640))
				}
			}
			_, err := AddAuth(root, add)
			require.NoError(t, err)
			merged, err := os.ReadFile(filepath.Join(root, AuthPath))
			require.NoError(t, err)
			assert.Contains(t, string(merged), "192.168.77.1:5000")
			if c.etc+c.vendor != "" {
				assert.Contains(t, string(merged), ".example.com", "what was read before is read now")
			}
			_, err = EndTrust(root, "192.168.77.1:5000")
			require.NoError(t, err)
			if c.want == "" {
				assert.NoFileExists(t, filepath.Join(root, AuthPath))
				return
			}
			raw, err := os.ReadFile(filepath.Join(root, AuthPath))
			require.NoError(t, err)
			assert.Contains(t, string(raw), c.want)
			assert.NotContains(t, string(raw), "192.168.77.1")
			if c.want == image {
				info, err := os.Stat(filepath.Join(root, AuthPath))
				require.NoError(t, err)
				assert.Equal(t, os.FileMode(0o640), info.Mode(), "mode and bytes, so that ostree sees no change")
			}
		})
	}
}
