package poolaccounts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/wanted"
)

const users = "push:$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy:push\n"

// authority is PEM of a CA with its key.
func authority(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	_, err := certs.LoadOrCreateCA(dir, certs.CAOptions{CommonName: name})
	require.NoError(t, err)
	cert, err := os.ReadFile(filepath.Join(dir, certs.CACertFile))
	require.NoError(t, err)
	key, err := os.ReadFile(filepath.Join(dir, certs.CAKeyFile))
	require.NoError(t, err)
	return string(cert) + string(key)
}

func parse(t *testing.T, users, ca string) poolaccounts.Shared {
	t.Helper()
	s, err := poolaccounts.ParseShared(map[string][]byte{poolaccounts.SharedUsers: []byte(users),
		poolaccounts.SharedCA: []byte(ca)})
	require.NoError(t, err)
	return s
}

// TestOnlyTheNodeGetsTheCA: what is sealed for one node comes to it, again after its files are damaged or half written,
// and to no other; the pool's account and this are not taken for each other.
func TestOnlyTheNodeGetsTheCA(t *testing.T) {
	root := t.TempDir()
	at := filepath.Join(root, wanted.Dir)
	n, err := poolaccounts.OpenNode(root, "m0")
	require.NoError(t, err)
	ca := authority(t, "one")
	first, second := parse(t, users, ca), parse(t, "# more\n"+users, authority(t, "two"))
	sealed, err := poolaccounts.SealShared(first, "m0", n.Word().Key)
	require.NoError(t, err)
	text, err := poolaccounts.Annotation(sealed)
	require.NoError(t, err)
	assert.NotContains(t, text, strings.Split(ca, "\n")[1])
	sealed = poolaccounts.Read[poolaccounts.Sealed](text)
	assert.Equal(t, first.Hash(), sealed.Account)

	for _, name := range []string{"m0", "w0"} {
		other, err := poolaccounts.OpenNode(t.TempDir(), name)
		require.NoError(t, err)
		elsewhere := t.TempDir()
		took, err := other.TakeShared(elsewhere, sealed)
		require.NoError(t, err)
		assert.False(t, took, "it is for another key")
		forged := sealed
		forged.Key = other.Word().Key
		_, err = other.TakeShared(elsewhere, forged)
		require.ErrorContains(t, err, "not sealed for this node")
		assert.Empty(t, poolaccounts.ReadShared(filepath.Join(elsewhere, wanted.Dir)).Hash())
	}
	_, err = n.Take(sealed)
	require.ErrorContains(t, err, "not sealed for this node", "it is no account")
	account, err := poolaccounts.Seal(poolaccounts.Account{Name: "a", Password: "b"}, registry, "m0", n.Word().Key)
	require.NoError(t, err)
	_, err = n.TakeShared(root, account)
	require.ErrorContains(t, err, "not sealed for this node", "an account is no CA")

	take := func(s poolaccounts.Sealed, want bool) {
		t.Helper()
		took, err := n.TakeShared(root, s)
		require.NoError(t, err)
		assert.Equal(t, want, took)
	}
	take(sealed, true)
	take(sealed, false)
	assert.Equal(t, first, poolaccounts.ReadShared(at))
	for _, file := range []string{poolaccounts.SharedUsers, poolaccounts.SharedCA} {
		fi, err := os.Stat(filepath.Join(at, file))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), fi.Mode().Perm())
		require.NoError(t, os.WriteFile(filepath.Join(at, file), []byte("half"), 0o600))
		take(sealed, true)
		require.NoError(t, os.Remove(filepath.Join(at, file)))
		take(sealed, true)
	}
	require.NoError(t, os.WriteFile(filepath.Join(at, poolaccounts.SharedUsers), []byte(second.Users), 0o600))
	next, err := poolaccounts.SealShared(second, "m0", n.Word().Key)
	require.NoError(t, err)
	take(next, true) // a kill between the two files
	assert.Equal(t, second, poolaccounts.ReadShared(at))
	next.Account = "another hash"
	take(next, false)

	bad, err := poolaccounts.SealShared(poolaccounts.Shared{Users: users, CA: "none"}, "m0", n.Word().Key)
	require.NoError(t, err)
	_, err = n.TakeShared(root, bad)
	require.ErrorContains(t, err, "ca.pem is no CA")
	assert.Equal(t, second, poolaccounts.ReadShared(at), "the registry can start with what it had")
}

func TestSharedRefused(t *testing.T) {
	ca := authority(t, "one")
	key := ca[strings.Index(ca, "-----BEGIN PRIVATE KEY"):]
	for _, tc := range []struct{ name, users, ca, reason string }{
		{"nothing", "", "", "ca.pem"},
		{"no key", users, strings.TrimSuffix(ca, key), "ca.pem is no CA"},
		{"key of another CA", users, strings.TrimSuffix(ca, key) + authority(t, "two"), "ca.pem is no CA"},
		{"no accounts", "# none\n", ca, "users are no lines"},
		{"a line without a role", users + "a:b\n", ca, "users are no lines"},
		{"a password in place of its hash", "push:canary:push\n", ca, "users are no lines"},
		{"a role that there is not", strings.Replace(users, ":push\n", ":root\n", 1), ca, "users are no lines"},
		{"too much", strings.Repeat(users, 1000), ca, "more than 16384 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := poolaccounts.ParseShared(map[string][]byte{poolaccounts.SharedUsers: []byte(tc.users),
				poolaccounts.SharedCA: []byte(tc.ca)})
			require.ErrorContains(t, err, tc.reason)
			assert.NotContains(t, err.Error(), "canary")
			assert.NotContains(t, err.Error(), strings.Split(key, "\n")[1])
		})
	}
}
