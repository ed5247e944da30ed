package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFile is the lock's name in the state directory.
const lockFile = "lock"

// Lock keeps a second run off the same state directory. The kernel drops the lock with the process, however it
// ends. It is an open file description lock (fcntl(2), F_OFD_SETLK): unlike flock's, it can be looked at without being
// taken.
func Lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open state lock: %w", err)
	}
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole); err != nil {
		closeErr := f.Close()
		return nil, errors.Join(
			fmt.Errorf("another dayone bootstrap works in %s; wait for it, stop it, or give another --state-dir: %w", dir, err),
			closeErr)
	}
	return func() { _ = f.Close() }, nil // closing drops the lock; there is nothing to do about an error at the end
}

// Running says whether a dayone bootstrap works in a state directory now. A journal alone cannot tell: a killed process
// writes no last word.
func Running(stateDir string) (bool, error) {
	f, err := os.Open(filepath.Join(stateDir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open state lock: %w", err)
	}
	defer f.Close()
	probe := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &probe); err != nil {
		return false, fmt.Errorf("test state lock: %w", err)
	}
	return probe.Type != unix.F_UNLCK, nil
}
