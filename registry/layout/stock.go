package layout

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// stockDirs lets the layers of an image be mounted without waiting for directories, stockFiles is for a push or two at
	// once.
	stockDirs, stockFiles = 64, 8
	// stockPause is between attempts on a disk that cannot give any.
	stockPause = time.Second

	stockSubdir, unreadySubdir = ".dayone-registry.stock", "unready"
)

// stock holds empty directories and files that were made ahead, beside the tree. A request gives them their name by a
// rename: making them is most of a small push's time where a disk's allocation of inodes is slow. Nobody finds anything
// in it, so that nothing has to be kept over a restart: the next stock removes what a crash left. It is filled from the
// first push on; a request that finds it empty makes its own.
type stock struct {
	dir         string
	dirs, files chan string
	unused      chan string // directories that were taken and fit nowhere

	begin, end sync.Once
	stop       chan struct{}
	fillers    sync.WaitGroup
}

func newStock(dir string) *stock {
	return &stock{dir: dir, dirs: make(chan string, stockDirs), files: make(chan string, stockFiles),
		unused: make(chan string, stockFiles), stop: make(chan struct{})}
}

func (k *stock) start() {
	k.begin.Do(func() {
		k.fillers.Go(func() {
			// requests do without, and say what is wrong with the disk
			if os.RemoveAll(k.dir) != nil || os.MkdirAll(k.dir+"/"+unreadySubdir, dirMode) != nil {
				return
			}
			k.fillers.Go(func() {
				k.keepFull(k.files, func(path string) error { return os.WriteFile(path, nil, fileMode) })
			})
			k.keepFull(k.dirs, func(path string) error { return os.Mkdir(path, dirMode) })
		})
	})
}

// keepFull makes one after the other until it is stopped. A directory is locked while something is made in it, and a
// request that takes something from stock would wait for that: what is made comes to its place by a rename.
func (k *stock) keepFull(to chan<- string, create func(path string) error) {
	for {
		id := uuid.NewString()
		path, unready := k.dir+"/"+id, k.dir+"/"+unreadySubdir+"/"+id
		if err := errors.Join(create(unready), os.Rename(unready, path)); err != nil {
			select {
			case <-time.After(stockPause):
				continue
			case <-k.stop:
				return
			}
		}
		select {
		case to <- path:
		case <-k.stop:
			return
		}
	}
}

// name makes dir from stock. It tells whether there was one and dir's parent is there.
func (k *stock) name(dir string) bool {
	k.start()
	var from string
	select {
	case from = <-k.unused:
	default:
		select {
		case from = <-k.dirs:
		default:
			return false
		}
	}
	if os.Rename(from, dir) == nil {
		return true
	}
	if _, err := os.Lstat(from); err != nil {
		return false // another process on this root has cleared the stock away
	}
	select {
	case k.unused <- from:
	default:
		_ = os.Remove(from) // it is empty, and what stays goes with the stock
	}
	return false
}

// file is an empty file for reading and writing that has no name in the tree yet; nil when there is none.
func (k *stock) file() *os.File {
	k.start()
	select {
	case path := <-k.files:
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil { // the caller makes its own
			return nil
		}
		return f
	default:
		return nil
	}
}

// close ends the stock and removes what is left of it.
func (k *stock) close() {
	k.begin.Do(func() {})
	k.end.Do(func() { close(k.stop) })
	k.fillers.Wait()
	_ = os.RemoveAll(k.dir) // what stays goes when the next stock begins
}

// makeDir makes a directory whose parent is mostly there. os.MkdirAll would look at each before it makes one.
func (s *Store) makeDir(dir string) error {
	if s.stock.name(dir) {
		return nil
	}
	err := os.Mkdir(dir, dirMode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.makeDir(filepath.Dir(dir)); err != nil {
			return err
		}
		if s.stock.name(dir) {
			return nil
		}
		err = os.Mkdir(dir, dirMode)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// rename moves a file or directory to a name whose directory may have to be made.
func (s *Store) rename(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, fs.ErrNotExist) && s.makeDir(filepath.Dir(to)) == nil {
		return os.Rename(from, to)
	}
	return err
}
