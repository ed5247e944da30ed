package standalone_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/installconfig"
)

// canaries are secrets by what they stand for. Their characters read otherwise in URLs.
type canaries map[string]string

func newCanaries(names ...string) canaries {
	out := canaries{}
	for _, name := range names {
		out[name] = "canary+" + name + "/7Qx9zK"
	}
	return out
}

// found names the canaries in a text: as they are, in a URL, and in base64 as a part of whatever.
func (c canaries) found(text string) []string {
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

// auths are registry credentials with a password.
func auths(password string) string {
	account := base64.StdEncoding.EncodeToString([]byte("demo:" + password))
	return `{"auths":{"registry.example.com":{"auth":"` + account + `"}}}`
}

// plant puts the canaries wherever an install directory has secrets, and lets a RUN print those that it can read.
func (c canaries) plant(t *testing.T, b *bench) {
	t.Helper()
	edit := func(name string, pairs ...string) {
		file := filepath.Join(b.order.Dir, name)
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		for i := 0; i < len(pairs); i += 2 {
			require.Contains(t, string(raw), pairs[i])
		}
		require.NoError(t, os.WriteFile(file, []byte(strings.NewReplacer(pairs...).Replace(string(raw))), 0o600))
	}
	const sampleAuths = `{"auths":{"registry.example.com":{"auth":"%s="}}}`
	push, pull := fmt.Sprintf(sampleAuths, "ZGVtby1wdXNoOm5vdC1hLXJlYWwtcGFzc3dvcmQ"),
		fmt.Sprintf(sampleAuths, "ZGVtby1wdWxsOm5vdC1hLXJlYWwtcGFzc3dvcmQ")
	edit("layering/secrets.yaml", push, auths(c["push"]), pull, auths(c["base"]))
	edit(installconfig.FileName, pull, auths(c["pull"]), "sshKey:", "proxy:\n  httpProxy: http://proxy:"+
		url.QueryEscape(c["proxy"])+"@192.0.2.1:3128\n  noProxy: .example.com,192.168.77.1,127.0.0.1,"+
		phasetest.HostAddress(t)+"\nsshKey:")
	edit("layering/master.yaml", "RUN GREETING", "RUN cat /etc/demo/token /etc/systemd/system/canary.service; env; "+
		"cat /etc/demo/token | base64; true\n      RUN GREETING")
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
	require.NoError(t, os.WriteFile(filepath.Join(b.order.Dir, "openshift/70-canary.json"), raw, 0o600))
}

// watchArguments looks for canaries in the arguments of all processes until stop is called, which gives what it found.
func (c canaries) watchArguments() (stop func() []string) {
	ended, result := make(chan struct{}), make(chan []string)
	go func() {
		var seen []string
		for {
			files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, file := range files {
				raw, _ := os.ReadFile(file) // it may have ended
				for _, name := range c.found(string(raw)) {
					seen = append(seen, name+" in "+strings.ReplaceAll(string(raw), "\x00", " "))
				}
			}
			select {
			case <-ended:
				result <- seen
				return
			default:
			}
		}
	}()
	return sync.OnceValue(func() []string { close(ended); return <-result })
}

// made adds the secrets that the bootstrap has made itself: keys and passwords in its identity.
func (c canaries) made(t *testing.T, state string) {
	t.Helper()
	before := len(c)
	dir := filepath.Join(state, "identity")
	require.NoError(t, filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasSuffix(file, ".crt") {
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

// TestCanariesStayInside runs a Day 1 whose install directory has a canary wherever there are secrets, and finds none
// in output, in logs and journal, in files that others may read, in arguments of processes, in image configs.
func TestCanariesStayInside(t *testing.T) {
	b := newBench(t)
	c := newCanaries("push", "base", "pull", "proxy", "file", "unit", "hash")
	c.plant(t, b)
	stop := c.watchArguments()
	t.Cleanup(func() { stop() })
	ended := phasetest.Start(t, b.order)()
	arguments := stop()
	require.NoError(t, ended.Err, ended.Log)
	assert.Empty(t, arguments)

	c.made(t, b.order.State)
	assert.Empty(t, c.found(ended.Log+strings.Join(ended.Events, "\n")), "output")
	var logs, configs int
	var printed bool
	state := b.order.State
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
		if inLogs || inConfig || othersRead(t, state, file) {
			assert.Empty(t, c.found(string(raw)), name)
		}
		return nil
	}))
	assert.Positive(t, logs, "the build has a log")
	assert.True(t, printed, "the RUN has printed the files with the secrets")
	assert.Positive(t, configs, "the registry has configs and manifests")
	assert.NotEmpty(t, c.found(readBelow(t, filepath.Join(state, "rendered"))), "what nodes get has them")
}

// othersRead says whether users other than the owner can open a file below a directory.
func othersRead(t *testing.T, top, file string) bool {
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

func readBelow(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var raw []byte
			raw, err = os.ReadFile(file)
			out.Write(raw)
		}
		return err
	}))
	return out.String()
}
