package coreuser

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
)

// Name is the one user whose keys and password an agent changes. Source: MCO's daemon.
const Name = "core"

// Where a user's keys are, below the home directory. Ignition of CoreOS, and of distributions that follow it, writes a
// fragment of its own into keysDir, which sshd asks ssh-key-dir for; others write keysFile, which people write to as
// well.
const (
	sshDir       = ".ssh"
	keysDir      = sshDir + "/authorized_keys.d"
	keysFragment = keysDir + "/ignition"
	keysFile     = sshDir + "/authorized_keys"
	// privateDir and privateFile are what sshd wants of them (sshd(8), StrictModes), and what Ignition gives them.
	privateDir  = 0o700
	privateFile = 0o600
)

// account is a line of passwd(5).
type account struct {
	uid, gid int
	home     string
}

// ApplyKeys makes the keys of the core user those of after, on the running node: a key that is taken away opens no
// session from now on. What people wrote beside the config's keys stays. A node without such a user is an error only
// where the config has keys for it.
func ApplyKeys(root string, before, after ign35.Config) error {
	old, now := keysOf(before), keysOf(after)
	if len(old) == 0 && len(now) == 0 {
		return nil
	}
	user, found, err := find(root)
	if err != nil {
		return err
	}
	if !found {
		if len(now) == 0 {
			return nil
		}
		return fmt.Errorf("write SSH keys: the node has no user %s: Ignition makes users at a node's first boot only",
			Name)
	}
	if err := writeKeys(root, user, old, now); err != nil {
		return fmt.Errorf("write SSH keys of %s: %w", Name, err)
	}
	return nil
}

// VerifyKeys names the file of the core user's keys, and why it is not the config's; a why of "" says that it is.
func VerifyKeys(root string, c ign35.Config) (at, why string, err error) {
	wanted := keysOf(c)
	if len(wanted) == 0 {
		return "", "", nil
	}
	user, found, err := find(root)
	if err != nil {
		return "", "", err
	}
	if !found {
		return "user " + Name, "is missing, and has SSH keys in the config", nil
	}
	home, name, err := keysHome(root, user)
	if errors.Is(err, fs.ErrNotExist) {
		return user.home, "is missing, and is to hold SSH keys", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("look at SSH keys: %w", err)
	}
	defer home.Close()
	raw, err := home.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("look at SSH keys: %w", err)
	}
	have := lines(raw)
	for _, k := range wanted {
		if !slices.Contains(have, k) {
			return path.Join(user.home, name), "lacks an SSH key", nil // never which
		}
	}
	return "", "", nil
}

// KeysPath is the file that has a config's keys; empty: the config has none, or the node no such user.
func KeysPath(root string, c ign35.Config) (string, error) {
	if len(keysOf(c)) == 0 {
		return "", nil
	}
	user, found, err := find(root)
	if err != nil || !found {
		return "", err
	}
	home, name, err := keysHome(root, user)
	if errors.Is(err, fs.ErrNotExist) {
		return path.Join(user.home, keysFragment), nil
	}
	if err != nil {
		return "", fmt.Errorf("look for SSH keys: %w", err)
	}
	return path.Join(user.home, name), home.Close()
}

// keysHome opens a user's home directory and gives the keys' place in it.
func keysHome(root string, user account) (*os.Root, string, error) {
	home, err := os.OpenRoot(filepath.Join(root, user.home))
	if err != nil {
		return nil, "", err
	}
	return home, keysPlace(home), nil
}

func keysOf(c ign35.Config) []string {
	var out []string
	for _, u := range c.Passwd.Users {
		if u.Name != Name {
			continue
		}
		for _, k := range u.SSHAuthorizedKeys {
			if k := strings.TrimSpace(string(k)); k != "" && !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	return out
}

// keysPlace is where this node's sshd looks: the fragment's directory when it is there, the single file when only that
// one is, and else what Ignition makes on such hosts.
func keysPlace(home *os.Root) string {
	if _, err := home.Lstat(keysDir); err == nil {
		return keysFragment
	}
	if _, err := home.Lstat(keysFile); err == nil {
		return keysFile
	}
	return keysFragment
}

// writeKeys stays below the home directory whatever links its owner has put there, and gives the owner all that it
// makes.
func writeKeys(root string, user account, old, now []string) error {
	dir := filepath.Join(root, user.home)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, privateDir); err != nil {
			return err
		}
		if err := errors.Join(os.Chmod(dir, privateDir), os.Chown(dir, user.uid, user.gid)); err != nil {
			return err
		}
	}
	home, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer home.Close()
	name := keysPlace(home)
	if err := home.Remove(unfinished(name)); err != nil && !errors.Is(err, fs.ErrNotExist) { // a killed writer's
		return err
	}
	raw, err := home.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next := mergeKeys(lines(raw), old, now, name == keysFragment)
	if bytes.Equal(next, raw) && err == nil {
		return nil
	}
	if len(next) == 0 && err != nil {
		return nil
	}
	for _, d := range []string{sshDir, path.Dir(name)} {
		if err := ownDir(home, d, user); err != nil {
			return err
		}
	}
	return replaceBelow(home, name, next, user)
}

// mergeKeys gives the file's new content: the fragment is the config's alone; of the single file what others wrote
// stays.
func mergeKeys(have, old, now []string, alone bool) []byte {
	var out []string
	if !alone {
		for _, line := range have {
			if !slices.Contains(old, line) && !slices.Contains(now, line) {
				out = append(out, line)
			}
		}
	}
	out = append(out, now...)
	if len(out) == 0 {
		return nil
	}
	return []byte(strings.Join(out, "\n") + "\n")
}

func lines(raw []byte) []string {
	var out []string
	for s := bufio.NewScanner(bytes.NewReader(raw)); s.Scan(); {
		if line := strings.TrimSpace(s.Text()); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// ownDir makes a directory the user's, where it is missing.
func ownDir(home *os.Root, name string, user account) error {
	err := home.Mkdir(name, privateDir)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(home.Chmod(name, privateDir), home.Chown(name, user.uid, user.gid))
}

func unfinished(name string) string { return path.Join(path.Dir(name), ".dayone-"+path.Base(name)) }

// replaceBelow puts a file in place of another, so that a power cut, or a login at the same moment, finds the one or
// the other. It is not renameio's work: that would follow links that the owner of the home directory has put there.
func replaceBelow(home *os.Root, name string, data []byte, user account) error {
	tmp := unfinished(name)
	f, err := home.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, privateFile)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chown(user.uid, user.gid), f.Chmod(privateFile), f.Sync(), f.Close())
	if err == nil {
		err = home.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, home.Remove(tmp))
	}
	d, err := home.Open(path.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// find reads the core user in the node's own tables.
func find(root string) (account, bool, error) {
	for _, dir := range []string{"etc", "usr/lib"} {
		raw, err := os.ReadFile(filepath.Join(root, dir, "passwd"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return account{}, false, fmt.Errorf("look up %s: %w", Name, err)
		}
		for _, line := range strings.Split(string(raw), "\n") {
			f := strings.Split(line, ":")
			if len(f) != 7 || f[0] != Name {
				continue
			}
			uid, errUID := strconv.Atoi(f[2])
			gid, errGID := strconv.Atoi(f[3])
			if errUID != nil || errGID != nil || !path.IsAbs(f[5]) || path.Clean(f[5]) == "/" {
				return account{}, false, fmt.Errorf("look up %s: its line in %s/passwd cannot be read", Name, dir)
			}
			return account{uid, gid, path.Clean(f[5])}, true, nil
		}
	}
	return account{}, false, nil
}
