package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// replaceFile puts a file in place of what is there, so that a power cut leaves the one or the other. It is not
// renameio's work: a killed agent's unfinished file is among the admin's, and Sweep must know it by its name.
func replaceFile(at string, e entry) error {
	if err := os.MkdirAll(filepath.Dir(at), dirMode); err != nil {
		return fmt.Errorf("write %s: %w", at, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(at), unfinished)
	if err != nil {
		return fmt.Errorf("write %s: %w", at, err)
	}
	_, err = tmp.Write(e.data)
	// The owner first: a change of owner takes setuid and setgid away.
	err = errors.Join(err, tmp.Chown(e.uid, e.gid), tmp.Chmod(e.mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), at)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", at, err), os.Remove(tmp.Name()))
	}
	return syncDir(filepath.Dir(at))
}

// replaceLink puts a symbolic link in place of what is there.
func replaceLink(at, target string) error {
	if err := os.MkdirAll(filepath.Dir(at), dirMode); err != nil {
		return fmt.Errorf("link %s: %w", at, err)
	}
	tmp := filepath.Join(filepath.Dir(at), unfinished+"link-"+filepath.Base(at))
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("link %s: %w", at, err)
	}
	if err := os.Symlink(target, tmp); err != nil {
		return fmt.Errorf("link %s: %w", at, err)
	}
	if err := os.Rename(tmp, at); err != nil {
		return errors.Join(fmt.Errorf("link %s: %w", at, err), os.Remove(tmp))
	}
	return syncDir(filepath.Dir(at))
}

// syncDir makes renames in a directory survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

func owner(info fs.FileInfo) (uid, gid int) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), int(s.Gid)
	}
	return 0, 0
}
