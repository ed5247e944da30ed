package coreuser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/daemon/coreuser"
)

func keys(list ...ign35.SSHAuthorizedKey) ign35.Config {
	return ign35.Config{Passwd: ign35.Passwd{Users: []ign35.PasswdUser{{Name: coreuser.Name,
		SSHAuthorizedKeys: list}}}}
}

// withCore makes a root as an ostree host's is: /home is a link, and the core user is in /etc/passwd. Its ids are the
// test's own without root.
func withCore(t *testing.T) (root string, uid, gid int) {
	t.Helper()
	uid, gid = 1000, 1001
	if os.Getuid() != 0 {
		uid, gid = os.Getuid(), os.Getgid()
	}
	root = t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "var/home/core"), 0o755))
	require.NoError(t, os.Symlink("var/home", filepath.Join(root, "home")))
	write(t, root, "/usr/lib/passwd", "root:x:0:0::/root:/bin/bash\n")
	write(t, root, "/etc/passwd", fmt.Sprintf("core:x:%d:%d:CoreOS Admin:/home/core:/bin/bash\n", uid, gid))
	return root, uid, gid
}

func write(t *testing.T, root, path, contents string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(contents), 0o640))
}

func read(t *testing.T, root, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(data)
}

const fragment = "/var/home/core/.ssh/authorized_keys.d/ignition"

func TestKeysAreWrittenAsIgnitionDoes(t *testing.T) {
	root, uid, gid := withCore(t)
	require.NoError(t, coreuser.ApplyKeys(root, keys(), keys("ssh-ed25519 AAA one", "ssh-ed25519 BBB two")))
	assert.Equal(t, "ssh-ed25519 AAA one\nssh-ed25519 BBB two\n", read(t, root, fragment))
	for _, c := range []struct {
		name string
		mode os.FileMode
	}{{"/var/home/core/.ssh", 0o700},
		{"/var/home/core/.ssh/authorized_keys.d", 0o700}, {fragment, 0o600}} {
		info, err := os.Stat(filepath.Join(root, c.name))
		require.NoError(t, err)
		assert.Equal(t, c.mode, info.Mode().Perm(), c.name)
		s := info.Sys().(*syscall.Stat_t)
		assert.Equal(t, []uint32{uint32(uid), uint32(gid)}, []uint32{s.Uid, s.Gid}, c.name)
	}
	_, none, err := coreuser.VerifyKeys(root, keys("ssh-ed25519 AAA one"))
	require.NoError(t, err)
	assert.Empty(t, none)

	require.NoError(t, coreuser.ApplyKeys(root, keys("ssh-ed25519 AAA "+
		"one", "ssh-ed25519 BBB two"), keys("ssh-ed25519 BBB two")))
	assert.Equal(t, "ssh-ed25519 BBB two\n", read(t, root, fragment), "a key that is taken away lets nobody in")
	at, lacks, err := coreuser.VerifyKeys(root, keys("ssh-ed25519 AAA one"))
	require.NoError(t, err)
	assert.Equal(t, "/home/core/.ssh/authorized_keys.d/ignition", at)
	assert.Equal(t, "lacks an SSH key", lacks)
	require.NoError(t, coreuser.ApplyKeys(root, keys("ssh-ed25519 BBB two"), keys()))
	assert.Empty(t, read(t, root, fragment))
}

func TestKeysOfPeopleStay(t *testing.T) {
	root, _, _ := withCore(t)
	write(t, root, "/var/home/core/.ssh/authorized_keys", "ssh-rsa MINE me\nssh-ed25519 AAA one\n")
	require.NoError(t, coreuser.ApplyKeys(root, keys("ssh-ed25519 AAA one"), keys("ssh-ed25519 BBB two")))
	assert.Equal(t, "ssh-rsa MINE me\nssh-ed25519 BBB two\n", read(t, root, "/var/home/core/.ssh/authorized_keys"))
	assert.NoFileExists(t, filepath.Join(root, fragment))
}

func TestKeysStayBelowTheHomeDirectory(t *testing.T) {
	root, _, _ := withCore(t)
	require.NoError(t, os.Mkdir(filepath.Join(root, "outside"), 0o755))
	require.NoError(t, os.Symlink("../../../outside", filepath.Join(root, "var/home/core/.ssh")))
	require.Error(t, coreuser.ApplyKeys(root, keys(), keys("ssh-ed25519 AAA one")))
	entries, err := os.ReadDir(filepath.Join(root, "outside"))
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestKeysWithoutTheirUser(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, coreuser.ApplyKeys(root, keys(), keys()), "nothing is wanted")
	require.NoError(t, coreuser.ApplyKeys(root, keys("ssh-ed25519 AAA one"), keys()), "nothing is to be taken away")
	require.ErrorContains(t, coreuser.ApplyKeys(root, keys(), keys("ssh-ed25519 AAA one")), "no user core")
}

func TestPasswordIsSetInPlace(t *testing.T) {
	root, _, _ := withCore(t)
	write(t, root, "/etc/shadow", "root:*:1::::::\ncore:!!:1:0:99999:7:::\nlast:*:1::::::\n")
	password := func(hash string) ign35.Config {
		return ign35.Config{Passwd: ign35.Passwd{Users: []ign35.PasswdUser{{Name: coreuser.Name, PasswordHash: &hash}}}}
	}
	day := time.Unix(20000*86400+5, 0)
	require.NoError(t, coreuser.ApplyPassword(t.Context(), root, keys(), password("$y$j9T$salt$hash"), day))
	assert.Equal(t, "root:*:1::::::\ncore:$y$j9T$salt$hash:20000:0:99999:7:::\nlast:*:1::::::\n",
		read(t, root, "/etc/shadow"))
	info, err := os.Stat(filepath.Join(root, "/etc/shadow"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm(), "the mode is as it was")
	require.NoError(t, coreuser.ApplyPassword(t.Context(), root, password("$y$j9T$salt$hash"), keys(), day))
	assert.Contains(t, read(t, root, "/etc/shadow"), "core:*:20000:")
	require.Error(t, coreuser.ApplyPassword(t.Context(), root, keys(), password("a:b"), day))
	require.NoError(t, os.WriteFile(filepath.Join(root, "/etc/shadow"), []byte("root:*:1::::::\n"), 0o640))
	require.ErrorContains(t, coreuser.ApplyPassword(t.Context(), root, keys(), password("x"), day), "no such user")
}
