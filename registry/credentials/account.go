package credentials

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
)

// Account is how a client logs in at a registry. The zero value is anonymous.
type Account struct{ Username, Password, IdentityToken, RegistryToken string }

// Accounts are the entries of an auth file under their canonical keys.
type Accounts map[string]json.RawMessage

var (
	errForm  = errors.New("not in auth.json form ({\"auths\": {HOST: {\"auth\": BASE64}}})")
	errEntry = errors.New("auth is not USER:PASSWORD in base64")
	errEmpty = errors.New("it has neither auth nor username and password")
)

// Parse reads the content of an auth file. Empty content has no accounts. An entry that cannot be read fails when it is
// looked up.
func Parse(raw []byte) (Accounts, error) {
	f, err := parse(raw)
	if err != nil {
		return nil, err
	}
	return byKey(f.auths), nil
}

// Read reads an auth file. The empty path has no accounts.
func Read(path string) (Accounts, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read registry credentials: %w", err)
	}
	accounts, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return accounts, nil
}

// Find returns the account for a repository (HOST/PATH): the entry with the longest key that is the repository or a
// parent of it.
func (a Accounts) Find(repository string) (account Account, found bool, err error) {
	raw, key, found := find(a, repository)
	if !found {
		return account, false, nil
	}
	e, err := parseEntry(raw)
	if err == nil {
		account, err = e.account()
	}
	if err != nil {
		return account, true, fmt.Errorf("read registry credentials: entry %s: %w", key, err)
	}
	return account, true, nil
}

// WithoutPassword returns the first key whose entry says no account, or "": docker login leaves such entries where a
// credential helper of the machine keeps the password.
func (a Accounts) WithoutPassword() string {
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if e, err := parseEntry(a[key]); err == nil && e.Auth == "" && e.Username == "" {
			return key
		}
	}
	return ""
}

// Covers reports whether an auth file has an entry for a repository.
func Covers(raw []byte, repository string) bool {
	accounts, err := Parse(raw)
	if err != nil {
		return false
	}
	_, _, found := find(accounts, repository)
	return found
}

// Encode makes an auth file with the account for each of hosts (HOST[:PORT][/PATH]).
func Encode(account Account, hosts ...string) ([]byte, error) {
	e := entry{Auth: encodeAuth(account), IdentityToken: account.IdentityToken}
	auths := map[string]entry{}
	for _, host := range hosts {
		auths[host] = e
	}
	return encode(auths)
}

// Write replaces an auth file as a whole. Only its owner can read it, whatever the mode of the file before was.
func Write(path string, raw []byte) (err error) {
	f, err := renameio.NewPendingFile(path, renameio.WithStaticPermissions(0o600))
	if err != nil {
		return fmt.Errorf("write registry credentials: %w", err)
	}
	defer func() { err = errors.Join(err, f.Cleanup()) }()
	if _, err = f.Write(raw); err == nil {
		err = f.CloseAtomicallyReplace()
	}
	if err != nil {
		return fmt.Errorf("write registry credentials: %w", err)
	}
	return nil
}

// File writes what a client reaches a registry with, an auth file or CAs, into a file of a directory. Only its owner
// can read it. Empty content needs no file: path is empty then.
func File(dir, name string, content []byte) (path string, err error) {
	if len(content) == 0 {
		return "", nil
	}
	path = filepath.Join(dir, name)
	return path, Write(path, content)
}

// Sensitive lists the texts of an auth file that must not appear in logs, in each form that they take.
func Sensitive(raw []byte) []string {
	var file struct {
		Auths map[string]map[string]any `json:"auths"`
	}
	if json.Unmarshal(raw, &file) != nil {
		return nil
	}
	var out []string
	for _, e := range file.Auths {
		for key, value := range e {
			text, ok := value.(string)
			if !ok || key == "email" || key == "username" {
				continue
			}
			out = append(out, text)
			if key != "auth" {
				continue
			}
			if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
				_, password, _ := strings.Cut(string(plain), ":")
				out = append(out, string(plain), password)
			}
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// entry is what an auth file says about one registry.
type entry struct {
	Auth          string `json:"auth,omitempty"`
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	IdentityToken string `json:"identitytoken,omitempty"`
	RegistryToken string `json:"registrytoken,omitempty"`
}

func parseEntry(raw json.RawMessage) (e entry, err error) {
	if json.Unmarshal(raw, &e) != nil {
		return e, errForm
	}
	return e, nil
}

func (e entry) account() (Account, error) {
	a := Account{Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken,
		RegistryToken: e.RegistryToken}
	if e.Auth == "" {
		return a, nil
	}
	plain, err := base64.StdEncoding.DecodeString(e.Auth)
	user, password, ok := strings.Cut(string(plain), ":")
	if err != nil || !ok {
		return a, errEntry
	}
	a.Username, a.Password = user, strings.TrimRight(password, "\x00")
	return a, nil
}

func encodeAuth(a Account) string {
	return base64.StdEncoding.EncodeToString([]byte(a.Username + ":" + a.Password))
}

func encode(auths any) ([]byte, error) {
	raw, err := json.Marshal(map[string]any{"auths": auths})
	if err != nil {
		return nil, fmt.Errorf("encode registry credentials: %w", err)
	}
	return raw, nil
}
