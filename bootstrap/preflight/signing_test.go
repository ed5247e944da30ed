package preflight_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
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
	asks("true")
	assert.Empty(t, load().Set.ClusterImagePolicies, "prepare has not run")
	key, err := preflight.PrepareSigning(dir, installconfig.Signing{})
	require.NoError(t, err)
	file := filepath.Join(dir, "openshift/99_dayone-clusterimagepolicy.yaml")
	for range 2 { // the second time the file is there
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
