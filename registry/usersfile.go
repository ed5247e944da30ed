package registry

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/crypto/bcrypt"

	"dayone.dev/dayone/registry/credentials"
)

const (
	// UsersFile holds the accounts that LoadOrCreateUsers made; PushAuthFile and PullAuthFile their passwords as pull
	// secrets.
	UsersFile    = "users"
	PushAuthFile = "push-auth.json"
	PullAuthFile = "pull-auth.json"
)

// readUsers reads accounts, one a line: NAME:BCRYPT:ROLE, that is a line of htpasswd -B with the role (push or pull) at
// its end. Lines without a role have role, or are refused when it is "". Empty lines and lines that start with # are
// skipped. The file must not be readable by others.
func readUsers(path string, role Role) ([]User, error) {
	raw, err := readUsersFile(path)
	if err != nil {
		return nil, err
	}
	users, err := parseUsers(bytes.NewReader(raw), role)
	if err == nil {
		err = validateUsers(users)
	}
	if err != nil {
		return nil, fmt.Errorf("read users %s: %w", path, err)
	}
	return users, nil
}

func readUsersFile(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("read users %s: mode %o lets others read it: chmod 600 it", path, fi.Mode().Perm())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	return raw, nil
}

func parseUsers(r io.Reader, role Role) ([]User, error) {
	var users []User
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, ":")
		if len(parts) == 2 && role != "" {
			parts = append(parts, string(role))
		}
		if len(parts) != 3 {
			return nil, fmt.Errorf("line %d: want NAME:BCRYPT:ROLE", n)
		}
		u := User{Name: parts[0], PasswordHash: parts[1], Role: Role(parts[2])}
		if err := u.Validate(); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		users = append(users, u)
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	return users, nil
}

// LoadOrCreateUsers returns the accounts of dir and makes a push and a pull account with random passwords on the first
// call. The passwords are in PushAuthFile and PullAuthFile, for the registry at each of addrs (HOST:PORT).
func LoadOrCreateUsers(dir string, addrs ...string) ([]User, error) {
	path := filepath.Join(dir, UsersFile)
	users, err := readUsers(path, "")
	if !errors.Is(err, fs.ErrNotExist) {
		return users, err
	}
	return CreateUsers(dir, "", addrs...)
}

// CreateUsers makes a push and a pull account with random passwords. Their names are the roles', with a suffix.
func CreateUsers(dir, suffix string, addrs ...string) ([]User, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make users directory: %w", err)
	}
	var lines strings.Builder
	for _, role := range []Role{RolePush, RolePull} {
		u, err := NewUser(string(role)+suffix, role)
		if err != nil {
			return nil, err
		}
		hash, err := bcrypt.GenerateFromPassword([]byte(u.Password), bcrypt.DefaultCost)
		if err != nil {
			return nil, fmt.Errorf("hash password of %s: %w", u.Name, err)
		}
		fmt.Fprintf(&lines, "%s:%s:%s\n", u.Name, hash, role)
		if err := u.WriteAuthFile(filepath.Join(dir, string(role)+"-auth.json"), addrs...); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(dir, UsersFile)
	if err := renameio.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		return nil, fmt.Errorf("write users: %w", err)
	}
	return readUsers(path, "")
}

// RenameAuthFiles makes the pull secrets of dir, which LoadOrCreateUsers made, name the registry at each of addrs and
// no other: the port may have been free to choose, or the address is another than the last time. A file that somebody
// has taken away stays away.
func RenameAuthFiles(dir string, addrs ...string) error {
	for _, name := range []string{PushAuthFile, PullAuthFile} {
		path := filepath.Join(dir, name)
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read credentials: %w", err)
		}
		have, err := credentials.Parse(raw)
		if err != nil || len(have) == 0 {
			return fmt.Errorf("read credentials %s: it is no pull secret; move it away together with %s to have both made anew",
				path, UsersFile)
		}
		host := slices.Sorted(maps.Keys(have))[0] // all entries are the same account's
		account, _, err := have.Find(host)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		renamed, err := credentials.Encode(account, addrs...)
		if err != nil {
			return err
		}
		if bytes.Equal(raw, renamed) {
			continue
		}
		if err := credentials.Write(path, renamed); err != nil {
			return err
		}
	}
	return nil
}

// WriteAuthFile writes the account as a pull secret (auth.json) for the registry at each of addrs, mode 0600.
func (u User) WriteAuthFile(path string, addrs ...string) error {
	raw, err := credentials.Encode(credentials.Account{Username: u.Name, Password: u.Password}, addrs...)
	if err != nil {
		return err
	}
	return credentials.Write(path, raw)
}
