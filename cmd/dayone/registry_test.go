package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	gcrlayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/cli/clitest"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
)

func runRegistry(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := newRootCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(append([]string{"registry"}, args...))
	err := cmd.ExecuteContext(t.Context())
	clitest.Conforms(t, args, out.String())
	return out.String(), err
}

// serveRegistry runs dayone registry serve until the returned function is called, and tells its address.
func serveRegistry(t *testing.T, root string, more ...string) (addr string, stop func()) {
	t.Helper()
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := newRootCommand()
	cmd.SetOut(w)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(append([]string{"registry", "serve", "--root", root, "--listen", "127.0.0.1:0"}, more...))
	done := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		done <- err
		_ = w.CloseWithError(io.EOF)
	}()
	line := make([]byte, 64)
	n, err := r.Read(line)
	if err != nil {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	return strings.TrimSpace(string(line[:n])), func() {
		cancel()
		require.NoError(t, <-done)
	}
}

func TestPullSecretsNameThePortThatWasTaken(t *testing.T) {
	root := t.TempDir()
	named := func() (hosts []string, secret string) {
		for _, name := range []string{registry.PushAuthFile, registry.PullAuthFile} {
			path := filepath.Join(root, "accounts", name)
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			info, err := os.Stat(path)
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
			var file struct {
				Auths map[string]struct{ Auth string }
			}
			require.NoError(t, json.Unmarshal(raw, &file))
			hosts = slices.Sorted(maps.Keys(file.Auths))
			secret += file.Auths[hosts[0]].Auth
		}
		return hosts, secret
	}
	var first string
	for range 2 { // another port the second time
		addr, stop := serveRegistry(t, root)
		_, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		hosts, secret := named()
		assert.Equal(t, []string{"127.0.0.1:" + port, "[::1]:" + port, "localhost:" + port}, hosts)
		if first == "" {
			first = secret
		}
		assert.Equal(t, first, secret, "the passwords stay")
		stop()
	}
	require.NoError(t, os.Remove(filepath.Join(root, "accounts", registry.PushAuthFile)))
	_, stop := serveRegistry(t, root)
	stop()
	assert.NoFileExists(t, filepath.Join(root, "accounts", registry.PushAuthFile), "who took it away has it")
}

func TestRegistryCommandsOnARealRoot(t *testing.T) {
	dir := t.TempDir()
	root, images := filepath.Join(dir, "root"), filepath.Join(dir, "layout")
	img, err := random.Image(1<<16, 2)
	require.NoError(t, err)
	p, err := gcrlayout.Write(images, empty.Index)
	require.NoError(t, err)
	require.NoError(t,
		p.AppendImage(img, gcrlayout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "v1"})))
	want, err := img.Digest()
	require.NoError(t, err)

	addr, stop := serveRegistry(t, root)
	accounts := filepath.Join(root, "accounts")
	ca := filepath.Join(root, "tls", "ca.crt")
	out, err := runRegistry(t, "copy", "oci:"+images+":v1", addr+"/os/base:v1", "--dest-ca", ca, "--dest-authfile",
		filepath.Join(accounts, registry.PushAuthFile))
	require.NoError(t, err)
	assert.Equal(t, want.String()+"\n", out)
	_, err = runRegistry(t, "copy", addr+"/os/base:v1", addr+"/os/other:v1", "--src-ca", ca, "--dest-ca", ca,
		"--src-authfile", filepath.Join(accounts, registry.PullAuthFile), "--dest-authfile",
		filepath.Join(accounts, registry.PullAuthFile))
	require.Error(t, err, "the pull account may not push")

	out, err = runRegistry(t, "ls", "--root", root)
	require.NoError(t, err)
	assert.Contains(t, out, "os/base")
	assert.Contains(t, out, want.String())
	out, err = runRegistry(t, "du", "--root", root, "-o", "json")
	require.NoError(t, err)
	var du struct{ Total int64 }
	require.NoError(t, json.Unmarshal([]byte(out), &du))
	assert.Greater(t, du.Total, int64(2<<16))
	out, err = runRegistry(t, "verify", "--root", root)
	require.NoError(t, err, "beside a running server")
	assert.Contains(t, out, "4 blobs")
	out, err = runRegistry(t, "gc", "--root", root, "--grace", "-1s")
	require.NoError(t, err, "beside a running server")
	assert.Contains(t, out, "0 blobs removed")
	revokeAndWait(t, root, addr, ca)
	stop()

	out, err = runRegistry(t, "verify", "--root", root)
	require.NoError(t, err)
	assert.Contains(t, out, "4 blobs")
	out, err = runRegistry(t, "gc", "--root", root, "--grace", "-1s")
	require.NoError(t, err)
	assert.Contains(t, out, "0 blobs removed")
	bare := filepath.Join(dir, "bare")
	_, stop = serveRegistry(t, bare)
	stop()
	for _, c := range []string{"ls", "du", "verify", "gc"} {
		out, err = runRegistry(t, c, "--root", bare, "-o", "json")
		require.NoError(t, err)
		assert.NotContains(t, out, "null", "what is empty is a list")
	}
	_, err = runRegistry(t, "ls", "--root", dir)
	require.ErrorContains(t, err, "not the root of a registry")
}

// The program itself reads the configuration file, and says what of it is not its own.
func TestServeReadsItsConfiguration(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yml")
	require.NoError(t, os.WriteFile(config, []byte("version: 0.1\nstorage: {s3: {region: there}}\n"), 0o600))
	code, _, stderr := dayone(t, "registry", "serve", "--root", t.TempDir(), "--config", config)
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, stderr, "storage.s3.region: not supported")
}

// revokeAndWait takes the pull account out of the users file and waits until it is refused.
func revokeAndWait(t *testing.T, root, addr, ca string) {
	t.Helper()
	users := filepath.Join(root, "accounts", registry.UsersFile)
	b, err := os.ReadFile(users)
	require.NoError(t, err)
	push, _, _ := strings.Cut(string(b), "\n")
	require.NoError(t, os.WriteFile(users, []byte(push+"\n"), 0o600))
	require.Eventually(t, func() bool {
		_, err := runRegistry(t, "copy", addr+"/os/base:v1", "oci:"+filepath.Join(t.TempDir(), "l"), "--src-ca", ca,
			"--src-authfile", filepath.Join(root, "accounts", registry.PullAuthFile))
		return err != nil && strings.Contains(err.Error(), "unauthorized")
	}, time.Minute, 100*time.Millisecond)
}

func TestCertificateReload(t *testing.T) {
	dir := t.TempDir()
	crt, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ca, err := certs.NewCA(certs.CAOptions{})
	require.NoError(t, err)
	write := func() {
		pair, err := ca.ServerCertificate([]string{"127.0.0.1"}, certs.ServerOptions{})
		require.NoError(t, err)
		require.NoError(t, certs.WriteKeyPair(pair, crt, key))
	}
	write()
	addr, stop := serveRegistry(t, filepath.Join(dir, "root"), "--tls-cert", crt, "--tls-key", key)
	defer stop()
	serial := func() string {
		c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	write()
	require.Eventually(t, func() bool { return serial() != first }, time.Minute, 100*time.Millisecond)
}

func TestRegistryUsageErrors(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		args       []string
	}{
		{"mistyped command", `unknown command "lss"`, []string{"lss"}},
		{"plain HTTP for everybody", "loopback address " +
			"only", []string{"serve", "--listen", "0.0.0.0:0", "--insecure-http"}},
		{"certificate without key", "tls-key", []string{"serve", "--tls-cert", "x"}},
		{"plain HTTP with a certificate", "insecure-http", []string{"serve", "--tls-cert", "x", "--tls-key", "x",
			"--insecure-http"}},
		{"address without port", "give HOST:PORT", []string{"serve", "--listen", "here"}},
		{"negative budget", "is no size", []string{"serve", "--max-bytes", "-1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			args := tc.args
			if args[0] == "serve" {
				args = append(args, "--root", root)
			}
			_, err := runRegistry(t, args...)
			require.ErrorContains(t, err, tc.want)
			assert.NoDirExists(t, root)
		})
	}
}

// TestServeDistributionsConfiguration: a configuration and a htpasswd file of distribution's serve as they are.
func TestServeDistributionsConfiguration(t *testing.T) {
	dir := t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	require.NoError(t, err)
	htpasswd, config := filepath.Join(dir, "htpasswd"), filepath.Join(dir, "config.yml")
	require.NoError(t, os.WriteFile(htpasswd, []byte("somebody:"+string(hash)+"\n"), 0o600))
	require.NoError(t, os.WriteFile(config, []byte("version: 0.1\nstorage: {delete: {enabled: true}}\n"+
		"auth: {htpasswd: {realm: ours, path: "+htpasswd+"}}\n"), 0o600))
	root := filepath.Join(dir, "root")
	addr, stop := serveRegistry(t, root, "--config", config)
	defer stop()
	auth := filepath.Join(dir, "auth.json")
	require.NoError(t, registry.User{Name: "somebody", Password: "secret"}.WriteAuthFile(auth, addr))
	img, err := random.Image(1<<10, 1)
	require.NoError(t, err)
	p, err := gcrlayout.Write(filepath.Join(dir, "layout"), empty.Index)
	require.NoError(t, err)
	require.NoError(t,
		p.AppendImage(img, gcrlayout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "v1"})))
	_, err = runRegistry(t, "copy", "oci:"+filepath.Join(dir, "layout")+":v1", addr+"/a/b:v1", "--dest-ca",
		filepath.Join(root, "tls", "ca.crt"), "--dest-authfile", auth)
	require.NoError(t, err, "every account of a htpasswd file may push")
	out, err := runRegistry(t, "status", "--root", root, "-o", "json")
	require.NoError(t, err)
	var status registry.Status
	require.NoError(t, json.Unmarshal([]byte(out), &status))
	assert.Positive(t, status.StoredBytes)
	assert.NoDirExists(t, filepath.Join(root, "accounts"), "the accounts are the file's")
	_, err = runRegistry(t, "serve", "--root", root, "--users", htpasswd)
	require.ErrorContains(t, err, "want NAME:BCRYPT:ROLE", "a users file names the role")
}

// TestServePullThrough copies an image from a registry that takes it from another, by flags and by distribution's
// configuration.
func TestServePullThrough(t *testing.T) {
	dir := t.TempDir()
	img, err := random.Image(1<<12, 2)
	require.NoError(t, err)
	layout, err := gcrlayout.Write(filepath.Join(dir, "layout"), empty.Index)
	require.NoError(t, err)
	require.NoError(t,
		layout.AppendImage(img, gcrlayout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "v1"})))
	other := filepath.Join(dir, "other")
	otherAddr, stopOther := serveRegistry(t, other)
	defer stopOther()
	_, err = runRegistry(t, "copy", "oci:"+filepath.Join(dir, "layout")+":v1", otherAddr+"/a/b:v1", "--dest-ca",
		filepath.Join(other, "tls", "ca.crt"), "--dest-authfile", filepath.Join(other, "accounts", registry.PushAuthFile))
	require.NoError(t, err)
	ca, auth := filepath.Join(other, "tls", "ca.crt"), filepath.Join(other, "accounts", registry.PullAuthFile)
	config := filepath.Join(dir, "config.yml")
	require.NoError(t, os.WriteFile(config, []byte("proxy: {remoteurl: \"https://"+otherAddr+"\", ttl: 24h}\n"), 0o600))
	d, err := img.Digest()
	require.NoError(t, err)
	for name, flags := range map[string][]string{
		"flags": {"--upstream", otherAddr}, "configuration": {"--config", config},
	} {
		root := filepath.Join(dir, name)
		addr, stop := serveRegistry(t, root, append(flags, "--upstream-ca", ca, "--upstream-authfile", auth)...)
		out, err := runRegistry(t, "copy", addr+"/a/b:v1", "oci:"+filepath.Join(dir, name+"-copy"), "--src-ca",
			filepath.Join(root, "tls", "ca.crt"), "--src-authfile", filepath.Join(root, "accounts", registry.PullAuthFile))
		require.NoError(t, err, name)
		assert.Equal(t, d.String()+"\n", out, name)
		stop()
	}
	_, err = runRegistry(t, "serve", "--root", filepath.Join(dir, "x"), "--upstream-authfile", auth)
	require.ErrorContains(t, err, "--upstream is missing")
	_, err = runRegistry(t, "serve", "--root", filepath.Join(dir, "x"), "--upstream", otherAddr, "--read-only")
	require.ErrorContains(t, err, "ReadOnly")
}

// TestRepairFromAnotherRegistry brings an index, its image and a layer back after they rotted, beside a running server
// and without one.
func TestRepairFromAnotherRegistry(t *testing.T) {
	dir := t.TempDir()
	img, err := random.Image(1<<12, 2)
	require.NoError(t, err)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img})
	_, err = gcrlayout.Write(filepath.Join(dir, "layout"), index)
	require.NoError(t, err)
	layers, err := img.Layers()
	require.NoError(t, err)
	var names []string
	for _, x := range []interface{ Digest() (v1.Hash, error) }{index, img, layers[0]} {
		d, err := x.Digest()
		require.NoError(t, err)
		names = append(names, d.Hex)
	}
	layout, err := gcrlayout.Write(filepath.Join(dir, "named"), empty.Index)
	require.NoError(t, err)
	require.NoError(t,
		layout.AppendIndex(index, gcrlayout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "v1"})))
	other, root := filepath.Join(dir, "other"), filepath.Join(dir, "root")
	otherAddr, stopOther := serveRegistry(t, other)
	defer stopOther()
	addr, stop := serveRegistry(t, root)
	for at, base := range map[string]string{otherAddr: other, addr: root} {
		_, err = runRegistry(t, "copy", "oci:"+filepath.Join(dir, "named")+":v1", at+"/a/b:v1", "--dest-ca",
			filepath.Join(base, "tls", "ca.crt"), "--dest-authfile", filepath.Join(base, "accounts", registry.PushAuthFile))
		require.NoError(t, err)
	}
	repair := []string{"verify", "--root", root, "--repair-from", otherAddr, "--repair-ca",
		filepath.Join(other, "tls", "ca.crt"), "--repair-authfile", filepath.Join(other, "accounts", registry.PullAuthFile)}
	rot := func() {
		for _, hex := range names {
			file := filepath.Join(root, "docker/registry/v2/blobs/sha256", hex[:2], hex, "data")
			require.NoError(t, os.WriteFile(file, []byte("rot"), 0o600))
		}
	}
	rot()
	out, err := runRegistry(t, repair...)
	require.NoError(t, err, "beside a running server")
	assert.Equal(t, 3, strings.Count(out, "restored: a/b@sha256:"), out)
	stop()
	rot()
	out, err = runRegistry(t, repair...)
	require.NoError(t, err)
	assert.Equal(t, 3, strings.Count(out, "restored: a/b@sha256:"), out)
	_, err = runRegistry(t, "verify", "--root", root)
	require.NoError(t, err, "all is whole")

	require.NoError(t, os.RemoveAll(filepath.Join(other, "docker/registry/v2/repositories/a")))
	rot()
	_, err = runRegistry(t, repair...)
	require.ErrorContains(t, err, "missing", "the other registry does not have it")
}
