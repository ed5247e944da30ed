package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// lockPoll is how often a process that waits for another one's build looks again.
const lockPoll = 100 * time.Millisecond

// KeepUnused is how long an entry that nobody asked for stays. A month outlives a holiday; a disk outlives many
// recipes.
const KeepUnused = 30 * 24 * time.Hour

// Store keeps directories that are made once: complete under their name, or not there.
type Store struct{ Dir string }

// Ensure returns Dir/name. When it is not there, make fills a temporary directory beside it that is then renamed; a
// lock keeps a second process from making it as well. What a dead process left half made is removed, and so are entries
// unused for KeepUnused.
func (s Store) Ensure(ctx context.Context, name string, make func(dir string) error) (string, error) {
	final := filepath.Join(s.Dir, name)
	if isDir(final) {
		return final, s.used(final)
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return "", fmt.Errorf("create cache: %w", err)
	}
	lock := flock.New(final+".lock", flock.SetPermissions(0o644))
	if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
		return "", fmt.Errorf("wait for the process that builds %s: %w", final, err)
	}
	defer lock.Close()
	if isDir(final) {
		return final, nil
	}
	if err := s.prune(); err != nil {
		return "", err
	}
	if err := s.sweep(name); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(s.Dir, name+".tmp-")
	if err != nil {
		return "", fmt.Errorf("create cache entry: %w", err)
	}
	if err := finish(tmp, final, make); err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	return final, nil
}

func finish(tmp, final string, make func(dir string) error) error {
	if err := make(tmp); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, final)
}

// sweep removes what a dead process left of name. The lock is held, so nobody works there.
func (s Store) sweep(name string) error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return fmt.Errorf("read cache: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name+".tmp-") {
			if err := os.RemoveAll(filepath.Join(s.Dir, e.Name())); err != nil {
				return fmt.Errorf("remove half made cache entry: %w", err)
			}
		}
	}
	return nil
}

// used marks an entry as asked for now. Where the cache may only be read, nothing ages.
func (s Store) used(path string) error {
	now := time.Now()
	err := os.Chtimes(path, now, now)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// prune removes entries unused for KeepUnused.
func (s Store) prune() error {
	locks, err := filepath.Glob(filepath.Join(s.Dir, "*.lock"))
	if err != nil {
		return err
	}
	for _, lock := range locks {
		entry := strings.TrimSuffix(lock, ".lock")
		st, err := os.Stat(entry)
		if err != nil || time.Since(st.ModTime()) < KeepUnused {
			continue // gone, being made, or in use
		}
		if err := errors.Join(os.RemoveAll(entry), os.Remove(lock)); err != nil {
			return fmt.Errorf("remove unused cache entry: %w", err)
		}
	}
	return nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// Env is the environment variable that overrides the cache directory.
const Env = "DAYONE_CACHE"

// Dir is $DAYONE_CACHE, else dayone under the user's cache directory ($XDG_CACHE_HOME or ~/.cache).
func Dir() (string, error) {
	if dir := os.Getenv(Env); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w (set %s)", err, Env)
	}
	return filepath.Join(base, "dayone"), nil
}
