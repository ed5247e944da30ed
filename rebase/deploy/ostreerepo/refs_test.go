package ostreerepo

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRefsAreTheOnesThatOSTreeLists(t *testing.T) {
	r := newRepository(t)
	for _, name := range []string{"plain", "ostree/container/blob/sha256_3A_aa", "ostree/container/image/b"} {
		write(t, r, name, dir("usr", 0o755))
	}
	theirs := func() []string {
		list := strings.Fields(run(t, "refs", "--repo="+r.path))
		slices.Sort(list)
		return list
	}
	refs, err := r.Refs()
	require.NoError(t, err)
	assert.Equal(t, theirs(), slices.Sorted(maps.Keys(refs)))
	assert.Equal(t, run(t, "rev-parse", "--repo="+r.path, "plain"), refs["plain"])

	require.NoError(t, r.DeleteRefs("ostree/container/blob/sha256_3A_aa", "never/there"))
	assert.Equal(t, []string{"ostree/container/image/b", "plain"}, theirs())
	require.NoError(t, r.DeleteRefs())
	run(t, "prune", "--repo="+r.path, "--refs-only")
	run(t, "fsck", "--repo="+r.path)
}

func TestKernelFilesAreFoundWithTheirSize(t *testing.T) {
	r := newRepository(t)
	kernel := regular("usr/lib/modules/6.1/vmlinuz")
	kernel.Size = 2 << 20
	write(t, r, "with", dir("usr", 0o755), kernel, regular("usr/lib/modules/6.1/initramfs.img"),
		regular("usr/lib/modules/6.1/modules.dep"))
	write(t, r, "without", regular("usr/bin/sh"))
	for _, c := range []struct {
		name string
		want []int64
	}{{"with", []int64{int64(len("usr/lib/modules/6.1/initramfs.img")), 2 << 20}},
		{"without", nil}} {
		sum, err := ParseChecksum(run(t, "rev-parse", "--repo="+r.path, c.name))
		require.NoError(t, err)
		files, err := r.KernelFiles(sum)
		require.NoError(t, err)
		assert.Equal(t, c.want, slices.Sorted(maps.Values(files)), c.name)
	}
}
