package gather_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/bootstrap/gather/bundle"
	"dayone.dev/dayone/manifests/assets"
)

func put(t *testing.T, dir, file, text string) {
	t.Helper()
	full := filepath.Join(dir, filepath.FromSlash(file))
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(t, os.WriteFile(full, []byte(text), 0o600))
}

// canaries are secrets of every kind that a bootstrap host has, each with the places where it stands.
func canaries(t *testing.T) (o gather.Options, secrets []string) {
	t.Helper()
	state, dir, root := t.TempDir(), filepath.Join(t.TempDir(), "cluster"), t.TempDir()
	require.NoError(t, assets.WriteSample(dir))
	secret := func(name string) string {
		s := "canary-" + name + "-0Zq/8+k"
		secrets = append(secrets, s)
		return s
	}
	auth := func(name string) string {
		plain := "user:" + secret(name)
		secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(plain)))
		return `{"auths":{"registry.example.com":{"auth":"` + base64.StdEncoding.EncodeToString([]byte(plain)) + `"}}}`
	}
	put(t, state, "identity/dayone-build.password", secret("push"))
	put(t, state, "identity/pull-auth.json", auth("pull"))
	key := "-----BEGIN EC PRIVATE KEY-----\n" + secret("key-line-of-the-authority") + "\n-----END EC PRIVATE KEY-----\n"
	put(t, state, "identity/ca.key", key)
	put(t, state, "base-auth.json", auth("base"))
	put(t, state, "identity/signing/cosign.passphrase", secret("passphrase-of-the-key")+"\n")
	put(t, dir, ".dayone/signing/cosign.passphrase", secret("passphrase-that-prepare-made")+"\n")
	put(t, dir, "keys/own.passphrase", secret("passphrase-of-the-user")+"\n")
	put(t, dir, "layering/more.yaml",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: openshift-machine-config-operator}\ndata:\n  x: "+
			base64.StdEncoding.EncodeToString([]byte(secret("data")))+"\nstringData:\n  y: "+secret("stringdata")+"\n")
	put(t, dir, "auth/kubeadmin-password", secret("kubeadmin"))
	put(t, dir, "auth/kubeconfig", "users:\n- name: admin\n  user:\n    token: "+secret("token-of-the-administrator")+"\n")
	put(t, dir, "install-config.yaml", "pullSecret: '"+auth("pullsecret")+"'\nmetadata: {name: demo}\nproxy: "+
		"{httpProxy: \"http://user:"+url.PathEscape(secret("proxy"))+"@192.0.2.8:3128\"}\n")
	put(t, dir, "openshift/80-private.yaml",
		"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: private}\nspec:\n  "+
			"config:\n    ignition: {version: 3.2.0}\n"+
			"    storage:\n      files:\n      - {path: /etc/agent, mode: 384, contents: {source: 'data:;base64,"+
			base64.StdEncoding.EncodeToString([]byte("token = "+secret("in-a-private-file")+"\n"))+"'}}\n"+
			"    systemd:\n      units:\n      - {name: b.service, contents: \"[Service]\\nEnvironment=AGENT="+
			secret("of-a-unit")+"\\n\"}\n")
	put(t, dir, "proxy.yaml", "spec: {httpProxy: 'http://user:"+url.PathEscape(secret("of-a-proxy"))+
		"@proxy.example.com:3128'}\n")
	// Everything shows up in logs, in every form that it takes.
	var log strings.Builder
	for _, s := range secrets {
		fmt.Fprintf(&log, "plain %s\njson {\"value\": \"%s\"}\nurl https://user:%s@registry.example.com/\nquery ?x=%s\n", s,
			s, url.PathEscape(s), url.QueryEscape(s))
		for offset := range 3 {
			fmt.Fprintf(&log, "inside %s\n", base64.StdEncoding.EncodeToString([]byte("abc"[:offset]+s+"xyz")))
		}
	}
	log.WriteString(key)
	log.WriteString("Authorization: Bearer " + secret("unknown-bearer") + "\nexport DB_PASSWORD=" +
		secret("unknown-variable") + "\n")
	put(t, state, "build/logs/build.log", log.String())
	// The content of files and units is in the configs only.
	content := "password = " + secret("in-a-file")
	put(t, dir, "openshift/90-file.yaml",
		"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: x}\nspec:\n  "+
			"config:\n    ignition: {version: 3.2.0}\n"+
			"    storage:\n      files:\n      - path: /etc/app.conf\n        contents: {source: 'data:;base64,"+
			base64.StdEncoding.EncodeToString([]byte(content))+"'}\n"+
			"    passwd:\n      users:\n      - {name: core, passwordHash: '$6$"+secret("hash")+"aaaaaaaaaaaaaaaaaaaa'}\n")
	put(t, state, "rendered/machine-configs/rendered-master-1.yaml",
		"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: rendered-master-1}\n"+
			"spec:\n  config:\n"+
			"    systemd:\n      units:\n      - {name: a.service, contents: 'Environment=TOKEN="+secret("in-a-unit")+"'}\n")
	put(t, root, "var/log/openshift/bootkube.json",
		`[{"phase":"service end","result":"failure","errorMessage":"`+secrets[0]+`"}]`)
	put(t, state, "journal.json",
		`{"version":1,"phases":[{"name":"base","status":"failed","error":"401 for `+secrets[1]+`"}]}`)
	return gather.Options{ID: "canary", StateDir: state, InstallDir: dir, Root: root}, secrets
}

func TestNoSecretIsInTheBundle(t *testing.T) {
	o, secrets := canaries(t)
	var out bytes.Buffer
	require.NoError(t, gather.Host(t.Context(), o, &out))
	b, err := bundle.Read(&out)
	require.NoError(t, err)
	for _, want := range []string{"bootstrap/dayone/journal.json", "bootstrap/dayone/status.json",
		"bootstrap/dayone/build-logs/logs/build.log", "bootstrap/services/bootkube.json",
		"rendered-assets/openshift/openshift/90-file.yaml", "rendered-assets/openshift/install-config.yaml",
		"rendered-assets/dayone/rendered/machine-configs/rendered-master-1.yaml", "gather.log"} {
		require.NotNil(t, b.Get(want), "%s is not among %v", want, b.Names())
	}
	for _, name := range b.Names() {
		text := string(b.Get(name).Content)
		for _, s := range secrets {
			for _, form := range []string{s, base64.StdEncoding.EncodeToString([]byte(s)), url.QueryEscape(s),
				url.PathEscape(s)} {
				assert.False(t, strings.Contains(text, form), "%s has %s", name, form)
			}
			for offset := range 3 {
				inner := base64.StdEncoding.EncodeToString([]byte("abc"[:offset] + s + "xyz"))
				assert.False(t, strings.Contains(text, inner[4:len(inner)-8]), "%s has %s at offset %d", name, s, offset)
			}
		}
		assert.False(t, strings.Contains(text, "canary-"), name)
	}
	assert.Contains(t, string(b.Get("rendered-assets/openshift/openshift/90-file.yaml").Content), "path: /etc/app.conf",
		"what is not content stays")
	assert.NotContains(t, strings.Join(b.Names(), " "), "kubeconfig")
}

func TestABundleIsBounded(t *testing.T) {
	state := t.TempDir()
	put(t, state, "build/logs/long.log", strings.Repeat("early line\n", 10_000)+"the last line\n")
	put(t, state, "build/logs/other.log", strings.Repeat("another line\n", 900))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(state, "build/logs/link.log")))
	var out bytes.Buffer
	o := gather.Options{StateDir: state, Root: t.TempDir(), MaxFile: 10_000, MaxTotal: 15_000}
	require.NoError(t, gather.Host(t.Context(), o, &out))
	b, err := bundle.Read(&out)
	require.NoError(t, err)
	text := string(b.Get("bootstrap/dayone/build-logs/logs/long.log").Content)
	assert.True(t, strings.HasSuffix(text, "the last line\n") && strings.HasPrefix(text, "[the first "),
		"the end of a log is what counts")
	assert.Less(t, len(text), 11_000)
	assert.Nil(t, b.Get("bootstrap/dayone/build-logs/logs/other.log"), "the bundle is full")
	assert.Nil(t, b.Get("bootstrap/dayone/build-logs/logs/link.log"), "links are not followed")
	assert.Contains(t, string(b.Get("gather.log").Content), "the bundle is full")
}

func TestGatherLogSaysWhyProgramFailed(t *testing.T) {
	state := filepath.Join(t.TempDir(), "gone")
	var out bytes.Buffer
	require.NoError(t, gather.Host(t.Context(), gather.Options{StateDir: state}, &out))
	b, err := bundle.Read(&out)
	require.NoError(t, err)
	assert.Regexp(t, regexp.QuoteMeta("df -h -i "+state+": exit status 1: ")+`\S*df: `, string(b.Get("gather.log").
		Content))
}

func TestSpoolKeepsLastWholeBundle(t *testing.T) {
	dir := t.TempDir()
	calls := 0
	ctx, cancel := context.WithCancel(t.Context())
	err := gather.Spool(ctx, dir, gather.Options{ID: "spool"}, time.Second, func(_ context.Context, _ gather.Options,
		w io.Writer) error {
		calls++
		switch calls {
		case 1:
			_, err := io.WriteString(w, "first")
			return err
		case 2:
			if _, err := io.WriteString(w, "half of"); err != nil {
				return err
			}
			return errors.New("the host has vanished")
		}
		cancel()
		return ctx.Err()
	})
	require.NoError(t, err)
	raw, err := os.ReadFile(filepath.Join(dir, "log-bundle-spool.tar.gz"))
	require.NoError(t, err)
	assert.Equal(t, "first", string(raw))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 2, "the bundle and what is known of its host: nothing half-written stays")
	lost, err := gather.ReadLost(filepath.Join(dir, "log-bundle-spool.tar.gz"))
	require.NoError(t, err)
	require.NotNil(t, lost)
	assert.Equal(t, "the host has vanished", lost.Error)
	assert.False(t, lost.Since.IsZero())
	// A host that answers again takes it back; another process knows since when it did not.
	ctx, cancel = context.WithCancel(t.Context())
	calls = 0
	require.NoError(t, gather.Spool(ctx, dir, gather.Options{ID: "spool"}, time.Second,
		func(context.Context, gather.Options, io.Writer) error {
			if calls++; calls == 1 {
				return errors.New("still")
			}
			now, err := gather.ReadLost(filepath.Join(dir, "log-bundle-spool.tar.gz"))
			if calls == 2 {
				require.NoError(t, err)
				assert.Equal(t, gather.Lost{Since: lost.Since, Error: "still"}, *now)
				return nil
			}
			assert.Nil(t, now)
			cancel()
			return nil
		}))
}

func TestRemoteBundle(t *testing.T) {
	dir := t.TempDir()
	name, err := gather.Write(t.Context(), dir, gather.Options{ID: "far"},
		gather.Remote{Command: []string{"/bin/sh", "-c", "printf '\\037\\213bundle'"}}.Gather)
	require.NoError(t, err)
	raw, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "\x1f\x8bbundle", string(raw))
	for _, c := range []struct{ command, says string }{
		{"echo refused >&2; exit 255", "refused"}, {"true", "nothing arrived"}, {"kill -9 $$", "killed"},
		{"echo Welcome", "not a log bundle"}} {
		_, err := gather.Write(t.Context(), dir, gather.Options{ID: "none"},
			gather.Remote{Command: []string{"/bin/sh", "-c", c.command}}.Gather)
		require.ErrorContains(t, err, c.says)
		assert.NoFileExists(t, filepath.Join(dir, "log-bundle-none.tar.gz"))
	}
}

func TestBundleIDs(t *testing.T) {
	for _, id := range []string{"../x", "a/b", ".", "a b", "-x"} {
		_, err := gather.Write(t.Context(), t.TempDir(), gather.Options{ID: id}, gather.Host)
		assert.Error(t, err, id)
	}
}

// TestScrubSecretForms has secrets that the bundle's maker knows nothing of, in the forms in which
// records hold them.
func TestScrubSecretForms(t *testing.T) {
	state := t.TempDir()
	put(t, state, "journal.json", `{"version":1,"phases":[{"name":"base","error":"asked with `+
		`{\"token\": \"canary-a\", \"x\": 1} and password='canary-b' and DB_PASSWORD=canary-c, `+
		`got data:;base64,Y2FuYXJ5Y2FuYXJ5"}],
"token": "canary-d", "secret":"can\"ary-e", "authority": "kept", "pullSecret": {"name": "kept-too"}}`)
	var out bytes.Buffer
	require.NoError(t, gather.Host(t.Context(), gather.Options{StateDir: state, Root: t.TempDir()}, &out))
	b, err := bundle.Read(&out)
	require.NoError(t, err)
	raw := b.Get("bootstrap/dayone/journal.json").Content
	assert.True(t, json.Valid(raw), "%s", raw)
	assert.NotContains(t, string(raw), "ary")
	assert.NotContains(t, string(raw), "Y2FuYXJ5")
	assert.Contains(t, string(raw), "kept-too")
}

// TestWriteErrorSaysWhatToDo has a disk that is full and one that takes nothing.
func TestWriteErrorSaysWhatToDo(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root: it mounts file systems")
		}
		t.Skip("needs root: it mounts file systems")
	}
	state, dir := t.TempDir(), t.TempDir()
	put(t, state, "build/logs/a.log", strings.Repeat("x", 1<<20))
	require.NoError(t, unix.Mount("dayone-test", dir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	random := func(ctx context.Context, o gather.Options, w io.Writer) error {
		_, err := io.Copy(w, io.LimitReader(rand.Reader, 1<<20)) // does not get smaller
		return err
	}
	_, err := gather.Write(t.Context(), dir, gather.Options{ID: "x"}, random)
	require.ErrorContains(t, err, "make room in "+dir)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries, "nothing half-written stays")
	name, err := gather.Write(t.Context(), dir, gather.Options{ID: "x", StateDir: state, Root: t.TempDir()}, gather.Host)
	require.NoError(t, err, "a log of one letter is small")
	b, err := bundle.Open(name)
	require.NoError(t, err)
	assert.Empty(t, b.Damage)

	require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	_, err = gather.Write(t.Context(), dir, gather.Options{ID: "y"}, random)
	require.ErrorContains(t, err, "--out")
	_, err = gather.Write(t.Context(), filepath.Join(dir, "below"), gather.Options{ID: "y"}, random)
	require.ErrorContains(t, err, "--out")
}
