package rotation

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
)

// Step is how far a rotation is.
type Step string

// The steps, in their order. Before one, all nodes and builders must have the files of the one before.
const (
	// Added: registries accept the old and the new accounts, and everybody trusts both CAs. The old ones are used.
	Added Step = "added"
	// Switched: the new accounts and the new CA are used. The old ones still work.
	Switched Step = "switched"
	// Ended: the old accounts and the old CA are gone.
	Ended Step = "ended"
)

const (
	// workDir is the rotation's own directory, which exists while there is one. It has what was there before, what will be
	// there after it, and the last step that is complete.
	workDir, oldDir, newDir, stepFile = "rotation", "old", "new", "step"
	// unfinished and done end the names under which workDir is made and removed.
	unfinished, done = ".new", ".done"
)

// shared are the files of a directory that a rotation replaces.
func shared() []string {
	return []string{registry.UsersFile, registry.PushAuthFile, registry.PullAuthFile, certs.CACertFile, certs.CAKeyFile}
}

// current is the last step that is complete; "" means that there is no rotation.
func current(dir string) (Step, error) {
	raw, err := os.ReadFile(filepath.Join(dir, workDir, stepFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read step of the rotation: %w", err)
	}
	step := Step(strings.TrimSpace(string(raw)))
	if step != Added && step != Switched {
		return "", fmt.Errorf("read step of the rotation: %s has %q: take the directory from a backup",
			filepath.Join(dir, workDir, stepFile), step)
	}
	return step, nil
}

// Next takes the next step in a directory that registry.LoadOrCreateUsers and certs.LoadOrCreateCA have filled, and
// gives it. After a kill the next call does the same step again, with the same new passwords and keys.
func Next(dir string) (Step, error) {
	work := filepath.Join(dir, workDir)
	last, err := current(dir)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(work); errors.Is(err, fs.ErrNotExist) {
		err = begin(dir, work)
		if err != nil {
			return "", fmt.Errorf("begin rotation: %w", err)
		}
	}
	next := map[Step]Step{"": Added, Added: Switched, Switched: Ended}[last]
	if err := derive(dir, next); err != nil {
		return "", fmt.Errorf("take step %q of the rotation: %w", next, err)
	}
	if next != Ended {
		if err := renameio.WriteFile(filepath.Join(work, stepFile), []byte(next+"\n"), 0o600); err != nil {
			return "", fmt.Errorf("note step of the rotation: %w", err)
		}
		return next, nil
	}
	err = os.Rename(work, work+done)
	if err == nil {
		err = os.RemoveAll(work + done)
	}
	if err != nil {
		return "", fmt.Errorf("end rotation: %w", err)
	}
	return next, nil
}

// begin keeps what is there and makes what will be there.
func begin(dir, work string) error {
	for _, left := range []string{work + unfinished, work + done} {
		if err := os.RemoveAll(left); err != nil {
			return err
		}
	}
	was, to := filepath.Join(work+unfinished, oldDir), filepath.Join(work+unfinished, newDir)
	if err := os.MkdirAll(was, 0o700); err != nil {
		return err
	}
	for _, name := range shared() {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := renameio.WriteFile(filepath.Join(was, name), raw, 0o600); err != nil {
			return err
		}
	}
	ca, err := certs.LoadCA(filepath.Join(was, certs.CACertFile), filepath.Join(was, certs.CAKeyFile), nil)
	if err != nil {
		return err
	}
	accounts, err := credentials.Read(filepath.Join(was, registry.PullAuthFile))
	if err != nil {
		return err
	}
	number := 1
	var hosts []string
	for host := range accounts {
		account, _, err := accounts.Find(host)
		if err != nil {
			return err
		}
		_, number = numbered(account.Username)
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	suffix := "-" + strconv.Itoa(number+1)
	if _, err := registry.CreateUsers(to, suffix, hosts...); err != nil {
		return err
	}
	name, _ := numbered(ca.Certificate().Subject.CommonName)
	if _, err := certs.LoadOrCreateCA(to, certs.CAOptions{CommonName: name + suffix}); err != nil {
		return err
	}
	return os.Rename(work+unfinished, work)
}

// numbered takes the number of rotations off a name: the first one has none.
func numbered(name string) (string, int) {
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		if n, err := strconv.Atoi(name[i+1:]); err == nil && n > 1 {
			return name[:i], n
		}
	}
	return name, 1
}

// derive writes the files of a step. It may be called again at any point.
func derive(dir string, step Step) error {
	from := func(generation, name string) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, workDir, generation, name))
	}
	was, is := map[string][]byte{}, map[string][]byte{}
	for _, name := range shared() {
		var err error
		if was[name], err = from(oldDir, name); err != nil {
			return err
		}
		if is[name], err = from(newDir, name); err != nil {
			return err
		}
	}
	use := is
	if step == Added {
		use = was
	}
	out := map[string][]byte{}
	for _, name := range []string{registry.PushAuthFile, registry.PullAuthFile, certs.CAKeyFile} {
		out[name] = use[name]
	}
	first, second, kept := is[certs.CACertFile], was[certs.CACertFile], was[registry.UsersFile]
	switch step {
	case Added:
		first, second = second, first
	case Ended:
		var err error
		if kept, err = without(was); err != nil {
			return err
		}
		_, second = pem.Decode(second) // further CAs that an administrator has added stay
	}
	out[certs.CACertFile], out[registry.UsersFile] = lines(first, second), lines(kept, is[registry.UsersFile])
	for name, raw := range out {
		if err := renameio.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// lines joins two texts, each on lines of its own.
func lines(a, b []byte) []byte {
	if len(a) > 0 && a[len(a)-1] != '\n' {
		a = append(slices.Clip(a), '\n')
	}
	return slices.Concat(a, b)
}

// without is a users file without the accounts whose passwords are in the auth files beside it. Accounts that an
// administrator has added stay.
func without(files map[string][]byte) ([]byte, error) {
	var gone []string
	for _, name := range []string{registry.PushAuthFile, registry.PullAuthFile} {
		accounts, err := credentials.Parse(files[name])
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		for host := range accounts {
			account, _, err := accounts.Find(host)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			gone = append(gone, account.Username)
		}
	}
	var out []byte
	for line := range bytes.Lines(files[registry.UsersFile]) {
		name, _, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		if !slices.Contains(gone, name) {
			out = append(out, line...)
		}
	}
	return out, nil
}
