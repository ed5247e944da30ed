package statuspage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/statuspage"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/registrytest"
)

func TestSocketAndPage(t *testing.T) {
	b := &statuspage.Collector{}
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.AddHook(b)
	began := time.Now()
	b.Observe(journal.Event{Total: 3, Index: 0, Record: journal.Record{Name: "build-master", Title: "build <master>",
		Status: journal.StatusDone, Started: began, Finished: began.Add(2 * time.Second),
		Output: json.RawMessage(`{"size":4711}`)}})
	b.Observe(journal.Event{Total: 3, Index: 1, Record: journal.Record{Name: "gate", Title: "gate",
		Status: journal.StatusRunning, Started: began}})
	b.Detail("gate", "asks nft")
	log.WithError(errors.New("the cause")).Warn("a warning")

	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.ServeSocket(ctx, socket) }()
	var s statuspage.Status
	require.Eventually(t, func() (ok bool) {
		var err error
		s, err = statuspage.NewSocketClient(socket).Fetch(t.Context())
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.Len(t, s.Phases, 2)
	assert.Equal(t, 3, s.Total)
	assert.Equal(t, int64(4711), s.Phases[0].Bytes)
	assert.InDelta(t, 2, s.Phases[0].Seconds, 0.01)
	assert.Equal(t, "asks nft", s.Phases[1].Detail)
	require.Len(t, s.Log, 1)
	assert.Contains(t, s.Log[0], "a warning: the cause")

	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	assert.Contains(t, w.Body.String(), "build &lt;master&gt;")
	assert.Contains(t, w.Body.String(), `<noscript><meta http-equiv="refresh"`)
	policy := w.Header().Get("Content-Security-Policy")
	nonce := regexp.MustCompile(`<script nonce="(\w{20,})">`).FindStringSubmatch(w.Body.String())
	require.Len(t, nonce, 2)
	assert.Contains(t, policy, "default-src 'none'; script-src 'nonce-"+nonce[1]+"'; connect-src 'self'; ")
	w = httptest.NewRecorder()
	b.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	assert.NotContains(t, w.Body.String(), nonce[1], "every answer has its own")
	w = httptest.NewRecorder()
	b.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
	w = httptest.NewRecorder()
	b.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/nothing", nil))
	assert.Equal(t, http.StatusNotFound, w.Code)
}

// page serves a board over HTTPS on a free port; the directory is the bootstrap's identity.
func page(t *testing.T, b *statuspage.Collector) (address, dir string) {
	t.Helper()
	address, dir, _ = pageUntil(t, b)
	return address, dir
}

// pageUntil is page, and what ends it before the test does.
func pageUntil(t *testing.T, b *statuspage.Collector) (address, dir string, end func()) {
	t.Helper()
	dir = t.TempDir()
	_, err := certs.LoadOrCreateCA(dir, certs.CAOptions{})
	require.NoError(t, err)
	id, err := statuspage.LoadIdentity(dir, statuspage.TokenFile, "bootstrap.example.com")
	require.NoError(t, err)
	again, err := statuspage.LoadIdentity(dir, statuspage.TokenFile)
	require.NoError(t, err)
	assert.Equal(t, id.Token, again.Token, "a restart does not change it")
	info, err := os.Stat(filepath.Join(dir, statuspage.TokenFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(t)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.ServeTLS(ctx, address, id) }()
	end = sync.OnceFunc(func() { cancel(); require.NoError(t, <-ended) })
	t.Cleanup(end)
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		return err == nil && c.Close() == nil
	}, time.Minute, 10*time.Millisecond)
	return "https://" + address, dir, end
}

func TestPageNeedsToken(t *testing.T) {
	b := &statuspage.Collector{Bundle: func(_ context.Context, w io.Writer) error {
		_,
			err := io.WriteString(w, "bundle")
		return err
	}}
	b.Observe(journal.Event{Total: 1, Record: journal.Record{Name: "build-master", Title: "build <master>",
		Status: journal.StatusRunning, Started: time.Now()}})
	b.Output("master", "\x1b[31mwith canary-password")
	b.Scrub(func(s string) string { return strings.ReplaceAll(s, "canary-password", "*****") })
	address, dir := page(t, b)
	ca, token := filepath.Join(dir, certs.CACertFile), filepath.Join(dir, statuspage.TokenFile)

	c, err := statuspage.NewClient(address, ca, token)
	require.NoError(t, err)
	s, err := c.Fetch(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Phases, 1)
	assert.Equal(t, []string{"master:  [31mwith *****"}, s.Output)
	var got bytes.Buffer
	require.NoError(t, c.Bundle(t.Context(), &got, 100))
	assert.Equal(t, "bundle", got.String())
	require.ErrorContains(t, c.Bundle(t.Context(), io.Discard, 3), "larger than")

	wrong := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(wrong, []byte("guess"), 0o600))
	c, err = statuspage.NewClient(address, ca, wrong)
	require.NoError(t, err)
	_, err = c.Fetch(t.Context())
	require.ErrorContains(t, err, "401")
	require.ErrorContains(t, c.Bundle(t.Context(), io.Discard, 100), "401")
	for _, bad := range []string{"http://127.0.0.1:1", "https://", "127.0.0.1:1", "https://a@b:1", "https://b:1/path"} {
		_, err := statuspage.NewClient(bad, ca, token)
		require.ErrorContains(t, err, "https://HOST:PORT", bad)
	}
}

// TestCurlReadsThePage is a client of another make: with the bootstrap's CA and the token as a password, as a
// browser asks.
func TestCurlReadsThePage(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("needs curl: make setup-test installs it")
		}
		t.Skip("needs curl: make setup-test installs it")
	}
	b := &statuspage.Collector{}
	b.Observe(journal.Event{Total: 1, Record: journal.Record{Name: "build-master", Title: "build <master>",
		Status: journal.StatusDone, Started: time.Now(), Output: json.RawMessage(`{"size":5242880}`)}})
	address, dir := page(t, b)
	token, err := os.ReadFile(filepath.Join(dir, statuspage.TokenFile))
	require.NoError(t, err)
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), curl,
			append([]string{"--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "60"}, args...)...).
			CombinedOutput()
		return string(out), err
	}
	text, err := run("--cacert", filepath.Join(dir, certs.CACertFile), "--user", "admin:"+string(token), address+"/")
	require.NoError(t, err, text)
	assert.Contains(t, text, "build &lt;master&gt;")
	assert.Contains(t, text, "5.2 MB")
	text, err = run("--cacert", filepath.Join(dir, certs.CACertFile), address+"/status.json")
	require.Error(t, err)
	assert.Contains(t, text, "401")
	text, err = run("--no-fail", "--cacert", filepath.Join(dir, certs.CACertFile), address+"/status.json")
	require.NoError(t, err, text)
	assert.Contains(t, text, "the administrator of this host has it")
	assert.NotContains(t, text, dir, "the answer does not tell where the token is")
	text, err = run("--user", "admin:"+string(token), address+"/")
	require.Error(t, err, "nobody else signs it: %s", text)
	text, err = run("--cacert", filepath.Join(dir, certs.CACertFile), "--user", "admin:"+string(token),
		address+"/bundle.tar.gz")
	require.Error(t, err)
	assert.Contains(t, text, "404", "no bundle is given here")
}
