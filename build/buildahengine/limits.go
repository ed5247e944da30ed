package buildahengine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build"
)

// group is a control group that bounds the number of a build's processes. An OCI runtime makes groups of the same name below those
// of this process, in every controller.
type group struct{ name string }

// newGroup makes a group under the pids controller (version 1 or 2) and puts the child in before it is told what to do. Without the
// controller or the right to use it a build has no such bound, which is said in the log.
func newGroup(root string, pid, limit int, log *logrus.Entry) *group {
	g := &group{name: groupPrefix(root) + strconv.Itoa(pid)}
	if limit < 0 {
		return g
	}
	for _, parent := range groupParents() {
		dir := filepath.Join(parent, g.name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(limit)), 0) == nil &&
			os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) == nil {
			return g
		}
		_ = os.Remove(dir) // it is empty
	}
	log.WithField("limit", limit).Debug("the number of a build's processes cannot be bounded on this host")
	return g
}

// groupsMounted is where control groups are (systemd's file hierarchy, and every container's).
const groupsMounted = "/sys/fs/cgroup"

// groupParents are where the pids controller is, in version 1 and 2.
func groupParents() []string { return []string{filepath.Join(groupsMounted, "pids"), groupsMounted} }

// groupPlaces are all directories in which groups of a build can be: our own, and those where a runtime makes its.
func groupPlaces() []string {
	places := groupParents()
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return places
	}
	for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		fields := strings.SplitN(line, ":", 3) // number, controllers, path: cgroups(7)
		if len(fields) != 3 {
			continue
		}
		controllers := strings.TrimPrefix(fields[1], "name=")
		if controllers == "" { // version 2, alone or beside version 1
			places = append(places, filepath.Join(groupsMounted, fields[2]), filepath.Join(groupsMounted, "unified", fields[2]))
			continue
		}
		places = append(places, filepath.Join(groupsMounted, controllers, fields[2]))
	}
	return places
}

// groupPrefix begins the names of the groups of one engine directory.
func groupPrefix(root string) string {
	sum := sha256.Sum256([]byte(root))
	return "dayone-build-" + hex.EncodeToString(sum[:6]) + "-"
}

// removeGroups takes away the groups that killed builders left; the caller holds the directory alone. One that has a process yet
// cannot be removed and is left to the next.
func removeGroups(root string) { _ = removeNamed(groupPrefix(root) + "*") }

// removeNamed removes matching groups with those below them.
func removeNamed(pattern string) error {
	var all []error
	for _, parent := range groupPlaces() {
		found, err := filepath.Glob(filepath.Join(parent, pattern))
		if err != nil {
			return fmt.Errorf("list control groups: %w", err)
		}
		for _, dir := range found {
			all = append(all, removeGroup(dir))
		}
	}
	return errors.Join(all...)
}

// removeGroup removes inner groups first; the files in a group go with it.
func removeGroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list control group: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove control group: %w", err)
	}
	return nil
}

func (g *group) remove() error { return removeNamed(g.name) }

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
