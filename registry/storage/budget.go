package storage

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// budgetStep is how many bytes a writer reserves at once at most: the disk's free space is asked for that often.
const budgetStep = 8 << 20

// budget counts the bytes of blobs and of uploads under way.
type budget struct {
	root              string
	maxBytes, minFree int64

	used      atomic.Int64 // with what writers have reserved
	unwritten atomic.Int64 // of these, bytes that are reserved and not yet on disk
}

// take counts n bytes as used and as not yet written, unless they do not fit.
func (b *budget) take(n int64) error {
	used, unwritten := b.used.Add(n), b.unwritten.Add(n)
	if b.maxBytes > 0 && used > b.maxBytes {
		b.give(n, n)
		return fmt.Errorf(
			"%w: %d bytes are needed, %d of %d are used; delete images and run garbage collection, or raise the limit",
			ErrNoSpace, n, used-n, b.maxBytes)
	}
	free, err := b.free()
	if err != nil {
		b.give(n, n)
		return err
	}
	if free-unwritten < b.minFree {
		b.give(n, n)
		return fmt.Errorf("%w: %d bytes are needed, %d are free and %d of them are kept; free space on the disk of %s",
			ErrNoSpace, n, free, b.minFree, b.root)
	}
	return nil
}

func (b *budget) free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(b.root, &st); err != nil {
		return 0, fmt.Errorf("ask for free space: %w", err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// left is the largest number that take accepts.
func (b *budget) left() (int64, error) {
	n, err := b.free()
	if err != nil {
		return 0, err
	}
	n -= b.unwritten.Load() + b.minFree
	if b.maxBytes > 0 {
		n = min(n, b.maxBytes-b.used.Load())
	}
	return max(n, 0), nil
}

func (b *budget) give(used, unwritten int64) {
	b.used.Add(-used)
	b.unwritten.Add(-unwritten)
}
