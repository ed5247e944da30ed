package build

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockInterval is how often a build looks whether the same build elsewhere has ended.
const lockInterval = 50 * time.Millisecond

// lockFile takes an exclusive lock that the kernel drops when the process dies.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	for unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = f.Close() // nothing was written
			return nil, fmt.Errorf("wait for the same build elsewhere: %w", ctx.Err())
		}
	}
	return func() { _ = f.Close() }, nil
}
