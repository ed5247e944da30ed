package credentials

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
)

// file is an auth file; rest is everything but auths, kept as it is.
type file struct {
	auths, rest map[string]json.RawMessage
}

func parse(raw []byte) (file, error) {
	f := file{auths: map[string]json.RawMessage{}, rest: map[string]json.RawMessage{}}
	if len(bytes.TrimSpace(raw)) == 0 {
		return f, nil
	}
	if json.Unmarshal(raw, &f.rest) != nil {
		return f, fmt.Errorf("read registry credentials: %w", errForm)
	}
	if auths, ok := f.rest["auths"]; ok && json.Unmarshal(auths, &f.auths) != nil {
		return f, fmt.Errorf("read registry credentials: %w", errForm)
	}
	if f.rest == nil { // the file says null
		f.rest = map[string]json.RawMessage{}
	}
	if f.auths == nil {
		f.auths = map[string]json.RawMessage{}
	}
	return f, nil
}

func (f file) marshal() ([]byte, error) {
	auths, err := json.Marshal(f.auths)
	if err != nil {
		return nil, fmt.Errorf("encode registry credentials: %w", err)
	}
	f.rest["auths"] = auths
	return json.MarshalIndent(f.rest, "", "  ")
}

// normalize gives each entry of username and password the key auth, and reports whether there was one without it.
func (f file) normalize() (changed bool) {
	for host, raw := range f.auths {
		if with := withAuth(raw); with != nil {
			f.auths[host], changed = with, true
		}
	}
	return changed
}

// withAuth adds the key auth to an entry of username and password; nil: it has that key, or no username.
func withAuth(raw json.RawMessage) json.RawMessage {
	e, err := parseEntry(raw)
	if err != nil || e.Auth != "" || e.IdentityToken != "" || e.Username == "" {
		return nil
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	all["auth"] = fmt.Appendf(nil, "%q", encodeAuth(Account{Username: e.Username, Password: e.Password}))
	with, err := json.Marshal(all)
	if err != nil {
		return nil
	}
	return with
}

// Normalize gives each entry of username and password the key auth: Kubernetes reads both forms, programs that pull
// images on a node read auth alone. Content whose entries have it stays as it is, byte for byte.
func Normalize(raw []byte) ([]byte, error) {
	f, err := parse(raw)
	if err != nil || !f.normalize() {
		return raw, err
	}
	return f.marshal()
}

// Merge adds the entries of add to those of existing; where both have an entry of the same name, add's counts.
// Everything else of existing stays. The result is normalized.
func Merge(existing, add []byte) ([]byte, error) {
	old, err := parse(existing)
	if err != nil {
		return nil, err
	}
	more, err := parse(add)
	if err != nil {
		return nil, err
	}
	maps.Copy(old.auths, more.auths)
	old.normalize()
	return old.marshal()
}

// Remove deletes the entries of hosts. The result is normalized.
func Remove(existing []byte, hosts ...string) ([]byte, error) {
	f, err := parse(existing)
	if err != nil {
		return nil, err
	}
	for _, host := range hosts {
		delete(f.auths, host)
	}
	f.normalize()
	return f.marshal()
}
