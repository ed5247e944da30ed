package trustfiles_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/nodesettings"
	"dayone.dev/dayone/rebase/daemon/mirrorfiles"
	"dayone.dev/dayone/rebase/daemon/trustfiles"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/registry/credentials"
)

func nobodys(string) bool { return false }

func controllerConfig(change func(*mcfgv1.ControllerConfigSpec)) *mcfgv1.ControllerConfig {
	c := &mcfgv1.ControllerConfig{}
	change(&c.Spec)
	return c
}

func read(t *testing.T, root, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(raw)
}

func write(t *testing.T, root, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
}

func TestCertificatesFollowTheCluster(t *testing.T) {
	root := t.TempDir()
	one, two := deploytest.NewAuthority(t).PEM, deploytest.NewAuthority(t).PEM
	c := controllerConfig(func(s *mcfgv1.ControllerConfigSpec) {
		s.KubeAPIServerServingCAData, s.CloudProviderCAData = one, one
		s.ImageRegistryBundleData = []mcfgv1.ImageRegistryBundle{{File: "image-registry.svc..5000", Data: one},
			{File: "mirror.example.com", Data: one}}
		s.ImageRegistryBundleUserData = []mcfgv1.ImageRegistryBundle{{File: "mirror.example.com", Data: two}}
	})
	changed, err := trustfiles.Of(c).Apply(root, nobodys)
	require.NoError(t, err)
	assert.Equal(t, []string{"/etc/docker/certs.d/image-registry.svc:5000/ca.crt",
		"/etc/docker/certs.d/mirror.example.com/ca.crt", nodedisk.KubeletCA, nodedisk.CloudCA}, changed)
	assert.Equal(t, string(two), read(t, root, "/etc/docker/certs.d/mirror.example.com/ca.crt"), "the user's counts")
	info, err := os.Stat(filepath.Join(root, nodedisk.KubeletCA))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o644), info.Mode())
	changed, err = trustfiles.Of(c).Apply(root, nobodys)
	require.NoError(t, err)
	assert.Empty(t, changed, "nothing is written again")

	c.Spec.KubeAPIServerServingCAData = append(append([]byte{}, one...), two...)
	c.Spec.CloudProviderCAData = nil
	c.Spec.ImageRegistryBundleData, c.Spec.ImageRegistryBundleUserData = c.Spec.ImageRegistryBundleData[1:], nil
	_, err = trustfiles.Of(c).Apply(root, nobodys)
	require.NoError(t, err)
	assert.Equal(t, string(one)+string(two), read(t, root, nodedisk.KubeletCA), "rotated")
	assert.NoDirExists(t, filepath.Join(root, "/etc/docker/certs.d/image-registry.svc:5000"),
		"what the cluster no longer trusts the node does not either")
	assert.FileExists(t, filepath.Join(root, nodedisk.CloudCA), "without another one it stays")
	owned, err := trustfiles.Owned(root)
	require.NoError(t, err)
	assert.Equal(t, []string{"/etc/docker/certs.d/mirror.example.com/ca.crt", nodedisk.KubeletCA}, owned)
}

func TestConfigsOwnRegistryCertificatesStay(t *testing.T) {
	root := t.TempDir()
	const at = "/etc/docker/certs.d/r.example.com/ca.crt"
	write(t, root, at, "the config's")
	c := controllerConfig(func(s *mcfgv1.ControllerConfigSpec) {
		s.KubeAPIServerServingCAData = deploytest.NewAuthority(t).PEM
		s.ImageRegistryBundleData = []mcfgv1.ImageRegistryBundle{{File: "r.example.com", Data: deploytest.NewAuthority(t).
			PEM}}
	})
	_, err := trustfiles.Of(c).Apply(root, func(p string) bool { return p == at || p == nodedisk.KubeletCA })
	require.NoError(t, err)
	assert.Equal(t, "the config's", read(t, root, at))
	assert.Equal(t, string(c.Spec.KubeAPIServerServingCAData), read(t, root, nodedisk.KubeletCA),
		"at this path the config has no say")
}

func TestWhatIsNoCertificateReplacesNone(t *testing.T) {
	c := controllerConfig(func(s *mcfgv1.ControllerConfigSpec) {
		s.KubeAPIServerServingCAData = []byte("# a remark\n")
		s.ImageRegistryBundleData = []mcfgv1.ImageRegistryBundle{{File: "../../../etc/passwd",
			Data: deploytest.NewAuthority(t).PEM}, {File: "r.example.com", Data: []byte("-----BEGIN CERTIFICATE-----\n")}}
	})
	s := trustfiles.Of(c)
	assert.Empty(t, s.Certificates)
	assert.Len(t, s.Refused, 3)
	c.Annotations = map[string]string{manifests.AnnotationStandalone: ""}
	c.Spec.ImageRegistryBundleData = nil
	assert.Empty(t, trustfiles.Of(c).Refused, "there the required fields hold remarks")
}

func TestPullSecretsAreMergedInTheOrderOfThePreflight(t *testing.T) {
	root := t.TempDir()
	set := func(secret string) trustfiles.Set { return trustfiles.Set{PullSecret: []byte(secret)} }
	apply := func(s trustfiles.Set) []string {
		changed, err := s.Apply(root, nobodys)
		require.NoError(t, err)
		return changed
	}
	credentials := func() (out map[string]string) {
		var f struct {
			Auths map[string]struct{ Auth string }
		}
		require.NoError(t, json.Unmarshal([]byte(read(t, root, trustfiles.PullAuthPath)), &f))
		out = map[string]string{}
		for host, c := range f.Auths {
			out[host] = c.Auth
		}
		return out
	}
	assert.Empty(t, apply(set("")), "a node without any is left alone")
	write(t, root, nodesettings.PullSecretPath, `{"auths":{"installed":{"auth":"i"},"both":{"auth":"i"}}}`)
	apply(set(""))
	assert.Equal(t, map[string]string{"installed": "i", "both": "i"}, credentials(), "install-config.yaml's")
	require.NoError(t, os.Remove(filepath.Join(root, nodesettings.PullSecretPath)))
	apply(set(""))
	assert.NoFileExists(t, filepath.Join(root, trustfiles.PullAuthPath))
	write(t, root, "/var/lib/kubelet/config.json", `{"auths":{"quay.io":{"auth":"pull"},"both":{"auth":"pull"}}}`)
	write(t, root, firstboot.AuthPath, `{"auths":{"boot:5000":{"auth":"own"},"both":{"auth":"own"}}}`)
	assert.Equal(t, []string{trustfiles.PullAuthPath},
		apply(set(`{"auths":{"registry.svc:5000":{"auth":"t1"},"quay.io":{"auth":"t1"}}}`)))
	assert.Equal(t, map[string]string{"registry.svc:5000": "t1", "quay.io": "pull", "both": "own", "boot:5000": "own"},
		credentials())
	info, err := os.Stat(filepath.Join(root, trustfiles.PullAuthPath))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())

	apply(set(`{"registry.svc:5000":{"auth":"t2"}}`)) // rotated, in the old form
	_, err = firstboot.EndTrust(root, "boot:5000")
	require.NoError(t, err)
	apply(set(`{"registry.svc:5000":{"auth":"t2"}}`))
	assert.Equal(t, map[string]string{"registry.svc:5000": "t2", "quay.io": "pull", "both": "own"}, credentials(),
		"what ended does not come back")

	require.NoError(t, os.Remove(filepath.Join(root, "/var/lib/kubelet/config.json")))
	apply(set(""))
	assert.NoFileExists(t, filepath.Join(root, trustfiles.PullAuthPath), "the node's own file counts again")

	write(t, root, trustfiles.PullAuthPath, `{"auths":{"theirs":{"auth":"x"}}}`)
	apply(set(`{"auths":{"registry.svc:5000":{"auth":"t3"}}}`))
	assert.Equal(t, map[string]string{"theirs": "x", "registry.svc:5000": "t3"}, credentials(),
		"somebody else's file only grows")
	apply(set(""))
	assert.FileExists(t, filepath.Join(root, trustfiles.PullAuthPath))
	_, err = set(`{"auths": s3cret-canary`).Apply(root, nobodys)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "canary")
}

// The account of the node's forwarder is among the credentials for pulls as long as the forwarder serves.
func TestForwardersAccountIsForPulls(t *testing.T) {
	root := t.TempDir()
	const address = "127.0.0.1:22627"
	auth := filepath.Join(root, trustfiles.PullAuthPath)
	apply := func() {
		_, err := trustfiles.Of(&mcfgv1.ControllerConfig{}).Apply(root, nobodys)
		require.NoError(t, err)
	}
	account := mirrorfiles.Account(root, address)
	_, err := mirrorfiles.Apply(root, address, mirrorfiles.Mirror{Registry: "r.example.com", CA: "pem", Account: account})
	require.NoError(t, err)
	write(t, root, firstboot.AuthPath, `{"auths":{"own.example.com":{"auth":"bzpv"}}}`)
	apply()
	have, err := credentials.Read(auth)
	require.NoError(t, err)
	got, found, err := have.Find(address)
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, account, got)
	_, found, err = have.Find("own.example.com")
	require.NoError(t, err)
	assert.True(t, found, "the node's own stays")
	_, err = mirrorfiles.Apply(root, address, mirrorfiles.Mirror{})
	require.NoError(t, err)
	apply()
	assert.NoFileExists(t, auth)
}

// Before any API has answered since the boot, pulls get into the node's forwarder; what others put there stays.
func TestForwarderIsAdmittedWithoutAnAPI(t *testing.T) {
	const address = "127.0.0.1:22627"
	for _, c := range []struct{ name, have, own, stays string }{
		{name: "nothing but the node's own", own: `{"auths":{"own.example.com":{"auth":"bzpv"}}}`, stays: "own.example.com"},
		{name: "a file that counts", have: `{"auths":{"other.example.com":{"auth":"bzpv"}}}`, stays: "other.example.com"},
		{name: "what an agent merged before it was started anew",
			have:  `{"auths":{"image-registry.svc":{"auth":"bzpv"}},"dayone.dev/merged":"x"}`,
			stays: "image-registry.svc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			account := mirrorfiles.Account(root, address)
			_, err := mirrorfiles.Apply(root, address, mirrorfiles.Mirror{Registry: "r.example.com", CA: "pem",
				Account: account})
			require.NoError(t, err)
			for path, content := range map[string]string{firstboot.AuthPath: c.own, trustfiles.PullAuthPath: c.have} {
				if content != "" {
					write(t, root, path, content)
				}
			}
			for range 2 {
				require.NoError(t, trustfiles.AdmitForwarder(root))
				have, err := credentials.Read(filepath.Join(root, trustfiles.PullAuthPath))
				require.NoError(t, err)
				got, found, err := have.Find(address)
				require.NoError(t, err)
				assert.True(t, found)
				assert.Equal(t, account, got)
				_, found, err = have.Find(c.stays)
				require.NoError(t, err)
				assert.True(t, found)
			}
		})
	}
}
