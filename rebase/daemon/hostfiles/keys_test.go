package hostfiles_test

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

	"dayone.dev/dayone/rebase/daemon/hostfiles"
)

func keys(list ...ign35.SSHAuthorizedKey) ign35.Config {
	return ign35.Config{Passwd: ign35.Passwd{Users: []ign35.PasswdUser{{Name: hostfiles.CoreUser,
		SSHAuthorizedKeys: list}}}}
}

// withCore makes a root as an ostree host's is: /home is a link, and the core user is in /etc/passwd. Its ids are the
// test's own without root.
func withCore(t *testing.T) (h hostfiles.Host, uid, gid int) {
	t.Helper()
	uid, gid = 1000, 1001
	if os.Getuid() != 0 {
		uid, gid = os.Getuid(), os.Getgid()
	}
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "var/home/core"), 0o755))
	require.NoError(t, os.Symlink("var/home", filepath.Join(root, "home")))
	write(t, root, "/usr/lib/passwd", "root:x:0:0::/root:/bin/bash\n")
	write(t, root, "/etc/passwd", fmt.Sprintf("core:x:%d:%d:CoreOS Admin:/home/core:/bin/bash\n", uid, gid))
	return hostfiles.Host{Root: root}, uid, gid
}

const fragment = "/var/home/core/.ssh/authorized_keys.d/ignition"

func TestKeysAreWrittenAsIgnitionDoes(t *testing.T) {
	h, uid, gid := withCore(t)
	require.NoError(t, h.ApplyKeys(keys(), keys("ssh-ed25519 AAA one", "ssh-ed25519 BBB two")))
	assert.Equal(t, "ssh-ed25519 AAA one\nssh-ed25519 BBB two\n", read(t, h.Root, fragment))
	for p, mode := range map[string]os.FileMode{"/var/home/core/.ssh": 0o700,
		"/var/home/core/.ssh/authorized_keys.d": 0o700, fragment: 0o600} {
		info, err := os.Stat(filepath.Join(h.Root, p))
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm(), p)
		s := info.Sys().(*syscall.Stat_t)
		assert.Equal(t, []uint32{uint32(uid), uint32(gid)}, []uint32{s.Uid, s.Gid}, p)
	}
	none, err := h.VerifyKeys(keys("ssh-ed25519 AAA one"))
	require.NoError(t, err)
	assert.Empty(t, none)

	require.NoError(t, h.ApplyKeys(keys("ssh-ed25519 AAA one", "ssh-ed25519 BBB two"), keys("ssh-ed25519 BBB two")))
	assert.Equal(t, "ssh-ed25519 BBB two\n", read(t, h.Root, fragment), "a key that is taken away lets nobody in")
	lacks, err := h.VerifyKeys(keys("ssh-ed25519 AAA one"))
	require.NoError(t, err)
	require.Len(t, lacks, 1)
	assert.NotContains(t, lacks[0].Why, "AAA")
	require.NoError(t, h.ApplyKeys(keys("ssh-ed25519 BBB two"), keys()))
	assert.Empty(t, read(t, h.Root, fragment))
}

func TestKeysOfPeopleStay(t *testing.T) {
	h, _, _ := withCore(t)
	write(t, h.Root, "/var/home/core/.ssh/authorized_keys", "ssh-rsa MINE me\nssh-ed25519 AAA one\n")
	require.NoError(t, h.ApplyKeys(keys("ssh-ed25519 AAA one"), keys("ssh-ed25519 BBB two")))
	assert.Equal(t, "ssh-rsa MINE me\nssh-ed25519 BBB two\n", read(t, h.Root, "/var/home/core/.ssh/authorized_keys"))
	assert.NoFileExists(t, filepath.Join(h.Root, fragment))
}

func TestKeysStayBelowTheHomeDirectory(t *testing.T) {
	h, _, _ := withCore(t)
	require.NoError(t, os.Mkdir(filepath.Join(h.Root, "outside"), 0o755))
	require.NoError(t, os.Symlink("../../../outside", filepath.Join(h.Root, "var/home/core/.ssh")))
	require.Error(t, h.ApplyKeys(keys(), keys("ssh-ed25519 AAA one")))
	entries, err := os.ReadDir(filepath.Join(h.Root, "outside"))
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestKeysWithoutTheirUser(t *testing.T) {
	h := hostfiles.Host{Root: t.TempDir()}
	require.NoError(t, h.ApplyKeys(keys(), keys()), "nothing is wanted")
	require.NoError(t, h.ApplyKeys(keys("ssh-ed25519 AAA one"), keys()), "nothing is to be taken away")
	require.ErrorContains(t, h.ApplyKeys(keys(), keys("ssh-ed25519 AAA one")), "no user core")
}

func TestPasswordIsSetInPlace(t *testing.T) {
	h, _, _ := withCore(t)
	write(t, h.Root, "/etc/shadow", "root:*:1::::::\ncore:!!:1:0:99999:7:::\nlast:*:1::::::\n")
	password := func(hash string) ign35.Config {
		return ign35.Config{Passwd: ign35.Passwd{Users: []ign35.PasswdUser{{Name: hostfiles.CoreUser, PasswordHash: &hash}}}}
	}
	day := time.Unix(20000*86400+5, 0)
	require.NoError(t, h.ApplyPassword(keys(), password("$y$j9T$salt$hash"), day))
	assert.Equal(t, "root:*:1::::::\ncore:$y$j9T$salt$hash:20000:0:99999:7:::\nlast:*:1::::::\n",
		read(t, h.Root, "/etc/shadow"))
	info, err := os.Stat(filepath.Join(h.Root, "/etc/shadow"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm(), "the mode is as it was")
	require.NoError(t, h.ApplyPassword(password("$y$j9T$salt$hash"), keys(), day))
	assert.Contains(t, read(t, h.Root, "/etc/shadow"), "core:*:20000:")
	require.Error(t, h.ApplyPassword(keys(), password("a:b"), day))
	require.NoError(t, os.WriteFile(filepath.Join(h.Root, "/etc/shadow"), []byte("root:*:1::::::\n"), 0o640))
	require.ErrorContains(t, h.ApplyPassword(keys(), password("x"), day), "no such user")
}

func TestOthersPathsAreLeftAlone(t *testing.T) {
	h := hostfiles.Host{Root: t.TempDir(), Others: func(p string) bool { return p == "/etc/ca" }}
	write(t, h.Root, "/etc/ca", "the cluster's")
	c := config(file("/etc/ca", "the config's", 0o644), file("/etc/a", "1", 0o644))
	require.NoError(t, h.Apply(ign35.Config{}, c))
	assert.Equal(t, "the cluster's", read(t, h.Root, "/etc/ca"))
	mismatches, err := h.Verify(c)
	require.NoError(t, err)
	assert.Empty(t, mismatches)
	require.NoError(t, h.Carry(c))
	info, err := os.Stat(filepath.Join(h.Root, "/etc/ca"))
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSticky, "it goes along into the next deployment, too")
	require.NoError(t, h.Uncarry(c))
	require.NoError(t, h.Apply(c, ign35.Config{}))
	assert.Equal(t, "the cluster's", read(t, h.Root, "/etc/ca"))
}
