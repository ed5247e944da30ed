package poolaccounts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/poolaccounts"
)

const registry = "api-int.lab.example.com:22626"

// TestOnlyTheNodeReadsIt: what is sealed for one node tells another one nothing, whatever it says that its name is.
func TestOnlyTheNodeReadsIt(t *testing.T) {
	root := t.TempDir()
	n, err := poolaccounts.OpenNode(root, "w0")
	require.NoError(t, err)
	word := n.Word()
	a := poolaccounts.Account{Name: "pool-worker-aaaaaaaa", Password: "canary"}
	s, err := poolaccounts.Seal(a, registry, "w0", word.Key)
	require.NoError(t, err)
	text, err := poolaccounts.Annotation(s)
	require.NoError(t, err)
	assert.NotContains(t, text, "canary")

	other, err := poolaccounts.OpenNode(t.TempDir(), "w0")
	require.NoError(t, err)
	took, err := other.Take(s)
	require.NoError(t, err)
	assert.False(t, took, "it is for another key")
	s.Key = other.Word().Key
	_, err = other.Take(s)
	require.ErrorContains(t, err, "not sealed for this node")
	assert.Empty(t, other.Word().Account)
	elsewhere, err := poolaccounts.OpenNode(root, "w1")
	require.NoError(t, err)
	s.Key = word.Key
	_, err = elsewhere.Take(s)
	require.ErrorContains(t, err, "not sealed for this node", "it is bound to the node's name, too")

	took, err = n.Take(poolaccounts.Read[poolaccounts.Sealed](text))
	require.NoError(t, err)
	assert.True(t, took)
	again, err := poolaccounts.OpenNode(root, "w0")
	require.NoError(t, err)
	assert.Equal(t, poolaccounts.Word{Key: word.Key, Account: a.Name}, again.Word(), "a restart keeps key and account")
	took, err = again.Take(s)
	require.NoError(t, err)
	assert.False(t, took)
	accounts, err := credentials.Read(filepath.Join(root, poolaccounts.AuthPath))
	require.NoError(t, err)
	have, found, err := accounts.Find(registry + "/ns/os")
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, "canary", have.Password)
	for _, file := range []string{"auth.json", "key"} {
		fi, err := os.Stat(filepath.Join(root, filepath.Dir(poolaccounts.AuthPath), file))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), fi.Mode().Perm())
	}
}

// TestDamage: a key that a power cut has spoiled is made anew, and so is an account.
func TestDamage(t *testing.T) {
	root := t.TempDir()
	n, err := poolaccounts.OpenNode(root, "w0")
	require.NoError(t, err)
	before := n.Word()
	require.NoError(t, os.WriteFile(filepath.Join(root, filepath.Dir(poolaccounts.AuthPath), "key"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, poolaccounts.AuthPath), []byte("{"), 0o600))
	n, err = poolaccounts.OpenNode(root, "w0")
	require.NoError(t, err)
	assert.NotEqual(t, before.Key, n.Word().Key)
	assert.Empty(t, n.Word().Account)
	assert.Zero(t, poolaccounts.Read[poolaccounts.Word]("{"))
	for _, key := range []string{"?", "", "AAAA"} {
		_, err := poolaccounts.Seal(poolaccounts.Account{}, registry, "w0", key)
		require.ErrorContains(t, err, "node w0")
	}
	_, err = n.Take(poolaccounts.Sealed{Account: "a", Key: n.Word().Key, Text: "?"})
	require.ErrorContains(t, err, "not sealed for this node")
}
