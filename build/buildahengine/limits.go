package buildahengine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build"
)

// group is a control group that bounds the number of a build's processes.
type group struct{ dir string }

// newGroup makes a group under the pids controller (version 1 or 2) and puts the child in before it is told what to do. Without the
// controller or the right to use it a build has no such bound, which is said in the log.
func newGroup(root string, pid, limit int, log *logrus.Entry) *group {
	if limit < 0 {
		return nil
	}
	name := groupPrefix(root) + strconv.Itoa(pid)
	for _, parent := range groupParents() {
		g := &group{dir: filepath.Join(parent, name)}
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(g.dir, "pids.max"), []byte(strconv.Itoa(limit)), 0) == nil &&
			os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) == nil {
			return g
		}
		_ = os.Remove(g.dir) // it is empty
	}
	log.WithField("limit", limit).Debug("the number of a build's processes cannot be bounded on this host")
	return nil
}

// groupParents are where the pids controller is, in version 1 and 2.
func groupParents() []string { return []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} }

// groupPrefix begins the names of the groups of one engine directory.
func groupPrefix(root string) string {
	sum := sha256.Sum256([]byte(root))
	return "dayone-build-" + hex.EncodeToString(sum[:6]) + "-"
}

// removeGroups takes away the groups that killed builders left; the caller holds the directory alone. One that has a process yet
// cannot be removed and is left to the next.
func removeGroups(root string) {
	for _, parent := range groupParents() {
		found, err := filepath.Glob(filepath.Join(parent, groupPrefix(root)+"*"))
		if err != nil {
			continue
		}
		for _, dir := range found {
			_ = os.Remove(dir)
		}
	}
}

func (g *group) remove() error {
	if g == nil {
		return nil
	}
	if err := os.Remove(g.dir); err != nil {
		return fmt.Errorf("remove control group: %w", err)
	}
	return nil
}

// diskGuard watches how much a build adds to storage. Free space of the file system is cheap to ask and says when to look closer,
// for others write there too; then the new layers are measured.
type diskGuard struct {
	dir    string
	limit  int64
	before uint64
	known  map[string]bool
	asked  uint64
}

func newDiskGuard(dir string, limit int64) *diskGuard {
	if limit == 0 {
		limit = build.DefaultDiskLimit
	}
	d := &diskGuard{dir: dir, limit: limit, before: free(filepath.Dir(dir)), known: map[string]bool{}}
	for _, layer := range d.layers() {
		d.known[layer] = true
	}
	d.asked = d.before
	return d
}

func free(dir string) uint64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0
	}
	return s.Bfree * uint64(s.Bsize)
}

func (d *diskGuard) layers() []string {
	var out []string
	for _, pattern := range []string{"overlay/*/diff", "vfs/dir/*"} {
		found, err := filepath.Glob(filepath.Join(d.dir, pattern))
		if err == nil {
			out = append(out, found...)
		}
	}
	return out
}

// over measures when free space has gone down by the limit, and again after each further sixteenth.
func (d *diskGuard) over() (int64, bool) {
	if d.limit < 0 {
		return 0, false
	}
	now := free(filepath.Dir(d.dir))
	if now+uint64(d.limit) > d.before || d.asked < now+uint64(d.limit)/16 {
		return 0, false
	}
	d.asked = now
	var used int64
	for _, layer := range d.layers() {
		if !d.known[layer] {
			used += sizeOf(layer)
		}
	}
	return used, used > d.limit
}

// sizeOf sums blocks; files that go away meanwhile do not count.
func sizeOf(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(path, &st) == nil {
			sum += st.Blocks * 512 // stat(2): in units of 512 bytes whatever the file system's are
		}
		return nil
	})
	return sum
}
