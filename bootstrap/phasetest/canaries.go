package phasetest

import (
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Canaries are secrets of a test by what they stand for. Their characters read otherwise in URLs.
type Canaries map[string]string

// NewCanaries makes one for each name.
func NewCanaries(names ...string) Canaries {
	out := Canaries{}
	for _, name := range names {
		out[name] = "canary+" + name + "/7Qx9zK"
	}
	return out
}

// Found names the canaries in a text: as they are, in a URL, and in base64 as a part of whatever.
func (c Canaries) Found(text string) []string {
	var out []string
	for name, secret := range c {
		forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret)}
		for pad := range 3 {
			encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", pad) + secret))
			forms = append(forms, encoded[4:len(encoded)-2]) // without what the neighbours decide
		}
		for _, form := range forms {
			if strings.Contains(text, form) {
				out = append(out, name)
				break
			}
		}
	}
	return out
}

// Auths are registry credentials with a password.
func Auths(password string) string {
	account := base64.StdEncoding.EncodeToString([]byte("demo:" + password))
	return `{"auths":{"registry.example.com":{"auth":"` + account + `"}}}`
}

// Made adds the secrets that the bootstrap has made itself: keys and passwords in its identity.
func (c Canaries) Made(t testing.TB, state string) {
	t.Helper()
	before := len(c)
	dir := filepath.Join(state, "identity")
	require.NoError(t, filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasSuffix(file, ".crt") || strings.HasSuffix(file, ".pub") {
			return err
		}
		raw, err := os.ReadFile(file)
		lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
		if line := lines[min(1, len(lines)-1)]; len(line) >= 16 { // a key's first line is the same for all
			c[filepath.Base(file)] = line
		}
		return err
	}))
	require.Greater(t, len(c), before, "the identity has secrets")
}

// PrintCanaries is an instruction that prints what a build can read of MachineConfig's canaries.
const PrintCanaries = "RUN cat /etc/demo/token /etc/systemd/system/canary.service; env; " +
	"cat /etc/demo/token | base64; true"

// MachineConfig is one for masters with the canaries file, unit and hash, where a MachineConfig has secrets.
func (c Canaries) MachineConfig(t testing.TB) []byte {
	t.Helper()
	config := map[string]any{"ignition": map[string]any{"version": "3.4.0"},
		"storage": map[string]any{"files": []any{map[string]any{"path": "/etc/demo/token", "mode": 0o600,
			"contents": map[string]any{"source": "data:;base64," +
				base64.StdEncoding.EncodeToString([]byte("user = demo\ntoken = "+c["file"]+"\n"))}}}},
		"systemd": map[string]any{"units": []any{map[string]any{"name": "canary.service", "contents": "[Service]\n" +
			"Environment=TOKEN=" + c["unit"] + "\nExecStart=/bin/true\n"}}},
		"passwd": map[string]any{"users": []any{map[string]any{"name": "core", "passwordHash": c["hash"]}}}}
	raw, err := json.Marshal(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
		"metadata": map[string]any{"name": "70-canary", "labels": map[string]any{
			"machineconfiguration.openshift.io/role": "master"}}, "spec": map[string]any{"config": config}})
	require.NoError(t, err)
	return raw
}

// Inside says that no canary is in a state directory's logs and journal, in what its registry says of images, and in
// files that others may read, of a Day 1 whose Containerfile had PrintCanaries.
func (c Canaries) Inside(t testing.TB, state string) {
	t.Helper()
	var logs, configs int
	var printed bool
	require.NoError(t, filepath.WalkDir(state, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		name, err := filepath.Rel(state, file)
		require.NoError(t, err)
		inLogs := strings.Contains(name, "logs/") || strings.HasSuffix(name, ".log") || name == "journal.json"
		inConfig := strings.HasPrefix(name, "registry/") && strings.HasSuffix(name, "/data") && json.Valid(raw)
		if inLogs {
			logs++
			printed = printed || strings.Contains(string(raw), "ExecStart=/bin/true")
		}
		if inConfig {
			configs++
		}
		if inLogs || inConfig || OthersRead(t, state, file) {
			assert.Empty(t, c.Found(string(raw)), name)
		}
		return nil
	}))
	assert.Positive(t, logs, "the build has a log")
	assert.True(t, printed, "the RUN has printed the files with the secrets")
	assert.Positive(t, configs, "the registry has configs and manifests")
}

// OthersRead says whether users other than the owner can open a file below a directory.
func OthersRead(t testing.TB, top, file string) bool {
	t.Helper()
	info, err := os.Stat(file)
	require.NoError(t, err)
	open := info.Mode().Perm()&0o004 != 0
	for dir := filepath.Dir(file); open && len(dir) >= len(top); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		open = info.Mode().Perm()&0o001 != 0
	}
	return open
}
