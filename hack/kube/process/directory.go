package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"dayone.dev/dayone/hack/runlock"
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
	l, err := runlock.Take(filepath.Join(path, lockFile))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &Directory{Path: path, lock: l}, nil
}

// guard keeps directories from being made and swept at the same time.
func guard(parent, name string) (*flock.Flock, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("create directory of runs: %w", err)
	}
	l := flock.New(filepath.Join(parent, "."+name+".lock"))
	return l, l.Lock()
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
func Alive(dir string) bool { return runlock.Held(filepath.Join(dir, lockFile)) }

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
		dir := filepath.Dir(path)
		err := runlock.IfDead(path, func() error {
			if remove != nil {
				if err := remove(dir); err != nil {
					return err
				}
			}
			return os.RemoveAll(dir)
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("remove what a dead process left in %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
