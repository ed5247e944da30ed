package storage

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// changed is when a file's content or owner was changed last.
func changed(st *syscall.Stat_t) int64 { return st.Ctim.Nano() }

// forget lets memory go of a file.
func forget(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }

// writeBack lets the disk begin to write a part of a file.
func writeBack(f *os.File, from, size int64) error {
	return unix.SyncFileRange(int(f.Fd()), from, size, unix.SYNC_FILE_RANGE_WRITE)
}
