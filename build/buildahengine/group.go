package buildahengine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/sirupsen/logrus"
)

// bounds are what a control group holds a build to; 0 and less mean no bound.
type bounds struct {
	processes int
	memory    int64 // bytes
}

// group is a control group that bounds a build's processes and memory. An OCI runtime makes groups of the same name
// below those of this process, in every controller.
type group struct {
	name string
	// dirs are the groups that were made, by controller.
	dirs map[string]string
}

// newGroup makes a group under the pids and the memory controller (version 1 or 2) and puts the child in before it is
// told what to do. Without a controller or the right to use it a build has no such bound, which is said in the log.
func newGroup(root string, pid int, b bounds, log *logrus.Entry) *group {
	g := &group{name: groupPrefix(root) + strconv.Itoa(pid), dirs: map[string]string{}}
	rememberPlaces(root)
	if b.processes > 0 && !g.bound("pids", pid, strconv.Itoa(b.processes), "pids.max") {
		log.WithField("limit", b.processes).Debug("the number of a build's processes cannot be bounded on this host")
	}
	if b.memory > 0 && !g.bound("memory", pid, strconv.FormatInt(b.memory, 10), "memory.max", "memory.limit_in_bytes") {
		log.WithField("limit", b.memory).Debug("the memory of a build cannot be bounded on this host")
	}
	return g
}

// bound makes a group under the controller where that is possible. The file with the limit has one of the names.
func (g *group) bound(controller string, pid int, limit string, names ...string) bool {
	for _, parent := range controllerPlaces(controller) {
		dir := filepath.Join(parent, g.name)
		made := os.Mkdir(dir, 0o755)
		if made != nil && !errors.Is(made, fs.ErrExist) { // version 2 has one group for all controllers
			continue
		}
		for _, name := range names {
			// Opened without O_CREATE: in a group a file is there or cannot be made.
			if put(filepath.Join(dir, name), limit) == nil && put(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)) == nil {
				g.dirs[controller] = dir
				return true
			}
		}
		if made == nil {
			_ = os.Remove(dir) // it is empty
		}
	}
	return false
}

func put(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// outOfMemory reports whether the kernel has ended a process in this group because of its limit.
func (g *group) outOfMemory() bool {
	if g == nil || g.dirs["memory"] == "" {
		return false
	}
	// Version 1 does not count what was ended in groups of a runtime below this one, but how often the limit was reached.
	if raw, err := os.ReadFile(filepath.Join(g.dirs["memory"], "memory.failcnt")); err == nil {
		return strings.TrimSpace(string(raw)) != "0"
	}
	raw, err := os.ReadFile(filepath.Join(g.dirs["memory"], "memory.events"))
	for _, line := range strings.Split(string(raw), "\n") {
		if count, found := strings.CutPrefix(line, "oom_kill "); err == nil && found {
			return count != "0"
		}
	}
	return false
}

// groupsMounted is where control groups are (systemd's file hierarchy, and every container's).
const groupsMounted = "/sys/fs/cgroup"

// controllerPlaces are where a group of ours can be made: below our own group, so that limits on this process hold;
// beside it, for version 2 gives no controllers to a group that has processes and children; at the top, where a
// container's own view begins.
func controllerPlaces(controller string) []string {
	var out []string
	for _, own := range ownGroups() {
		switch own.controllers {
		case controller:
			out = append(out, filepath.Join(groupsMounted, controller, own.path), filepath.Join(groupsMounted, controller))
		case "":
			out = append(out, filepath.Join(groupsMounted, own.path), filepath.Join(groupsMounted, filepath.Dir(own.path)),
				groupsMounted)
		}
	}
	return out
}

// ownGroup is one line of /proc/self/cgroup: cgroups(7).
type ownGroup struct{ controllers, path string }

func ownGroups() []ownGroup {
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var out []ownGroup
	for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		if fields := strings.SplitN(line, ":", 3); len(fields) == 3 {
			out = append(out, ownGroup{strings.TrimPrefix(fields[1], "name="), fields[2]})
		}
	}
	return out
}

// groupPlaces are all directories in which groups of a build can be: our own, and those where a runtime makes its.
func groupPlaces() []string {
	places := slices.Concat(controllerPlaces("pids"), controllerPlaces("memory"))
	for _, own := range ownGroups() {
		if own.controllers == "" { // version 2, alone or beside version 1
			places = append(places, filepath.Join(groupsMounted, "unified", own.path), filepath.Join(groupsMounted, "unified",
				filepath.Dir(own.path)))
			continue
		}
		places = append(places, filepath.Join(groupsMounted, own.controllers, own.path))
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// placesFile remembers where groups were made: the program that clears up after a kill may be in another group itself.
func placesFile(root string) string { return filepath.Join(root, "groups.json") }

// rememberPlaces adds the places of this process. What cannot be written is found by a process in the same group all
// the same.
func rememberPlaces(root string) {
	known := knownPlaces(root)
	all := slices.Concat(known, groupPlaces())
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == len(known) {
		return
	}
	raw, err := json.Marshal(all)
	if err == nil {
		_ = renameio.WriteFile(placesFile(root), raw, 0o600)
	}
}

func knownPlaces(root string) []string {
	var known []string
	raw, err := os.ReadFile(placesFile(root))
	if err != nil || json.Unmarshal(raw, &known) != nil {
		return nil
	}
	return known
}

// groupPrefix begins the names of the groups of one engine directory.
func groupPrefix(root string) string {
	sum := sha256.Sum256([]byte(root))
	return "dayone-build-" + hex.EncodeToString(sum[:6]) + "-"
}

const (
	// dying is how long processes of a killed build are waited for: the kernel ends them, but not at once.
	dying = time.Minute
	// dyingLook is how often.
	dyingLook = 10 * time.Millisecond
)

// removeGroups takes away the groups that killed builders left; the caller holds the directory alone.
func removeGroups(ctx context.Context, root string) error {
	ctx, cancel := context.WithTimeout(ctx, dying)
	defer cancel()
	tick := time.NewTicker(dyingLook)
	defer tick.Stop()
	places := slices.Concat(groupPlaces(), knownPlaces(root))
	for {
		err := removeNamed(places, groupPrefix(root)+"*")
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// removeNamed removes matching groups with those below them.
func removeNamed(places []string, pattern string) error {
	var all []error
	for _, parent := range places {
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

func (g *group) remove() error { return removeNamed(groupPlaces(), g.name) }
