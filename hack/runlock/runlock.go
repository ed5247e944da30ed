// Package runlock tells living runs from dead ones, so that the next run can remove what a dead one left.
//
//	Take(file) -> descriptor that children inherit -> Held(file): alive? -> IfDead(file, remove)
package runlock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// lookWait bounds how long Held and IfDead of other processes keep Take waiting: some system calls, on a busy machine.
	lookWait = 10 * time.Second
	lookPoll = 20 * time.Millisecond
)

// Take makes the file and locks it. The lock ends with the last process that has the descriptor: a child that inherits
// it keeps the run alive. That is why this is not a flock.Flock, which keeps its descriptor to itself.
func Take(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(context.Background(), lookPoll, lookWait, true,
		func(context.Context) (bool, error) {
			err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			if errors.Is(err, unix.EWOULDBLOCK) {
				return false, nil
			}
			return err == nil, err
		})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// existing is a lock on a file that it does not make: the owner of a missing one is removing it.
func existing(path string) *flock.Flock { return flock.New(path, flock.SetFlag(os.O_RDONLY)) }

// Held says whether a living process has the lock.
func Held(path string) bool {
	l := existing(path)
	free, err := l.TryRLock()
	if free {
		_ = l.Unlock() // nothing was written
	}
	return !free && err == nil
}

// IfDead calls remove while it holds the lock, unless a living process has it or the file is gone.
func IfDead(path string, remove func() error) (err error) {
	l := existing(path)
	dead, err := l.TryLock()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	if !dead {
		return nil
	}
	defer func() { err = errors.Join(err, l.Unlock()) }()
	return remove()
}
