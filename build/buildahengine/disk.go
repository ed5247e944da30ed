package buildahengine

import (
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build"
)

// diskGuard watches how much a build adds to storage. Free space of the file system is cheap to ask and says when to
// measure, because others write there too.
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

// outOfInodes says whether a file system has room, but no inode for another file. Of those that make inodes as they
// need them it never is so.
func outOfInodes(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && s.Files > 0 && s.Ffree == 0 && s.Bavail > 0
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
