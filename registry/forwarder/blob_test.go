package forwarder_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/faultproxy"
)

func flipped(body []byte) []byte { body[len(body)/2] ^= 1; return body }
func halved(body []byte) []byte  { return body[:len(body)/2] }

// retryAfter is a peer that has too much to do.
func retryAfter(status int, seconds string) faultproxy.Fault {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", seconds)
		w.WriteHeader(status)
		return true
	}
}

// A client gets every byte whatever one of the peers does.
func TestABlobComesInSpiteOfABadPeer(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(p *peer) faultproxy.Fault
		// switches: another peer went on in the middle.
		switches int64
	}{
		{"none", func(*peer) faultproxy.Fault { return nil }, 0},
		{"gone", func(p *peer) faultproxy.Fault { p.server.Close(); return nil }, 0},
		{"silent", func(*peer) faultproxy.Fault { return faultproxy.Silent }, 0},
		{"cut", func(*peer) faultproxy.Fault { return faultproxy.Cut }, 0},
		{"dies in the middle", func(p *peer) faultproxy.Fault { return p.Dying(500) }, 1},
		{"dies before the end", func(p *peer) faultproxy.Fault { return p.Dying(999) }, 1},
		{"dies at once", func(p *peer) faultproxy.Fault { return p.Dying(0) }, 0},
		{"slow", func(p *peer) faultproxy.Fault { return p.Slow(4, time.Second) }, 0},
		{"stops", func(p *peer) faultproxy.Fault { return p.Stopping(500) }, 1},
		{"endless", func(*peer) faultproxy.Fault { return faultproxy.Endless }, 0},
		{"something else", func(*peer) faultproxy.Fault { return faultproxy.Text("portal") }, 0},
		{"sends elsewhere", func(*peer) faultproxy.Fault { return faultproxy.Elsewhere }, 0},
		{"500", func(*peer) faultproxy.Fault { return faultproxy.Status(500) }, 0},
		{"503", func(*peer) faultproxy.Fault { return faultproxy.Status(503) }, 0},
		{"401", func(*peer) faultproxy.Fault { return faultproxy.Status(401) }, 0},
		{"429", func(*peer) faultproxy.Fault { return retryAfter(429, "30") }, 0},
		{"503 with a time", func(*peer) faultproxy.Fault { return retryAfter(503, "30") }, 0},
		{"206 without a range", func(*peer) faultproxy.Fault { return faultproxy.Status(206) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 3)
			data, d := l.blob(t, 3<<20+7)
			fault := c.fault(l.peers[0])
			l.peers[0].Spoil(fault)
			got := l.ask(t, http.MethodGet, "/v2/"+repo+"/blobs/"+d.String())
			require.NoError(t, got.err)
			require.Equal(t, http.StatusOK, got.status)
			assert.True(t, bytes.Equal(data, got.body), "every byte")
			assert.Equal(t, d.String(), got.header.Get("Docker-Content-Digest"))
			state := l.f.State()
			assert.Equal(t, c.switches, state.Switches)
			assert.Zero(t, state.Broken)
			assert.Zero(t, state.Transfers)
			if c.name != "none" {
				last := state.Peers[2]
				assert.Equal(t, l.list.Peers[0].Name, last.Name, "it is asked last from now on")
				assert.NotEmpty(t, last.LastError)
				assert.NotNil(t, last.AwayUntil)
			}
		})
	}
}

// All peers die again and again; as long as there is progress the client notices nothing.
func TestProgressGoesOn(t *testing.T) {
	l := newLab(t, 2)
	data, d := l.blob(t, 8<<20)
	for _, p := range l.peers {
		p.Spoil(p.Dying(400))
	}
	// Each attempt brings 40 % of what is left, until less than a piece comes in a round.
	got := l.ask(t, http.MethodGet, "/v2/"+repo+"/blobs/"+d.String())
	require.ErrorIs(t, got.err, io.ErrUnexpectedEOF, "an answer that has no end is broken")
	assert.Greater(t, len(got.body), len(data)*9/10)
	assert.True(t, bytes.HasPrefix(data, got.body))
	assert.EqualValues(t, 1, l.f.State().Broken)
}

// A whole wrong blob is never given: large ones break before their last piece, small ones come from another peer.
func TestALie(t *testing.T) {
	for _, c := range []struct {
		name   string
		size   int
		lie    func([]byte) []byte
		broken bool
	}{
		{"large, a bit", 2 << 20, flipped, true},
		{"large, a half", 2 << 20, halved, true},
		{"small, a bit", 1000, flipped, false},
		{"small, a half", 1000, halved, false},
		{"one piece, a bit", 256 << 10, flipped, false},
		{"one piece and a byte", 256<<10 + 1, flipped, true},
		{"small, nothing", 1000, func([]byte) []byte { return nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 3)
			data, d := l.blob(t, c.size)
			l.peers[0].Spoil(l.peers[0].Changed(c.lie))
			path := "/v2/" + repo + "/blobs/" + d.String()
			got := l.ask(t, http.MethodGet, path)
			liar := l.f.State().Peers[2]
			assert.Equal(t, l.list.Peers[0].Name, liar.Name)
			assert.Contains(t, liar.LastError, "another digest")
			require.NotNil(t, liar.AwayUntil)
			assert.Greater(t, time.Until(*liar.AwayUntil), 30*time.Second, "a liar is left alone for longer")
			if c.broken {
				require.ErrorIs(t, got.err, io.ErrUnexpectedEOF)
				assert.Less(t, len(got.body), c.size)
				got = l.ask(t, http.MethodGet, path)
			}
			require.NoError(t, got.err)
			assert.True(t, bytes.Equal(data, got.body))
		})
	}
}

// What one peer sent wrong is noticed although another one sent the rest.
func TestALieAndADeath(t *testing.T) {
	l := newLab(t, 2)
	_, d := l.blob(t, 4<<20)
	lying := l.peers[0].Changed(flipped)
	l.peers[0].Spoil(func(w http.ResponseWriter, r *http.Request) bool {
		return lying(&cutting{ResponseWriter: w, left: 3 << 20}, r)
	})
	got := l.ask(t, http.MethodGet, "/v2/"+repo+"/blobs/"+d.String())
	require.ErrorIs(t, got.err, io.ErrUnexpectedEOF)
	for _, p := range l.f.State().Peers {
		assert.Contains(t, p.LastError, "another digest", p.Name)
	}
}

// cutting ends the connection after so many bytes.
type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(p []byte) (int, error) {
	n, _ := c.ResponseWriter.Write(p[:min(c.left, len(p))])
	if c.left -= n; c.left == 0 {
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

func TestRanges(t *testing.T) {
	l := newLab(t, 2)
	data, d := l.blob(t, 1<<20)
	path := "/v2/" + repo + "/blobs/" + d.String()
	size := len(data)
	for _, c := range []struct {
		name, header string
		from, to     int
		status       int
		content      string
	}{
		{"a part", "bytes=100-299", 100, 300, 206, "bytes 100-299/1048576"},
		{"the rest", "bytes=1000000-", 1000000, size, 206, "bytes 1000000-1048575/1048576"},
		{"the last", "bytes=-5", size - 5, size, 206, "bytes 1048571-1048575/1048576"},
		{"all from the first", "bytes=0-", 0, size, 206, "bytes 0-1048575/1048576"},
		{"beyond the end", "bytes=1048570-9999999", 1048570, size, 206, "bytes 1048570-1048575/1048576"},
		{"several: the whole", "bytes=0-1,5-9", 0, size, 200, ""},
		{"no range: the whole", "lines=1-2", 0, size, 200, ""},
		{"backwards: the whole", "bytes=9-5", 0, size, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := l.ask(t, http.MethodGet, path, "Range", c.header)
			require.NoError(t, got.err)
			assert.Equal(t, c.status, got.status)
			assert.True(t, bytes.Equal(data[c.from:c.to], got.body))
			assert.Equal(t, c.content, got.header.Get("Content-Range"))
		})
	}
	got := l.ask(t, http.MethodGet, path, "Range", "bytes=1048576-")
	assert.Equal(t, http.StatusRequestedRangeNotSatisfiable, got.status)
	assert.Nil(t, l.f.State().Peers[0].AwayUntil, "a client's fault is not the peer's")
	l.peers[0].Spoil(l.peers[0].Dying(500))
	got = l.ask(t, http.MethodGet, path, "Range", "bytes=5-900000")
	require.NoError(t, got.err)
	assert.True(t, bytes.Equal(data[5:900001], got.body), "the next peer goes on in a range, too")
	assert.EqualValues(t, 1, l.f.State().Switches)
}

func TestBusyPeersAreWaitedFor(t *testing.T) {
	l := newLab(t, 2)
	data, d := l.blob(t, 1<<20)
	for _, p := range l.peers {
		p.Spoil(faultproxy.First(1, retryAfter(429, "1")))
	}
	got := l.ask(t, http.MethodGet, "/v2/"+repo+"/blobs/"+d.String())
	require.NoError(t, got.err)
	assert.True(t, bytes.Equal(data, got.body))
	for _, p := range l.peers {
		p.Spoil(retryAfter(429, "20"))
	}
	got = l.ask(t, http.MethodGet, "/v2/"+repo+"/blobs/"+d.String())
	assert.Equal(t, http.StatusServiceUnavailable, got.status, "429 would make clients wait for us, not ask elsewhere")
	assert.Equal(t, "21", got.header.Get("Retry-After"))
}
