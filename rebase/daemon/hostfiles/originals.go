package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Where what was there before a config is kept, so that it comes back when the config no longer has the pato. The
// places are MCO's (pkg/daemon/constants): a node may move from one to the other.
const (
	// OriginalsDir has the node's own files under their paths; NoOriginalsDir has an empty file for a path where there was
	// none.
	OriginalsDir   = "/etc/machine-config-daemon/orig"
	NoOriginalsDir = "/etc/machine-config-daemon/noorig"
)

// originals keeps what the node had at the paths of configs.
type originals struct{ tree }

// keep copies what is at a path before the first config that has it; later configs find that it was kept.
func (o originals) keep(p string) error {
	original, none := filepath.Join(o.root, OriginalsDir, p), filepath.Join(o.root, NoOriginalsDir, p)
	for _, known := range []string{original, none} {
		if _, err := os.Lstat(known); err == nil {
			return nil
		}
	}
	at := filepath.Join(o.root, p)
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
func (o originals) giveBack(p string, had bool) error {
	original, err := o.original(p)
	if err != nil {
		return fmt.Errorf("put back %s: %w", p, err)
	}
	_, err = os.Lstat(filepath.Join(o.root, NoOriginalsDir, p))
	none := err == nil
	switch {
	case original != nil:
		if err := o.put(*original); err != nil {
			return fmt.Errorf("put back %s: %w", p, err)
		}
	case none || had:
		if err := o.takeAway(p, none); err != nil {
			return fmt.Errorf("remove %s: %w", p, err)
		}
	}
	return nil
}

// original is what was kept of a path; nil: nothing.
func (o originals) original(p string) (*entry, error) {
	at := filepath.Join(o.root, OriginalsDir, p)
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

// takeAway removes what a config brought, and puts the OS image's own copy there unless none says that the node had
// nothing there.
func (o originals) takeAway(p string, none bool) error {
	at, err := o.at(p)
	if err != nil {
		return err
	}
	if err := o.giveBackBase(p, at, none); err != nil {
		return err
	}
	return syncDir(filepath.Dir(at))
}

// forget drops what was kept of a pato.
func (o originals) forget(p string) error {
	for _, dir := range []string{OriginalsDir, NoOriginalsDir} {
		at := filepath.Join(o.root, dir, p)
		err := os.Remove(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := syncDir(filepath.Dir(at)); err != nil {
			return err
		}
	}
	return nil
}

// dirs adds the directories in which something was kept.
func (o originals) dirs(to map[string]bool) error {
	for _, kept := range []string{OriginalsDir, NoOriginalsDir} {
		err := filepath.WalkDir(filepath.Join(o.root, kept), func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				to[p] = true
			}
			return ignoreMissing(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// giveBackBase puts the OS image's own copy at a path of /etc of which nothing was kept, because Ignition wrote it
// before there was an agent; where the image has none, or the agent has noted that there was none, nothing stays.
func (o originals) giveBackBase(p, at string, none bool) error {
	base := filepath.Join(o.root, "/usr", p)
	info, err := os.Lstat(base)
	if err != nil || none || !strings.HasPrefix(p, etc) || !info.Mode().IsRegular() {
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := os.ReadFile(base)
	if err != nil {
		return err
	}
	uid, gid := owner(info)
	return replaceFile(at, entry{path: p, data: data, mode: info.Mode(), uid: uid, gid: gid})
}
