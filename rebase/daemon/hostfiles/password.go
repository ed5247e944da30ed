package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"golang.org/x/sys/unix"
)

const (
	shadow = "/etc/shadow"
	// shadowLock is what every program that changes passwords locks. Source: lckpwdf(3).
	shadowLock = "/etc/.pwd.lock"
	// lockLimit is how long lckpwdf waits.
	lockLimit = 15 * time.Second
	lockEvery = 50 * time.Millisecond
	// noPassword lets nobody in by a password. Source: shadow(5).
	noPassword = "*"
)

// ApplyPassword makes the core user's password that of after; where only before has one, no password opens the account.
// The hash is in no process's arguments.
func (h Host) ApplyPassword(before, after ign35.Config, now time.Time) error {
	old, hash := passwordOf(before), passwordOf(after)
	if old == hash {
		return nil
	}
	if hash == "" {
		hash = noPassword
	}
	if strings.ContainsAny(hash, ":\n") {
		return fmt.Errorf("set password of %s: the hash holds a colon or a line break", CoreUser)
	}
	unlock, err := lockPasswords(filepath.Join(h.Root, shadowLock))
	if err != nil {
		return fmt.Errorf("set password of %s: %w", CoreUser, err)
	}
	return errors.Join(h.setPassword(hash, now), unlock())
}

func passwordOf(c ign35.Config) string {
	for _, u := range c.Passwd.Users {
		if u.Name == CoreUser && u.PasswordHash != nil {
			return *u.PasswordHash
		}
	}
	return ""
}

// setPassword changes the hash and the day of its change, the second and third fields. Source: shadow(5).
func (h Host) setPassword(hash string, now time.Time) error {
	at := filepath.Join(h.Root, shadow)
	raw, err := os.ReadFile(at)
	if err != nil {
		return fmt.Errorf("set password of %s: %w", CoreUser, err)
	}
	info, err := os.Lstat(at)
	if err != nil {
		return fmt.Errorf("set password of %s: %w", CoreUser, err)
	}
	all := strings.Split(string(raw), "\n")
	found := false
	for i, line := range all {
		f := strings.Split(line, ":")
		if f[0] != CoreUser || len(f) != 9 {
			continue
		}
		if found = true; f[1] == hash {
			return nil
		}
		f[1], f[2] = hash, strconv.FormatInt(now.Unix()/int64(24*time.Hour/time.Second), 10)
		all[i] = strings.Join(f, ":")
	}
	if !found {
		return fmt.Errorf("set password of %s: the node's %s has no such user", CoreUser, shadow)
	}
	uid, gid := owner(info)
	return replaceFile(at, entry{path: shadow, data: []byte(strings.Join(all, "\n")), mode: info.Mode(), uid: uid,
		gid: gid})
}

// lockPasswords keeps other programs from changing passwords meanwhile.
func lockPasswords(name string) (unlock func() error, err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock passwords: %w", err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	for end := time.Now().Add(lockLimit); ; time.Sleep(lockEvery) {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock)
		if err == nil {
			return f.Close, nil // closing releases it
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("lock passwords: another program holds %s: %w", shadowLock, err), f.Close())
		}
	}
}
