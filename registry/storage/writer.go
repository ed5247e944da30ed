package storage

import (
	"context"
	"errors"
	"fmt"
	"os"

	storagedriver "github.com/distribution/distribution/v3/registry/storage/driver"
	"golang.org/x/sys/unix"
)

const (
	// copyBuffer is the size of reads from clients and of writes to disk.
	copyBuffer = 256 << 10
	// flushStep is how many bytes are received before the disk is asked to write them.
	flushStep = 8 << 20
)

// writer appends to the data of one upload within the budget. Its reservation ends with it.
type writer struct {
	file     *os.File
	budget   *budget
	size     int64
	reserved int64 // size and what the budget holds for more
	flushed  int64 // bytes that the disk was asked to write
	closed   bool
}

var _ storagedriver.FileWriter = (*writer)(nil)

// Size implements storagedriver.FileWriter.
func (w *writer) Size() int64 { return w.size }

// Write implements storagedriver.FileWriter. Of p it takes all or nothing.
func (w *writer) Write(p []byte) (int, error) {
	if err := w.reserve(int64(len(p))); err != nil {
		return 0, err
	}
	n, err := w.file.WriteAt(p, w.size)
	if err != nil { // these bytes were not received: cut what may have been written of them
		return 0, errors.Join(fmt.Errorf("write upload (%d of %d bytes): %w", n, len(p), known(err)),
			w.file.Truncate(w.size))
	}
	w.size += int64(n)
	w.budget.give(0, int64(n))
	return n, w.writeBack()
}

// reserve takes n bytes of the budget before they are written, in steps.
func (w *writer) reserve(n int64) error {
	need := w.size + n - w.reserved
	if need <= 0 {
		return nil
	}
	step := max(need, min(w.size, budgetStep))  // as much again as there is: small uploads hold little
	if err := w.budget.take(step); err != nil { // the last step may be smaller
		if step = need; w.budget.take(step) != nil {
			return err
		}
	}
	w.reserved += step
	return nil
}

// writeBack lets the disk write while the client sends, so that the sync at the end finds little to do.
func (w *writer) writeBack() error {
	if w.size-w.flushed < flushStep {
		return nil
	}
	err := writeBack(w.file, w.flushed, w.size-w.flushed)
	w.flushed = w.size
	// not every file system has it, the sync does it all
	if err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ESPIPE) {
		return fmt.Errorf("write upload: %w", known(err))
	}
	return nil
}

// Commit implements storagedriver.FileWriter: the bytes are on disk.
func (w *writer) Commit(context.Context) error {
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync upload: %w", known(err))
	}
	return nil
}

// Close implements storagedriver.FileWriter. What was received stays for a client that resumes.
func (w *writer) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	w.budget.give(w.reserved-w.size, w.reserved-w.size)
	return w.file.Close()
}

// Cancel implements storagedriver.FileWriter. Distribution deletes the upload's directory after it.
func (w *writer) Cancel(context.Context) error { return w.Close() }
