package day1

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry/certs"
)

// state is a state directory with an identity and a journal.
func state(t *testing.T) Options {
	o := Options{StateDir: filepath.Join(t.TempDir(), "state")}.WithDefaults()
	_, err := loadIdentity(o.StateDir, "127.0.0.1:9500")
	require.NoError(t, err)
	j, err := journal.Open(o.StateDir)
	require.NoError(t, err)
	require.NoError(t, j.Save())
	return o
}

func TestOpenStateRefusesForeignAccess(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "needs root")
		t.Skip("needs root, to give files to another user")
	}
	key := filepath.Join(identityDir, certs.CAKeyFile)
	const stranger = 65534
	for _, c := range []struct {
		name, file string
		mode       fs.FileMode
		owner      int
		next       string
	}{
		{"directory of another user, open to all", ".", 0o777, stranger, "chown"},
		{"directory that others may write to", ".", 0o777, 0, "chmod"},
		{"identity of another user", identityDir, 0o700, stranger, "chown"},
		{"CA key of another user", key, 0o644, stranger, "chown"},
		{"password that a group may write", filepath.Join(identityDir, pullUser+passwordEnd), 0o620, 0, "chmod"},
		{"journal of another user", journal.File, 0o600, stranger, "chown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := state(t)
			file := filepath.Join(o.StateDir, c.file)
			require.NoError(t, os.Chmod(file, c.mode))
			require.NoError(t, os.Chown(file, c.owner, c.owner))
			_, err := OpenState(o)
			found := report.Of(err)
			require.Len(t, found, 1, "%v", err)
			assert.Equal(t, file, found[0].File)
			assert.Equal(t, "state-owner", found[0].Rule)
			assert.Contains(t, found[0].Next, c.next)
			_, err = os.Stat(filepath.Join(o.StateDir, "lock"))
			assert.ErrorIs(t, err, fs.ErrNotExist, "nothing is written there")
		})
	}
}

func TestOpenStateTakesReadingFromOthers(t *testing.T) {
	o := state(t)
	key := filepath.Join(IdentityDir(o.StateDir), certs.CAKeyFile)
	require.NoError(t, os.Chmod(o.StateDir, 0o755))
	require.NoError(t, os.Chmod(key, 0o644))
	done, err := OpenState(o)
	require.NoError(t, err)
	defer done()
	for file, want := range map[string]fs.FileMode{o.StateDir: 0o700, key: 0o600} {
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode().Perm(), file)
	}
}

// A copy that is killed leaves credentials below tmp; so does the process that ends well, without this.
func TestOpenStateRemovesScratch(t *testing.T) {
	o := state(t)
	left := filepath.Join(o.StateDir, scratchDir, "imagecopy-1", "auth.json")
	leave := func() {
		require.NoError(t, os.MkdirAll(filepath.Dir(left), 0o700))
		require.NoError(t, os.WriteFile(left, []byte("{}"), 0o600))
	}
	leave()
	done, err := OpenState(o)
	require.NoError(t, err)
	assert.NoFileExists(t, left)
	assert.DirExists(t, filepath.Join(o.StateDir, scratchDir))
	leave()
	_, err = OpenState(o)
	require.ErrorContains(t, err, "another dayone bootstrap")
	assert.FileExists(t, left, "the scratch of a run that works stays")
	done()
	assert.NoFileExists(t, left)
}

func TestLoadIdentityRefusesCutPassword(t *testing.T) {
	o := state(t)
	file := filepath.Join(IdentityDir(o.StateDir), pushUser+passwordEnd)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, raw[:4], 0o600))
	_, err = loadIdentity(o.StateDir, "127.0.0.1:9500")
	found := report.Of(err)
	require.Len(t, found, 1, "%v", err)
	assert.Equal(t, file, found[0].File)
	assert.Contains(t, found[0].Next, "remove")
}

func TestOpenStateRefusesReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "needs root")
		t.Skip("needs root, to mount a file system")
	}
	dir := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	require.NoError(t, unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	_, err := OpenState(Options{StateDir: dir, Log: report.NoLog()})
	require.ErrorContains(t, err, "mounted read-only")
	require.ErrorContains(t, err, "remount,rw")
}

func TestOpenStateRefusesACopyOfAnotherHosts(t *testing.T) {
	o := state(t)
	done, err := OpenState(o)
	require.NoError(t, err)
	done()
	file := filepath.Join(o.StateDir, hostFile)
	owner, err := os.ReadFile(file)
	require.NoError(t, err)
	machine, err := os.ReadFile(machineIDFile)
	require.NoError(t, err)
	assert.NotContains(t, string(owner), string(bytes.TrimSpace(machine)), "the machine's ID is not for others")
	done, err = OpenState(o)
	require.NoError(t, err, "the same host goes on")
	done()

	require.NoError(t, os.WriteFile(file, []byte("another\n"), 0o600))
	_, err = OpenState(o)
	found := report.Of(err)
	require.Len(t, found, 1, "%v", err)
	assert.Equal(t, "state-of-another-host", found[0].Rule)
	running, err := journal.Running(o.StateDir)
	require.NoError(t, err)
	assert.False(t, running, "the lock is dropped")
	require.NoError(t, os.Remove(file), "what the message says to do")
	done, err = OpenState(o)
	require.NoError(t, err)
	done()
}

func TestHostsWithoutAnID(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, machine string }{{"no file", ""}, {"before the first boot", "uninitialized\n"}} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "machine-id")
			if c.machine != "" {
				require.NoError(t, os.WriteFile(file, []byte(c.machine), 0o600))
			}
			require.NoError(t, belongToHost(dir, file))
			assert.NoFileExists(t, filepath.Join(dir, hostFile))
		})
	}
	require.ErrorContains(t, belongToHost(dir, dir), "read the machine's ID: ")
}

// No NFS is mounted here: the test knows the number by which the kernel names it.
func TestStateOnANetworkFileSystem(t *testing.T) {
	require.NoError(t, checkPlace("/state", unix.EXT4_SUPER_MAGIC))
	found := report.Of(checkPlace("/state", unix.NFS_SUPER_MAGIC))
	require.Len(t, found, 1)
	assert.Equal(t, "state-on-network", found[0].Rule)
	assert.Contains(t, found[0].Message, "(NFS)")
}
