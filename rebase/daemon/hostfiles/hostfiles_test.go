package hostfiles_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/daemon/hostfiles"
)

func file(path, contents string, mode int) ign35.File {
	// Tests run without root, too: the owner is whoever runs them.
	return ign35.File{Node: ign35.Node{Path: path, User: ign35.NodeUser{ID: new(os.Getuid())},
		Group: ign35.NodeGroup{ID: new(os.Getgid())}},
		FileEmbedded1: ign35.FileEmbedded1{Mode: &mode, Contents: machineconfig.Inline([]byte(contents))}}
}

func config(files ...ign35.File) ign35.Config {
	return ign35.Config{Storage: ign35.Storage{Files: files}}
}

// apply goes from one config that the node has to another.
func apply(h hostfiles.Host, before, after ign35.Config) error {
	return h.Change(hostfiles.Start{Has: []ign35.Config{before}}, after)
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

func TestApplyAndGoBack(t *testing.T) {
	root := t.TempDir()
	h := hostfiles.Host{Root: root}
	write(t, root, "/etc/own", "the node's")
	require.NoError(t, os.Symlink("elsewhere", filepath.Join(root, "/etc/link")))
	one := config(file("/etc/own", "first", 0o600), file("/etc/new", "first", 0o644), file("/etc/link", "file now", 0o644))
	two := config(file("/etc/own", "second", 0o4755), file("/etc/more", "x", 0o644))
	require.NoError(t, apply(h, config(), one))
	mismatches, err := h.Verify(one)
	require.NoError(t, err)
	assert.Empty(t, mismatches)
	require.NoError(t, apply(h, one, two))
	assert.Equal(t, "second", read(t, root, "/etc/own"))
	assert.NoFileExists(t, filepath.Join(root, "/etc/new"))
	target, err := os.Readlink(filepath.Join(root, "/etc/link"))
	require.NoError(t, err)
	assert.Equal(t, "elsewhere", target, "what the node had comes back")
	info, err := os.Stat(filepath.Join(root, "/etc/own"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755)|os.ModeSetuid, info.Mode())
	require.NoError(t, apply(h, one, two), "twice is once")
	require.NoError(t, apply(h, two, config()))
	require.NoError(t, apply(h, two, config()), "twice is once")
	assert.Equal(t, "the node's", read(t, root, "/etc/own"))
	info, err = os.Stat(filepath.Join(root, "/etc/own"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode())
	assert.NoFileExists(t, filepath.Join(root, "/etc/more"))
	require.NoError(t, h.Forget(config(), one, two))
	for _, dir := range []string{hostfiles.OriginalsDir, hostfiles.NoOriginalsDir} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(p string, d os.DirEntry, err error) error {
			assert.True(t, err != nil || d.IsDir(), "nothing is left: %s", p)
			return nil
		}))
	}
}

func TestUnits(t *testing.T) {
	if os.Getuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "needs root")
		t.Skip("units belong to root: this test needs root")
	}
	root := t.TempDir()
	h := hostfiles.Host{Root: root}
	c := ign35.Config{Systemd: ign35.Systemd{Units: []ign35.Unit{
		{Name: "a.service", Contents: new("[Unit]\n"),
			Dropins: []ign35.Dropin{{Name: "10.conf", Contents: new("[Service]\n")}}},
		{Name: "b.service", Mask: new(true)}, {Name: "c.service", Enabled: new(true)}}}}
	require.NoError(t, apply(h, ign35.Config{}, c))
	paths, err := h.Paths(c)
	require.NoError(t, err)
	assert.Equal(t, []string{"/etc/systemd/system/a.service", "/etc/systemd/system/a.service.d/10.conf",
		"/etc/systemd/system/b.service"}, paths)
	target, err := os.Readlink(filepath.Join(root, paths[2]))
	require.NoError(t, err)
	assert.Equal(t, "/dev/null", target)
	require.NoError(t, apply(h, c, ign35.Config{}))
	_, err = os.Lstat(filepath.Join(root, paths[2]))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestVerifyNamesWhatDiffers(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, root string)
		why   string
	}{
		{"missing", func(t *testing.T,
			root string) {
			require.NoError(t, os.Remove(filepath.Join(root, "/etc/a")))
		}, "is missing"},
		{"longer", func(t *testing.T, root string) { write(t, root, "/etc/a", "secret longer") },
			"has 13 bytes, not 6"},
		{"other, of equal length", func(t *testing.T, root string) { write(t, root, "/etc/a", "terces") },
			"other contents of the same 6 bytes"},
		{"mode", func(t *testing.T,
			root string) {
			require.NoError(t, os.Chmod(filepath.Join(root, "/etc/a"), 0o666))
		}, "mode"},
		{"a directory", func(t *testing.T, root string) {
			require.NoError(t, os.Remove(filepath.Join(root, "/etc/a")))
			require.NoError(t, os.Mkdir(filepath.Join(root, "/etc/a"), 0o755))
		}, "no regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			h, want := hostfiles.Host{Root: root}, config(file("/etc/a", "secret", 0o644))
			require.NoError(t, apply(h, config(), want))
			c.spoil(t, root)
			got, err := h.Verify(want)
			require.NoError(t, err)
			require.Len(t, got, 1)
			assert.Equal(t, "/etc/a", got[0].Path)
			assert.Contains(t, got[0].Why, c.why)
			assert.NotContains(t, got[0].Why, "secret")
		})
	}
}

func TestWhatCannotBeApplied(t *testing.T) {
	root := t.TempDir()
	h := hostfiles.Host{Root: root}
	appended := file("/etc/a", "x", 0o644)
	appended.Append = []ign35.Resource{machineconfig.Inline([]byte("y"))}
	require.ErrorContains(t, apply(h, config(), config(appended)), "appends")
	require.ErrorContains(t, apply(h, config(), config(file("etc/a", "x", 0o644))), "absolute")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "/etc/dir"), 0o755))
	require.ErrorContains(t, apply(h, config(), config(file("/etc/dir", "x", 0o644))), "directory")
	outside := t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "out")))
	require.ErrorContains(t, apply(h, config(), config(file("/out/a", "x", 0o644))), "leads out")
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	assert.Empty(t, entries)
	named := file("/etc/a", "x", 0o644)
	named.User = ign35.NodeUser{Name: new("nobody-here")}
	require.ErrorContains(t, apply(h, config(), config(named)), "nobody-here")
}

func TestOwnersByName(t *testing.T) {
	root := t.TempDir()
	h := hostfiles.Host{Root: root}
	write(t, root, "/usr/lib/passwd", "core:x:"+itoa(os.Getuid())+":1::/:/bin/sh\n")
	write(t, root, "/etc/group", "broken\ncore:x:"+itoa(os.Getgid())+":\n")
	f := file("/etc/a", "x", 0o644)
	f.User, f.Group = ign35.NodeUser{Name: new("core")}, ign35.NodeGroup{Name: new("core")}
	require.NoError(t, apply(h, config(), config(f)))
	got, err := h.Verify(config(f))
	require.NoError(t, err)
	assert.Empty(t, got)
}

func itoa(n int) string { return strconv.Itoa(n) }

func TestWhatAFormerConfigBroughtIsNotTheNodesOwn(t *testing.T) {
	root := t.TempDir()
	h := hostfiles.Host{Root: root}
	// Ignition wrote the first config, over a file that the OS image has, too; nobody kept anything.
	write(t, root, "/usr/etc/stock", "the image's")
	write(t, root, "/etc/stock", "first")
	write(t, root, "/etc/mine", "first")
	one := config(file("/etc/stock", "first", 0o644), file("/etc/mine", "first", 0o644))
	two := config(file("/etc/stock", "second", 0o644), file("/etc/mine", "second", 0o644))
	require.NoError(t, apply(h, one, two))
	require.NoError(t, apply(h, two, config()))
	assert.NoFileExists(t, filepath.Join(root, "/etc/mine"), "the first config's text does not come back")
	if os.Getuid() == 0 { // the image's files belong to root
		assert.Equal(t, "the image's", read(t, root, "/etc/stock"))
	}
}

func TestWhatWasBegunKeepsTheNodesOwn(t *testing.T) {
	root := t.TempDir()
	h := hostfiles.Host{Root: root}
	write(t, root, "/etc/own", "the node's")
	write(t, root, "/etc/same", "first")
	write(t, root, "/etc/blocks", "a file where a directory has to be")
	one := config(file("/etc/blocks/a", "first", 0o644), file("/etc/new", "first", 0o644),
		file("/etc/own", "first", 0o644), file("/etc/same", "first", 0o640))
	two := config(file("/etc/blocks/a", "first", 0o644), file("/etc/own", "second", 0o644))
	require.Error(t, apply(h, config(), one))
	begun := hostfiles.Start{Has: []ign35.Config{config()}, Begun: []ign35.Config{one}}
	require.NoError(t, h.Change(begun, config()))
	assert.Equal(t, "the node's", read(t, root, "/etc/own"), "nothing had come to it")

	require.NoError(t, os.Remove(filepath.Join(root, "/etc/blocks")))
	require.NoError(t, h.Change(begun, one), "it goes on")
	assert.Equal(t, "first", read(t, root, "/etc/own"))
	begun.Begun = append(begun.Begun, two)
	require.NoError(t, h.Change(begun, two), "and then to another")
	assert.NoFileExists(t, filepath.Join(root, "/etc/new"))
	assert.Equal(t, "first", read(t, root, "/etc/same"), "what was like the config was the node's own all the same")
	require.NoError(t, h.Change(begun, config()))
	assert.Equal(t, "the node's", read(t, root, "/etc/own"))
	require.NoError(t, h.Change(begun, one))
	assert.Equal(t, "first", read(t, root, "/etc/own"))
	require.NoError(t, apply(h, one, config()))
	assert.Equal(t, "the node's", read(t, root, "/etc/own"), "given back twice")
	assert.NoFileExists(t, filepath.Join(root, "/etc/new"))
}

func TestWhatCannotBeWrittenCanBeTakenAway(t *testing.T) {
	root := t.TempDir()
	h := hostfiles.Host{Root: root}
	nobodys := file("/etc/b", "x", 0o644)
	nobodys.User = ign35.NodeUser{Name: new("nobody-here")}
	bad := config(file("/etc/a", "x", 0o644), nobodys)
	require.ErrorContains(t, apply(h, config(), bad), "nobody-here")
	good := config(file("/etc/c", "x", 0o644))
	require.NoError(t, h.Change(hostfiles.Start{Begun: []ign35.Config{bad}}, good))
	assert.Equal(t, "x", read(t, root, "/etc/c"))
}

func TestDisableTakesAwayWhatLeadsToAUnit(t *testing.T) {
	root := t.TempDir()
	units := filepath.Join(root, "/etc/systemd/system")
	for _, dir := range []string{"multi-user.target.wants", "x.service.requires"} {
		require.NoError(t, os.MkdirAll(filepath.Join(units, dir), 0o755))
		require.NoError(t, os.Symlink("/etc/systemd/system/a.service", filepath.Join(units, dir, "a.service")))
		require.NoError(t, os.Symlink("/etc/systemd/system/b.service", filepath.Join(units, dir, "b.service")))
	}
	require.NoError(t, os.Symlink("a.service", filepath.Join(units, "alias.service")))
	require.NoError(t, os.Symlink("/dev/null", filepath.Join(units, "a.service")))
	require.NoError(t, hostfiles.Disable(root, "a.service"))
	for _, gone := range []string{"multi-user.target.wants/a.service", "x.service.requires/a.service", "alias.service"} {
		_, err := os.Lstat(filepath.Join(units, gone))
		require.ErrorIs(t, err, os.ErrNotExist, gone)
	}
	for _, stays := range []string{"multi-user.target.wants/b.service", "a.service"} {
		_, err := os.Lstat(filepath.Join(units, stays))
		require.NoError(t, err, stays)
	}
}

func TestSweepRemovesWhatWasNotFinished(t *testing.T) {
	root := t.TempDir()
	h, c := hostfiles.Host{Root: root}, config(file("/etc/d/a", "x", 0o644), file("/etc/missing/b", "x", 0o644))
	left := []string{"/etc/d/.dayone-12", "/etc/d/.dayone-link-a", hostfiles.OriginalsDir + "/etc/.dayone-7"}
	for _, p := range left {
		write(t, root, p, "half")
	}
	write(t, root, "/etc/d/.other", "kept")
	write(t, root, "/etc/d/a", "kept")
	require.NoError(t, h.Sweep(c))
	for _, p := range left {
		assert.NoFileExists(t, filepath.Join(root, p))
	}
	assert.Equal(t, "kept", read(t, root, "/etc/d/.other"))
	assert.Equal(t, "kept", read(t, root, "/etc/d/a"))
}

func TestOthersPathsAreLeftAlone(t *testing.T) {
	h := hostfiles.Host{Root: t.TempDir(), Others: func(p string) bool { return p == "/etc/ca" }}
	write(t, h.Root, "/etc/ca", "the cluster's")
	c := config(file("/etc/ca", "the config's", 0o644), file("/etc/a", "1", 0o644))
	require.NoError(t, apply(h, ign35.Config{}, c))
	assert.Equal(t, "the cluster's", read(t, h.Root, "/etc/ca"))
	mismatches, err := h.Verify(c)
	require.NoError(t, err)
	assert.Empty(t, mismatches)
	require.NoError(t, h.Carry(c))
	info, err := os.Stat(filepath.Join(h.Root, "/etc/ca"))
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSticky, "it goes along into the next deployment, too")
	require.NoError(t, h.Uncarry(c))
	require.NoError(t, apply(h, c, ign35.Config{}))
	assert.Equal(t, "the cluster's", read(t, h.Root, "/etc/ca"))
}
