package nodedisk_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/nodedisk"
)

// proc makes a root with what the kernel says of PID 1.
func proc(t *testing.T, bootID, stat, mountinfo string) (root string) {
	root = t.TempDir()
	for path, content := range map[string]string{"sys/kernel/random/boot_id": bootID + "\n", "1/stat": stat,
		"1/mountinfo": mountinfo} {
		at := filepath.Join(root, "proc", path)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(content), 0o600))
	}
	return root
}

const (
	initStat  = "1 (init of x) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 77 1 1\n"
	initMount = "22 27 0:21 / /proc rw - proc proc rw\n27 1 8:1 / / rw shared:1 - xfs /dev/sda4 rw\n"
)

func TestBootID(t *testing.T) {
	for _, c := range []struct{ name, id, stat, mounts, want, err string }{
		{name: "a boot", id: "k1", stat: initStat, mounts: initMount, want: "k1.77.27"},
		{name: "the soft reboot after it", id: "k1", stat: initStat, mounts: "90 1 0:40 / / rw - overlay o rw\n",
			want: "k1.77.90"},
		{name: "a root on a root", id: "k1", stat: initStat, mounts: initMount + "31 27 0:9 / / rw - tmpfs t rw\n",
			want: "k1.77.31"},
		{name: "half of the fields", id: "k1", stat: "1 (init) S 0 1", mounts: initMount, err: "/proc/1/stat is too short"},
		{name: "no root", id: "k1", stat: initStat, mounts: "22 27 0:21 / /proc rw - proc proc rw\n", err: "has no root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := nodedisk.BootID(proc(t, c.id, c.stat, c.mounts))
			assert.Equal(t, c.want, got)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
	here, err := nodedisk.BootID("/")
	require.NoError(t, err)
	again, err := nodedisk.BootID("/")
	require.NoError(t, err)
	assert.Equal(t, here, again, "this machine has not booted meanwhile")
}

func TestSameBoot(t *testing.T) {
	for _, c := range []struct {
		name, noted string
		same        bool
	}{
		{"the same", "k1.77.27", true},
		{"an agent of before noted it", "k1.77", true},
		{"a soft reboot since", "k1.77.90", false},
		{"a boot since", "k2.12.27", false},
		{"a boot since, an agent of before noted it", "k1.7", false},
		{"nothing noted", "", false},
	} {
		assert.Equal(t, c.same, nodedisk.SameBoot(c.noted, "k1.77.27"), c.name)
	}
}

func TestSoftRebooted(t *testing.T) {
	for _, c := range []struct {
		name, noted string
		soft        bool
	}{
		{"the same boot", "k1.77.90", false},
		{"another root, the same kernel", "k1.77.27", true},
		{"another kernel", "k2.77.27", false},
		{"another PID 1", "k1.12.27", false},
		{"an agent of before noted it", "k1.77", false},
		{"nothing noted", "", false},
	} {
		assert.Equal(t, c.soft, nodedisk.SoftRebooted(c.noted, "k1.77.90"), c.name)
	}
}
