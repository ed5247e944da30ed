package preflight_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/assets/cluster"
)

func TestSigningKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	load := func() (preflight.Signing, error) {
		in, err := preflight.LoadLayering(dir, "linux/amd64")
		if err != nil {
			return preflight.Signing{}, err
		}
		return in.Signing, nil
	}
	before, err := load()
	require.NoError(t, err, "prepare has not run")
	assert.Empty(t, before)

	made, err := preflight.PrepareSigning(dir, installconfig.Signing{})
	require.NoError(t, err)
	s, err := load()
	require.NoError(t, err)
	assert.Equal(t, []sign.PublicKey{made}, s.Public)
	assert.Contains(t, string(s.Key), "ENCRYPTED COSIGN PRIVATE KEY")
	assert.NotEmpty(t, s.Passphrase)

	theirs, err := sign.LoadOrCreate(filepath.Join(dir, "keys"))
	require.NoError(t, err)
	own := installconfig.Signing{KeyFile: "keys/" + sign.KeyFile, PassphraseFile: "keys/" + sign.PassphraseFile}
	old := filepath.Join(dir, "old.pub")
	require.NoError(t, os.WriteFile(old, made, 0o600))
	config := filepath.Join(dir, installconfig.FileName)
	raw, err := os.ReadFile(config)
	require.NoError(t, err)
	text := strings.Replace(string(raw), "  pools:\n", "  signing: {keyFile: "+own.KeyFile+", passphraseFile: "+
		own.PassphraseFile+", publicKeyFiles: [old.pub]}\n  pools:\n", 1)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	public, err := preflight.PrepareSigning(dir, own)
	require.NoError(t, err)
	assert.Equal(t, theirs.Public, public)
	s, err = load()
	require.NoError(t, err)
	assert.Equal(t, []sign.PublicKey{theirs.Public, made}, s.Public, "the first is that of the key that signs")

	t.Run("a key that others may read", func(t *testing.T) {
		require.NoError(t, os.Chmod(filepath.Join(dir, own.KeyFile), 0o644))
		_, err := preflight.PrepareSigning(dir, own)
		require.ErrorContains(t, err, "chmod 0600")
		require.ErrorContains(t, err, "onClusterLayering.signing.keyFile")
	})
	t.Run("no public key", func(t *testing.T) {
		require.NoError(t, os.WriteFile(old, []byte("text"), 0o600))
		_, err := load()
		require.ErrorContains(t, err, "old.pub")
	})
	t.Run("no file", func(t *testing.T) {
		require.NoError(t, os.Remove(filepath.Join(dir, own.PassphraseFile)))
		_, err := load()
		require.ErrorContains(t, err, "onClusterLayering.signing.passphraseFile")
	})
}

func TestNodesRequireSignatures(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	config := filepath.Join(dir, installconfig.FileName)
	raw, err := os.ReadFile(config)
	require.NoError(t, err)
	asks := func(yes string) {
		t.Helper()
		require.NoError(t, os.WriteFile(config, []byte(strings.Replace(string(raw), "  pools:\n",
			"  signing: {requireOnNodes: "+yes+"}\n  pools:\n", 1)), 0o600))
	}
	load := func() *preflight.Input {
		t.Helper()
		in, err := preflight.Load(dir, "linux/amd64")
		require.NoError(t, err)
		_, err = in.WriteGenerated(dir)
		require.NoError(t, err)
		return in
	}
	assert.Empty(t, load().Set.ClusterImagePolicies, "prepare has not run: there is no key")
	key, err := preflight.PrepareSigning(dir, installconfig.Signing{})
	require.NoError(t, err)
	file := filepath.Join(dir, "openshift/99_dayone-clusterimagepolicy.yaml")
	for range 2 { // by default; the second time the file is there
		in := load()
		require.Len(t, in.Set.ClusterImagePolicies, 1)
		spec := in.Set.ClusterImagePolicies[0].Object.Spec
		assert.Equal(t, string(key), string(spec.Policy.RootOfTrust.PublicKey.KeyData))
		require.Len(t, spec.Scopes, len(in.Pools))
		assert.Equal(t, in.Pools[0].Repository, string(spec.Scopes[0]))
		assert.FileExists(t, file)
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	asks("false")
	assert.Empty(t, load().Set.ClusterImagePolicies)
	assert.NoFileExists(t, file)

	asks("true")
	own := strings.Replace(string(text), "name: dayone-node-images", "name: mine", 1)
	require.NoError(t, os.WriteFile(file, []byte(own), 0o600))
	in := load()
	require.Len(t, in.Set.ClusterImagePolicies, 1)
	assert.Equal(t, "mine", in.Set.ClusterImagePolicies[0].Object.Name, "the user's own")
}

// TestWhoRequiresSignatures: by default nodes verify where each later image is signed, too.
func TestWhoRequiresSignatures(t *testing.T) {
	for _, c := range []struct {
		name, flow, says string
		prepared         bool
		want             bool
	}{
		{name: "standalone", flow: "standalone", want: true},
		{name: "standalone, opted out", flow: "standalone", says: "signing: {requireOnNodes: false}"},
		{name: "standalone, prepared by a version without the default", flow: "standalone", prepared: true},
		{name: "openshift: the Machine Config Operator's builder does not sign", flow: "openshift"},
		{name: "openshift, asked for", flow: "openshift", says: "signing: {requireOnNodes: true}", want: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cluster")
			write := assets.WriteSample
			if c.flow == "openshift" {
				write = assets.WriteOpenShiftSample
			}
			require.NoError(t, write(dir))
			config := filepath.Join(dir, installconfig.FileName)
			raw, err := os.ReadFile(config)
			require.NoError(t, err)
			if c.says != "" {
				text := strings.Replace(string(raw), "  pools:\n", "  "+c.says+"\n  pools:\n", 1)
				require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
			}
			_, err = preflight.PrepareSigning(dir, installconfig.Signing{})
			require.NoError(t, err)
			_, err = installconfig.Prepare(dir)
			require.NoError(t, err)
			if c.prepared {
				sidecar := installconfig.SidecarPath(dir)
				raw, err := os.ReadFile(sidecar)
				require.NoError(t, err)
				text := strings.Replace(string(raw), "requireOnNodes: true", "publicKeyFiles: []", 1)
				require.NotEqual(t, string(raw), text)
				require.NoError(t, os.WriteFile(sidecar, []byte(text), 0o600))
			}
			sidecar, err := installconfig.ReadSidecar(dir)
			require.NoError(t, err)
			assert.Equal(t, c.want, sidecar.Config.Signing.Required())
			if c.flow == "standalone" {
				in, err := preflight.Load(dir, "linux/amd64")
				require.NoError(t, err)
				assert.Len(t, in.Set.ClusterImagePolicies, map[bool]int{true: 1}[c.want])
			}
		})
	}
}

func TestBaseImagePolicy(t *testing.T) {
	for _, c := range []struct{ name, content, refused string }{
		{"one with its keys", `{"default":[{"type":"reject"}]}`, ""},
		{"no JSON", `{`, "containers-policy.json(5)"},
		{"a type that is none", `{"default":[{"type":"signedByMagic"}]}`, "signedByMagic"},
		{"a key in a file of this host", `{"default":[{"type":"sigstoreSigned","keyPath":"/root/cosign.pub"}]}`, "keyData"},
		{"no file", "", "cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cluster")
			require.NoError(t, assets.WriteSample(dir))
			config := filepath.Join(dir, installconfig.FileName)
			raw, err := os.ReadFile(config)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(config, []byte(strings.Replace(string(raw), "  pools:\n",
				"  signing: {baseImagePolicy: base.json}\n  pools:\n", 1)), 0o600))
			if c.content != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "base.json"), []byte(c.content), 0o600))
			}
			in, err := preflight.LoadLayering(dir, "linux/amd64")
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				require.ErrorContains(t, err, "onClusterLayering.signing.baseImagePolicy")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.content, string(in.Signing.BasePolicy))
		})
	}
}

func TestJudgesBases(t *testing.T) {
	policy := func(name string) *preflight.Input {
		p := &configv1.ClusterImagePolicy{}
		p.Name = name
		return &preflight.Input{Set: &manifests.Set{
			ClusterImagePolicies: []manifests.Item[*configv1.ClusterImagePolicy]{manifests.NewItem(p)}}}
	}
	file := func(path string) *preflight.Input {
		c := &mcfgv1.MachineConfig{}
		c.Spec.Config.Raw = []byte(`{"storage":{"files":[{"path":"` + path + `"}]}}`)
		return &preflight.Input{Set: &manifests.Set{
			MachineConfigs: []manifests.Item[*mcfgv1.MachineConfig]{manifests.NewItem(c)}}}
	}
	for _, c := range []struct {
		name string
		in   *preflight.Input
		want bool
	}{
		{"nothing", &preflight.Input{Set: &manifests.Set{}}, false},
		{"a policy for bases", &preflight.Input{Set: &manifests.Set{}, Signing: preflight.Signing{BasePolicy: []byte("{}")}},
			true},
		{"dayone's own, for what is built", policy(cluster.ImagePolicy), false},
		{"a ClusterImagePolicy", policy("vendor"), true},
		{"a policy.json of a MachineConfig", file("/etc/containers/policy.json"), true},
		{"another file", file("/etc/motd"), false},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, preflight.JudgesBases(c.in)) })
	}
}
