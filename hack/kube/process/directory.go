package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFile lies in every directory; the kernel drops its lock when the process that holds it dies.
const lockFile = "lock"

// Directory belongs to this process: when it dies without Close, the next Sweep of the same parent removes it.
type Directory struct {
	Path string

	lock *os.File
}

// Open makes a new directory below parent, named name with a random end.
func Open(parent, name string) (*Directory, error) {
	guard, err := guard(parent, name)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	path, err := os.MkdirTemp(parent, name+"-")
	if err != nil {
		return nil, fmt.Errorf("create directory of the run: %w", err)
	}
	l, err := lock(filepath.Join(path, lockFile), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &Directory{Path: path, lock: l}, nil
}

// guard keeps directories from being made and swept at the same time.
func guard(parent, name string) (*os.File, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("create directory of runs: %w", err)
	}
	return lock(filepath.Join(parent, "."+name+".lock"), unix.LOCK_EX)
}

// Close removes the directory and then lets go of its lock: no Sweep removes it beside this. A second call is harmless.
func (d *Directory) Close() error {
	err := os.RemoveAll(d.Path)
	if closed := d.lock.Close(); !errors.Is(closed, os.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

// Lock is the file whose lock says that the directory's owner lives. A process that inherits it owns the directory as
// well.
func (d *Directory) Lock() *os.File { return d.lock }

// Alive says whether the owner of a directory lives.
func Alive(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Sweep lets remove work on the directories below parent whose processes are dead, and then deletes them; remove may be
// nil. Where it fails the directory stays for the next time.
func Sweep(parent, name string, remove func(dir string) error) error {
	guard, err := guard(parent, name)
	if err != nil {
		return err
	}
	defer guard.Close()
	locks, err := filepath.Glob(filepath.Join(parent, name+"-*", lockFile))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range locks {
		if err := sweep(path, remove); err != nil {
			errs = append(errs, fmt.Errorf("remove what a dead process left in %s: %w", filepath.Dir(path), err))
		}
	}
	return errors.Join(errs...)
}

func sweep(path string, remove func(dir string) error) error {
	held, err := os.Open(path) // a lock that is gone is not made again: its owner is removing the directory
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil // somebody lives
	} else if err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	if remove != nil {
		if err := remove(dir); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

func lock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}
