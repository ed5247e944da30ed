package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
)

// Where what was there before a config is kept, so that it comes back when the config no longer has the path. The
// places are MCO's (pkg/daemon/constants): a node may move from one to the other.
const (
	// OriginalsDir has the node's own files under their paths; NoOriginalsDir has an empty file for a path where there was
	// none.
	OriginalsDir   = "/etc/machine-config-daemon/orig"
	NoOriginalsDir = "/etc/machine-config-daemon/noorig"
)

// keep copies what is at a path before the first config that has it; later configs find that it was kept.
func (h Host) keep(p string) error {
	original, none := filepath.Join(h.Root, OriginalsDir, p), filepath.Join(h.Root, NoOriginalsDir, p)
	for _, known := range []string{original, none} {
		if _, err := os.Lstat(known); err == nil {
			return nil
		}
	}
	at := filepath.Join(h.Root, p)
	info, err := os.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return replaceFile(none, entry{path: p, mode: defaultMode})
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return errors.New("it is a directory: remove it, or give the file another path")
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(at)
		if err != nil {
			return err
		}
		return replaceLink(original, target)
	}
	data, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	uid, gid := owner(info)
	return replaceFile(original, entry{path: p, data: data, mode: info.Mode(), uid: uid, gid: gid})
}

// giveBack takes a file of a former config away and puts back what was kept. That stays kept until Forget: a plan that
// does not come to its end may be followed by one that has the path again. had says that the node has a config with the
// path; where none has, and nothing was kept, no config has come to it either, and what is there is the node's own.
func (h Host) giveBack(p string, had bool) error {
	original, err := h.original(p)
	if err != nil {
		return fmt.Errorf("put back %s: %w", p, err)
	}
	_, err = os.Lstat(filepath.Join(h.Root, NoOriginalsDir, p))
	none := err == nil
	switch {
	case original != nil:
		if err := h.putBack(*original); err != nil {
			return fmt.Errorf("put back %s: %w", p, err)
		}
	case none || had:
		if err := h.takeAway(p, none); err != nil {
			return fmt.Errorf("remove %s: %w", p, err)
		}
	}
	return nil
}

// original is what was kept of a path; nil: nothing.
func (h Host) original(p string) (*entry, error) {
	at := filepath.Join(h.Root, OriginalsDir, p)
	info, err := os.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e := entry{path: p, mode: info.Mode()}
	e.uid, e.gid = owner(info)
	if info.Mode()&fs.ModeSymlink != 0 {
		e.link, err = os.Readlink(at)
	} else {
		e.data, err = os.ReadFile(at)
	}
	return &e, err
}

// putBack writes what was kept unless it is there already.
func (h Host) putBack(e entry) error {
	if why, err := h.compare(e); err != nil || why == "" {
		return err
	}
	return h.write(e)
}

// takeAway removes what a config brought, and puts the OS image's own copy there unless none says that the node had
// nothing there.
func (h Host) takeAway(p string, none bool) error {
	at, err := h.at(p)
	if err != nil {
		return err
	}
	if err := h.giveBackStock(p, at, none); err != nil {
		return err
	}
	return syncDir(filepath.Dir(at))
}

// Forget drops what was kept of paths that former configs have and now has not: it was given back, and now is verified.
func (h Host) Forget(now ign35.Config, former ...ign35.Config) error {
	stays := h.places([]ign35.Config{now})
	for _, p := range sorted(h.places(former)) {
		if _, has := stays[p]; has {
			continue
		}
		for _, dir := range []string{OriginalsDir, NoOriginalsDir} {
			at := filepath.Join(h.Root, dir, p)
			err := os.Remove(at)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = syncDir(filepath.Dir(at))
			}
			if err != nil {
				return fmt.Errorf("forget what was at %s: %w", p, err)
			}
		}
	}
	return nil
}

// giveBackStock puts the OS image's own copy at a path of /etc of which nothing was kept, because Ignition wrote it
// before there was an agent; where the image has none, or the agent has noted that there was none, nothing stays.
func (h Host) giveBackStock(p, at string, none bool) error {
	stock := filepath.Join(h.Root, "/usr", p)
	info, err := os.Lstat(stock)
	if err != nil || none || !strings.HasPrefix(p, etc) || !info.Mode().IsRegular() {
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := os.ReadFile(stock)
	if err != nil {
		return err
	}
	uid, gid := owner(info)
	return replaceFile(at, entry{path: p, data: data, mode: info.Mode(), uid: uid, gid: gid})
}
