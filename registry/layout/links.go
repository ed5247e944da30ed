package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

const maxLinkBytes = 256 // a sha512 digest has 135 bytes

// readLink returns the digest that a link file names. os.Open would ask the runtime's poller about the file, four more
// system calls, and a push reads a link for each of its layers.
func readLink(path string) (digest.Digest, error) {
	fd, err := uninterrupted(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return "", notFound(&fs.PathError{Op: "open", Path: path, Err: err})
	}
	var buf [maxLinkBytes]byte
	n, err := uninterrupted(func() (int, error) { return unix.Read(fd, buf[:]) })
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return "", fmt.Errorf("read link %s: %w", path, err)
	}
	d, err := ParseDigest(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		return "", fmt.Errorf("read link %s: %w", path, err)
	}
	return d, nil
}

func uninterrupted(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// durability says what has to be on disk when a write returns.
type durability int

const (
	// volatile: nothing. Links whose path holds the digest are so: Check writes them again from their path.
	volatile durability = iota
	// bytesSynced: the bytes, before the name. The name follows with the next nameSynced: ext4 and xfs keep the order of
	// their journal.
	bytesSynced
	// nameSynced: bytes and name, and with them all that was named before.
	nameSynced
)

// linkDurability is what a link of a blob or manifest needs: the path of a sha512 does not tell which bytes it means.
func linkDurability(d, target digest.Digest) durability {
	if d == target {
		return volatile
	}
	return bytesSynced
}

// writeLink makes a link appear whole.
func (s *Store) writeLink(path string, d digest.Digest, how durability) error {
	return s.writeFile(path, []byte(d), how)
}

// copyLink makes path a link like from, by a second name for its file: making a file costs ten times as much. Links are
// replaced and never written in place, by distribution too, so that they can share one. Where that is not possible,
// path gets a file of its own.
func (s *Store) copyLink(from, path string, d digest.Digest, how durability) error {
	if how == volatile {
		if s.makeDir(filepath.Dir(path)) == nil && os.Link(from, path) == nil {
			return nil
		}
	}
	return s.writeLink(path, d, how)
}

// moveLink makes path, which may exist, a link like from, whose bytes are on disk already.
func (s *Store) moveLink(from, path string, d digest.Digest, how durability) error {
	if old, err := readLink(path); err != nil || old != d {
		tmp := path + tempInfix + uuid.NewString()
		if os.Link(from, tmp) != nil || os.Rename(tmp, path) != nil {
			return errors.Join(ignoreMissing(os.Remove(tmp)), s.writeLink(path, d, how))
		}
	}
	if how == nameSynced {
		return syncDir(filepath.Dir(path))
	}
	return nil
}

// newFile is a file that is to appear whole.
type newFile struct {
	path string
	data []byte
}

func (s *Store) writeFile(path string, data []byte, how durability) error {
	return s.writeFiles(how, newFile{path, data})
}

// writeFiles makes files appear in the order given, each whole. Their bytes are synced at the same time and all before
// the first name is there: the disk waits once for all of them. nameSynced is for the last one.
func (s *Store) writeFiles(how durability, files ...newFile) (err error) {
	if len(files) == 0 {
		return nil
	}
	last := files[len(files)-1].path
	open := make([]*os.File, 0, len(files))
	defer func() {
		for _, f := range open {
			err = errors.Join(err, ignoreMissing(os.Remove(f.Name())), f.Close())
		}
		if err != nil {
			err = fmt.Errorf("write %s: %w", filepath.Base(last), noSpace(err))
		}
	}()
	for _, nf := range files {
		f, err := s.createTemporary(nf.path)
		if err != nil {
			return err
		}
		open = append(open, f)
		if _, err := f.Write(nf.data); err != nil {
			return err
		}
	}
	if how != volatile {
		if err := syncAll(open); err != nil {
			return err
		}
	}
	for _, nf := range files {
		if err := s.rename(open[0].Name(), nf.path); err != nil {
			return err
		}
		f := open[0]
		open = open[1:]
		if err := f.Close(); err != nil {
			return err
		}
	}
	if how == nameSynced {
		return syncDir(filepath.Dir(last))
	}
	return nil
}

// createTemporary opens an empty file that is to be renamed to path.
func (s *Store) createTemporary(path string) (*os.File, error) {
	if f := s.stock.file(); f != nil {
		return f, nil
	}
	tmp := path + tempInfix + uuid.NewString()
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if errors.Is(err, fs.ErrNotExist) && s.makeDir(filepath.Dir(path)) == nil {
		return os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	}
	return f, err
}

func syncAll(files []*os.File) error {
	if len(files) == 1 {
		return files[0].Sync()
	}
	errs := make([]error, len(files))
	var wg sync.WaitGroup
	for i, f := range files {
		wg.Go(func() { errs[i] = f.Sync() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}
