package spool_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/bootstrap/gather/spool"
	"dayone.dev/dayone/bootstrap/statuspage"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/registrytest"
)

const patience = time.Minute

// receiver is one on loopback, with its address and what reaches it.
type receiver struct {
	*spool.Receiver
	url, token string
	ca         []byte
}

func start(t *testing.T) *receiver {
	t.Helper()
	keys := t.TempDir()
	_, err := certs.LoadOrCreateCA(keys, certs.CAOptions{})
	require.NoError(t, err)
	id, err := statuspage.LoadIdentity(keys, "spool.token")
	require.NoError(t, err)
	ca, err := os.ReadFile(filepath.Join(keys, certs.CACertFile))
	require.NoError(t, err)
	log, _ := logtest.NewNullLogger()
	r := &receiver{Receiver: &spool.Receiver{Dir: t.TempDir(), Log: logrus.NewEntry(log)}, token: id.Token, ca: ca}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(t)))
	r.url = "https://" + address
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- id.Serve(ctx, address, r.Handler()) }()
	go r.Watch(ctx)
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		return err == nil && c.Close() == nil
	}, patience, 10*time.Millisecond)
	return r
}

// gzipped begins as every bundle does.
func gzipped(text string) string { return "\x1f\x8b" + text }

// sender tells how often it has gathered.
func (r *receiver) sender(text func() string) (spool.Sender, *atomic.Int32) {
	n := &atomic.Int32{}
	return spool.Sender{URL: r.url + "/", Token: r.token, CA: r.ca, Every: time.Second,
		Gather: func(_ context.Context, w io.Writer) error {
			n.Add(1)
			_, err := io.WriteString(w, text())
			return err
		}}, n
}

func (r *receiver) has() string {
	raw, _ := os.ReadFile(r.File())
	return string(raw)
}

func (r *receiver) lost(t *testing.T) *gather.Lost {
	l, err := gather.ReadLost(r.File())
	require.NoError(t, err)
	return l
}

func TestSendAndReceive(t *testing.T) {
	r := start(t)
	var text atomic.Value
	text.Store(gzipped("first"))
	s, _ := r.sender(func() string { return text.Load().(string) })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	require.Eventually(t, func() bool { return r.has() == gzipped("first") }, patience, 10*time.Millisecond)
	info, err := os.Stat(r.File())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	text.Store(gzipped("how it ended"))
	cancel()
	<-ended
	assert.Equal(t, gzipped("how it ended"), r.has(), "the last one is sent when the run is over")
	assert.Nil(t, r.lost(t), "and nothing more is expected")
}

// The run ends while a bundle is on its way, and the other machine is not done with that one yet.
func TestLastBundleWaits(t *testing.T) {
	r := start(t)
	half, line := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.url+"/log-bundle-spool.tar.gz", half)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+r.token)
	request.Header.Set("Dayone-Every", "60")
	before := make(chan error, 1)
	go func() {
		_, err := trusting(t, r).Do(request)
		before <- err
	}()
	// More than sockets hold: the receiver is at it.
	_, err = io.WriteString(line, gzipped(strings.Repeat("x", spool.MaxBundle/2)))
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, n := r.sender(func() string { return gzipped("how it ended") })
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	require.Eventually(t, func() bool { return n.Load() > 2 }, patience, 10*time.Millisecond,
		"it was sent, and is sent again")
	require.NoError(t, line.CloseWithError(errors.New("the line is cut")))
	require.Error(t, <-before)
	<-ended
	assert.Equal(t, gzipped("how it ended"), r.has())
}

func TestSilentHostIsRecorded(t *testing.T) {
	r := start(t)
	// What a process that is killed does: it announces the next bundle, and none comes.
	put(t, r, r.token, "1", strings.NewReader(gzipped("alive")), http.StatusNoContent)
	require.Eventually(t, func() bool { return r.lost(t) != nil }, patience, 50*time.Millisecond)
	assert.Equal(t, gzipped("alive"), r.has())
	assert.Contains(t, r.lost(t).Error, "have not come")

	put(t, r, r.token, "0", strings.NewReader(gzipped("back")), http.StatusNoContent)
	assert.Nil(t, r.lost(t), "a host that sends again takes that back")
}

// put sends as a sender of another make does.
func put(t *testing.T, r *receiver, token, every string, body io.Reader, want int) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.url+"/log-bundle-spool.tar.gz", body)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Dayone-Every", every)
	response, err := trusting(t, r).Do(request)
	require.NoError(t, err)
	said, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, want, response.StatusCode, string(said))
	return string(said)
}

func TestReceiverAcceptsOnlyWholeBundles(t *testing.T) {
	r := start(t)
	put(t, r, r.token, "3600", strings.NewReader(gzipped("good")), http.StatusNoContent)
	put(t, r, "guess", "60", strings.NewReader(gzipped("bad")), http.StatusUnauthorized)
	put(t, r, r.token, "60", strings.NewReader("no archive"), http.StatusBadRequest)
	put(t, r, r.token, "60", strings.NewReader(""), http.StatusBadRequest)
	put(t, r, r.token, "soon", strings.NewReader(gzipped("bad")), http.StatusBadRequest)
	put(t, r, r.token, "1e9", strings.NewReader(gzipped("bad")), http.StatusBadRequest)

	// One that is cut off.
	cut, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.url+"/log-bundle-spool.tar.gz",
		io.MultiReader(strings.NewReader(gzipped("half")), failing{}))
	require.NoError(t, err)
	cut.Header.Set("Authorization", "Bearer "+r.token)
	cut.Header.Set("Dayone-Every", "60")
	_, err = trusting(t, r).Do(cut)
	require.Error(t, err)
	assert.Equal(t, gzipped("good"), r.has())
	// The sender knows that the line is cut before the receiver does.
	assert.EventuallyWithT(t, func(c *assert.CollectT) {
		entries, err := os.ReadDir(r.Dir)
		assert.NoError(c, err)
		assert.LessOrEqual(c, len(entries), 2, "nothing is left of what did not arrive: %v", entries)
	}, patience, 10*time.Millisecond)
	assert.Equal(t, gzipped("good"), r.has())
}

func TestABundleIsBounded(t *testing.T) {
	r := start(t)
	put(t, r, r.token, "3600", strings.NewReader(gzipped("good")), http.StatusNoContent)
	s, n := r.sender(func() string { return gzipped(strings.Repeat("x", spool.MaxBundle)) })
	log, said := logtest.NewNullLogger()
	s.Log = logrus.NewEntry(log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	require.Eventually(t, func() bool { return n.Load() > 1 }, patience, 10*time.Millisecond)
	cancel()
	<-ended
	assert.Equal(t, gzipped("good"), r.has())
	require.Len(t, said.AllEntries(), 1, "the same is not said every time")
	assert.Contains(t, said.LastEntry().Data[logrus.ErrorKey].(error).Error(), "larger than")
}

func TestAReceiverBoundsWhatItTakes(t *testing.T) {
	r := start(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.url+"/log-bundle-spool.tar.gz",
		io.LimitReader(io.MultiReader(strings.NewReader(gzipped("")), rand.Reader), spool.MaxBundle+1<<20))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+r.token)
	request.Header.Set("Dayone-Every", "60")
	if response, err := trusting(t, r).Do(request); err == nil { // or the connection is gone before all is written
		assert.Equal(t, http.StatusBadRequest, response.StatusCode)
		require.NoError(t, response.Body.Close())
	}
	assert.NoFileExists(t, r.File())
}

func TestAStrangerGetsNoToken(t *testing.T) {
	r := start(t)
	s, n := r.sender(func() string { return gzipped("x") })
	s.CA = nil // nobody that this machine trusts signs it
	log, said := logtest.NewNullLogger()
	s.Log = logrus.NewEntry(log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	require.Eventually(t, func() bool { return n.Load() > 0 && said.LastEntry() != nil }, patience, 10*time.Millisecond)
	cancel()
	<-ended
	assert.NoFileExists(t, r.File())
	assert.Contains(t, said.AllEntries()[0].Data[logrus.ErrorKey].(error).Error(), "certificate")
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the line is cut") }

func trusting(t *testing.T, r *receiver) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(r.ca))
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool,
		MinVersion: tls.VersionTLS12}}}
}
