package coreuser

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	shadow = "/etc/shadow"
	// shadowLock is what every program that changes passwords locks. Source: lckpwdf(3).
	shadowLock = "/etc/.pwd.lock"
	// lockLimit is how long lckpwdf waits.
	lockLimit = 15 * time.Second
	lockEvery = 50 * time.Millisecond
	// noPassword opens the account to no password. Source: shadow(5).
	noPassword = "*"
)

// ApplyPassword makes the core user's password that of after; where only before has one, no password opens the account.
// The hash is in no process's arguments.
func ApplyPassword(ctx context.Context, root string, before, after ign35.Config, now time.Time) error {
	old, hash := passwordOf(before), passwordOf(after)
	if old == hash {
		return nil
	}
	if hash == "" {
		hash = noPassword
	}
	if strings.ContainsAny(hash, ":\n") {
		return fmt.Errorf("set password of %s: the hash holds a colon or a line break", Name)
	}
	unlock, err := lockPasswords(ctx, filepath.Join(root, shadowLock))
	if err != nil {
		return fmt.Errorf("set password of %s: %w", Name, err)
	}
	return errors.Join(setPassword(root, hash, now), unlock())
}

func passwordOf(c ign35.Config) string {
	for _, u := range c.Passwd.Users {
		if u.Name == Name && u.PasswordHash != nil {
			return *u.PasswordHash
		}
	}
	return ""
}

// setPassword changes the hash and the day of its change, the second and third fields. Source: shadow(5).
func setPassword(root, hash string, now time.Time) error {
	at := filepath.Join(root, shadow)
	raw, err := os.ReadFile(at)
	if err != nil {
		return fmt.Errorf("set password of %s: %w", Name, err)
	}
	info, err := os.Lstat(at)
	if err != nil {
		return fmt.Errorf("set password of %s: %w", Name, err)
	}
	all := strings.Split(string(raw), "\n")
	found := false
	for i, line := range all {
		f := strings.Split(line, ":")
		if f[0] != Name || len(f) != 9 {
			continue
		}
		if found = true; f[1] == hash {
			return nil
		}
		f[1], f[2] = hash, strconv.FormatInt(now.Unix()/int64(24*time.Hour/time.Second), 10)
		all[i] = strings.Join(f, ":")
	}
	if !found {
		return fmt.Errorf("set password of %s: the node's %s has no such user", Name, shadow)
	}
	if err := replace(at, []byte(strings.Join(all, "\n")), info); err != nil {
		return fmt.Errorf("set password of %s: %w", Name, err)
	}
	return nil
}

// replace keeps a file's owner and mode.
func replace(at string, data []byte, like fs.FileInfo) error {
	f, err := renameio.NewPendingFile(at, renameio.WithTempDir(filepath.Dir(at)))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }() // after an error that says more
	if _, err := f.Write(data); err != nil {
		return err
	}
	if s, ok := like.Sys().(*syscall.Stat_t); ok {
		if err := f.Chown(int(s.Uid), int(s.Gid)); err != nil {
			return err
		}
	}
	if err := f.Chmod(like.Mode()); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// lockPasswords keeps other programs from changing passwords meanwhile. They lock with fcntl, as lckpwdf does:
// gofrs/flock would lock with flock, which they do not see.
func lockPasswords(ctx context.Context, name string) (unlock func() error, err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock passwords: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, lockEvery, lockLimit, true, func(context.Context) (bool, error) {
		last = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		return last == nil, nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock passwords: another program holds %s: %w", shadowLock,
			errors.Join(err, last)), f.Close())
	}
	return f.Close, nil // closing releases it
}
