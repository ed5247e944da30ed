package credentials

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The keys of a Secret with registry credentials, of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg
// (k8s.io/api/core/v1).
const (
	secretKey    = ".dockerconfigjson"
	oldSecretKey = ".dockercfg"
)

// Canonical reads the data of a Secret, in today's form (.dockerconfigjson) or the old one (.dockercfg), into an auth
// file. Equal credentials give equal bytes, whatever order, form and additions the Secret has.
func Canonical(data map[string][]byte) ([]byte, error) {
	auths, err := secretEntries(data)
	if err != nil {
		return nil, err
	}
	if len(auths) == 0 {
		return nil, errors.New("it has no credentials; add an entry for the registry")
	}
	out := make(map[string]entry, len(auths))
	for host, raw := range auths {
		e, err := parseEntry(raw)
		if err == nil {
			e, err = e.canonical()
		}
		if err != nil {
			return nil, fmt.Errorf("entry %s: %w", host, err)
		}
		out[host] = e
	}
	return encode(out)
}

func secretEntries(data map[string][]byte) (auths map[string]json.RawMessage, err error) {
	switch raw, old := data[secretKey], data[oldSecretKey]; {
	case len(raw) > 0:
		f, err := parse(raw)
		if err != nil {
			return nil, fmt.Errorf("key %s is not in auth.json form", secretKey)
		}
		return f.auths, nil
	case len(old) > 0:
		if json.Unmarshal(old, &auths) != nil {
			return nil, fmt.Errorf("key %s is not in dockercfg form", oldSecretKey)
		}
		return auths, nil
	}
	return nil, fmt.Errorf("it has neither key %s nor key %s; make it with type kubernetes.io/dockerconfigjson",
		secretKey, oldSecretKey)
}

// canonical has user and password in auth alone.
func (e entry) canonical() (entry, error) {
	if e.Auth == "" && e.Username != "" {
		e.Auth = encodeAuth(Account{Username: e.Username, Password: e.Password})
	}
	if plain, err := base64.StdEncoding.DecodeString(e.Auth); err != nil || e.Auth != "" &&
		!bytes.Contains(plain, []byte(":")) {
		return entry{}, errEntry
	}
	if e.Auth == "" && e.IdentityToken == "" {
		return entry{}, errEmpty
	}
	return entry{Auth: e.Auth, IdentityToken: e.IdentityToken}, nil
}

// ForPush joins two auth files for a build that pushes to repository: that repository uses push's account, everything
// else pull's where it has one. pull may be empty.
func ForPush(pull, push []byte, repository string) ([]byte, error) {
	to, err := Parse(push)
	if err != nil {
		return nil, fmt.Errorf("push credentials: %w", err)
	}
	target, _, ok := find(to, repository)
	if !ok {
		host, _, _ := strings.Cut(repository, "/")
		return nil, fmt.Errorf("push credentials: there is no entry for %s; add one to the push Secret", host)
	}
	from, err := Parse(pull)
	if err != nil {
		return nil, fmt.Errorf("pull credentials: %w", err)
	}
	maps.Copy(to, from)
	to[canonicalKey(repository)] = target
	return encode(to)
}

// ForName takes the entry for a repository out of an auth file and files it under another name, by which the client
// reaches that repository.
func ForName(raw []byte, repository, name string) ([]byte, error) {
	accounts, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	e, _, ok := find(accounts, repository)
	if !ok {
		return nil, fmt.Errorf("read registry credentials: there is no entry for %s", repository)
	}
	return encode(map[string]json.RawMessage{name: e})
}

// FromOldForm turns the content of a .dockercfg, which has the hosts at the top, into an auth file. An auth file stays
// as it is.
func FromOldForm(raw []byte) ([]byte, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(raw, &top) != nil {
		return nil, errForm
	}
	if _, ok := top["auths"]; ok || len(top) == 0 {
		return raw, nil
	}
	return encode(top)
}

// Check says which entries of an auth file no program could log in with, the first by name; nil where all are good. It
// never quotes them.
func Check(raw []byte) error {
	f, err := parse(raw)
	if err != nil {
		return err
	}
	if len(f.auths) == 0 {
		return errors.New("it has no entry in auths")
	}
	for _, host := range slices.Sorted(maps.Keys(f.auths)) {
		e, err := parseEntry(f.auths[host])
		if err == nil && e.RegistryToken == "" {
			_, err = e.canonical()
		}
		var a Account
		if err == nil {
			a, err = e.account()
		}
		if err == nil && a.Username == "" && a.IdentityToken == "" && a.RegistryToken == "" {
			err = errEntry
		}
		if err != nil {
			return fmt.Errorf("entry %s: %w", host, err)
		}
	}
	return nil
}
