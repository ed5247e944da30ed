package day1

import (
	"os"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

func TestCheckDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "needs root")
		t.Skip("mounts a small file system: run it as root")
	}
	dir := t.TempDir()
	require.NoError(t, unix.Mount("dayone-test", dir, "tmpfs", 0, "mode=0700,size=2m"))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, 0)) })
	log, said := test.NewNullLogger()
	o := Options{StateDir: dir, Log: log.WithField("test", true)}

	require.NoError(t, CheckDisk(o, installconfig.Build{Disk: 1 << 20}))
	require.Empty(t, said.AllEntries())
	err := CheckDisk(o, installconfig.Build{Disk: 3 << 20})
	found := report.Of(err)
	require.Len(t, found, 1)
	assert.Equal(t, "low-disk", found[0].Rule)
	assert.Equal(t, "2Mi are free at "+dir+", and builds may take 3Mi", found[0].Message)

	require.NoError(t, CheckDisk(o, installconfig.Build{Disk: 8 << 30}), "the default is no request of the user")
	require.Len(t, said.AllEntries(), 1)
	assert.Contains(t, said.LastEntry().Message, "[low-disk]")

	require.NoError(t, os.Mkdir(o.Path(buildDir), 0o700))
	assert.NoError(t, CheckDisk(o, installconfig.Build{Disk: 3 << 20}), "a run that goes on")
}
