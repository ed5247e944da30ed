package layout

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// budgetStep is how many bytes an upload reserves at once: the disk's free space is asked for that often.
const budgetStep = 8 << 20

// reserve takes n bytes of the budget ahead of writing, in steps.
func (u *Upload) reserve(n int64) error {
	need := u.size + n - u.reserved
	if need <= 0 {
		return nil
	}
	step := max(need, budgetStep)
	if err := u.s.take(step); err != nil { // the last step may be smaller
		if step = need; u.s.take(step) != nil {
			return err
		}
	}
	u.reserved += step
	return nil
}

// Room tells whether n more bytes fit into the budget: an ErrNoSpace says how much is there.
func (s *Store) Room(n int64) error {
	if err := s.take(n); err != nil {
		return err
	}
	s.give(n, n)
	return nil
}

// take counts n bytes as used and as not yet written, unless they do not fit.
func (s *Store) take(n int64) error {
	used, unwritten := s.used.Add(n), s.unwritten.Add(n)
	if s.o.MaxBytes > 0 && used > s.o.MaxBytes {
		s.give(n, n)
		return fmt.Errorf(
			"%w: %d bytes are needed, %d of %d are used; delete images and run garbage collection, or raise the limit",
			ErrNoSpace, n, used-n, s.o.MaxBytes)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(s.root, &st); err != nil {
		s.give(n, n)
		return fmt.Errorf("ask for free space: %w", err)
	}
	if free := int64(st.Bavail) * st.Bsize; free-unwritten < s.o.MinFreeBytes {
		s.give(n, n)
		return fmt.Errorf("%w: %d bytes are needed, %d are free and %d of them are kept; free space on the disk of %s",
			ErrNoSpace, n, free, s.o.MinFreeBytes, s.base)
	}
	return nil
}

func (s *Store) give(used, unwritten int64) {
	s.used.Add(-used)
	s.unwritten.Add(-unwritten)
}
