package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/gather/bundle"
	"dayone.dev/dayone/hack/browser"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/kube/process"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
)

// Addresses on the bootstrap host's network: of its status page, and of the machine that keeps its logs, which is the
// same here.
const (
	statusAddress = "192.168.77.1:9501"
	spoolAddress  = "192.168.77.1:9601"
)

// TestAdminWatchesAStandaloneBootstrap is what somebody sees who installs from elsewhere: the page in a browser while
// the image is built, and what is left when the host vanishes.
func TestAdminWatchesAStandaloneBootstrap(t *testing.T) {
	o := options(t)
	o.InstallDir = filepath.Join(o.Work, "mine")
	require.NoError(t, assets.WriteSample(o.InstallDir))
	kept := filepath.Join(o.Work, "kept")
	receiver := exec.Command(filepath.Join(o.Bin, "dayone"), "gather", "--receive", spoolAddress, "--out", kept)
	var printed bytes.Buffer
	receiver.Stdout = &printed
	prepareReceiver(t, receiver, kept, o.InstallDir)
	file := filepath.Join(o.InstallDir, installconfig.FileName)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	text := strings.Replace(string(raw), "onClusterLayering:\n", "onClusterLayering:\n  statusPage: {port: 9501}\n"+
		"  logSpool: {url: \"https://"+spoolAddress+"\", tokenFile: spool.token, caFile: ca.crt, every: 10s}\n", 1)
	require.NotEqual(t, string(raw), text)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))

	r, err := e2e.Prepare(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	stop := onNetwork(t, r, "gather", "--receive", spoolAddress, "--out", kept)
	r.Bootstrap, err = r.Launch(t.Context())
	require.NoError(t, err)

	page := watch(t, r)
	text = page.Eventually("document.readyState == 'complete' ? document.body.innerText : ''", "serve Ignition configs")
	assert.Contains(t, text, "7 of 7 phases begun", "one look has it all")
	assert.NotContains(t, text, "failed")
	assert.Regexp(t, `build the image of pool master\s+[0-9.]+s\s+[0-9.]+ MB`, text)
	assert.Contains(t, text, "Successfully tagged", "what the build printed")
	assert.Contains(t, text, "status page is served over HTTPS")
	page.Eventually("document.body.innerText", "pool is served")
	for _, width := range []int{1280, 390} {
		page.Resize(width, 900, false)
		assert.Equal(t, "0", page.Wide(), "at %d pixels", width)
		page.Picture("standalone-" + map[bool]string{true: "wide", false: "narrow"}[width > 1000])
	}

	// The host is gone, without a word.
	last := filepath.Join(kept, "log-bundle-spool.tar.gz")
	require.Eventually(t, func() bool { _, err := os.Stat(last); return err == nil }, 3*time.Minute, 100*time.Millisecond,
		"it has sent a bundle")
	require.NoError(t, r.Bootstrap.Kill())
	require.Eventually(t, func() bool { _, err := os.Stat(last + ".lost.json"); return err == nil }, 3*time.Minute,
		200*time.Millisecond)
	stop()
	out, err := exec.Command(filepath.Join(o.Bin, "dayone"), "analyze", last).CombinedOutput()
	require.Error(t, err, "the exit code tells: %s", out)
	first, _, _ := strings.Cut(string(out), "\n")
	assert.Contains(t, first, "verdict: vanished")
	b, err := bundle.Open(last)
	require.NoError(t, err)
	token, err := os.ReadFile(filepath.Join(o.InstallDir, "spool.token"))
	require.NoError(t, err)
	for _, name := range b.Names() {
		assert.NotContains(t, string(b.Get(name).Content), string(token), name)
	}
}

// prepareReceiver lets the program make its authority and token, and puts them where the admin is told to.
func prepareReceiver(t *testing.T, cmd *exec.Cmd, kept, installDir string) {
	t.Helper()
	_ = cmd.Run() // it cannot listen before there is a network, but has said what to do
	text := cmd.Stdout.(*bytes.Buffer).String()
	assert.Contains(t, text, "url: https://"+spoolAddress)
	for _, name := range []string{"spool.token", "ca.crt"} {
		assert.Contains(t, text, filepath.Join(kept, "receiver", name))
		raw, err := os.ReadFile(filepath.Join(kept, "receiver", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(installDir, name), raw, 0o600))
	}
}

// onNetwork runs the program on the bootstrap host's network until stop, or until this one ends.
func onNetwork(t *testing.T, r *e2e.Run, args ...string) (stop func()) {
	t.Helper()
	cmd := r.Lab.Network.Command(t.Context(), append([]string{filepath.Join(r.Bin, "dayone")}, args...)...)
	programs := process.NewGroup()
	t.Cleanup(func() { require.NoError(t, programs.Close()) })
	p, err := programs.Start(process.Spec{Path: cmd.Path, Args: cmd.Args[1:], Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	return func() { require.NoError(t, p.Stop(t.Context())) }
}

// watch opens the status page in a browser on that network, as soon as there is one.
func watch(t *testing.T, r *e2e.Run) *browser.Page {
	t.Helper()
	identity := filepath.Join(r.State, "identity")
	var leaf *x509.Certificate
	require.Eventually(t, func() bool {
		ca, err := os.ReadFile(filepath.Join(identity, "ca.crt"))
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(ca) {
			return false
		}
		return r.Lab.Network.Do(func() error {
			c, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp4", statusAddress,
				&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
			if err != nil {
				return err
			}
			leaf = c.ConnectionState().PeerCertificates[0]
			return c.Close()
		}) == nil
	}, 3*time.Minute, 100*time.Millisecond)
	token, err := os.ReadFile(filepath.Join(identity, "status.token"))
	require.NoError(t, err)
	page := browser.Open(t, leaf, func(ctx context.Context, argv ...string) *exec.Cmd {
		return r.Lab.Network.Command(ctx,
			argv...)
	})
	// A browser gives up on a page when the lab's network changes under it.
	failure := page.Go("https://admin:" + string(token) + "@" + statusAddress + "/")
	for end := time.Now().Add(time.Minute); failure != "" && time.Now().Before(end); time.Sleep(time.Second) {
		failure = page.Go("https://admin:" + string(token) + "@" + statusAddress + "/")
	}
	require.Empty(t, failure, "the browser loads the status page")
	return page
}
