package peers_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/peers"
)

var now = time.Date(2026, 11, 26, 20, 0, 0, 0, time.UTC)

func masters(n int) (l peers.List) {
	l.Registry = "api-int.c.example.com:22626"
	for i := range n {
		l.Peers = append(l.Peers, peers.Peer{Name: fmt.Sprintf("master-%d", i),
			Address: fmt.Sprintf("192.168.77.%d:%d", 10+i, peers.Port)})
	}
	return l
}

func TestWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "peers.json")
	_, err := peers.Read(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	want := masters(3)
	want.Peers = append(want.Peers, peers.Peer{Name: "m.example.com", Address: "[fd00::3]:22626"},
		peers.Peer{Name: "m4", Address: "m4.example.com:443"})
	for _, l := range []peers.List{want, {Peers: []peers.Peer{}}} {
		require.NoError(t, l.Write(path))
		got, err := peers.Read(path)
		require.NoError(t, err)
		assert.Equal(t, l, got)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing of the writing is left")
}

func TestBadLists(t *testing.T) {
	peer := func(name, address string) peers.List {
		return peers.List{Peers: []peers.Peer{{Name: name, Address: address}}}
	}
	twice := masters(2)
	sameName, sameAddress := twice, twice
	sameName.Peers = []peers.Peer{twice.Peers[0], {Name: twice.Peers[0].Name, Address: twice.Peers[1].Address}}
	sameAddress.Peers = []peers.Peer{twice.Peers[0], {Name: twice.Peers[1].Name, Address: twice.Peers[0].Address}}
	for _, c := range []struct {
		name string
		list peers.List
		want string
	}{
		{"no name", peer("", "10.0.0.1:1"), "the name of a node"},
		{"a path for a name", peer("../m", "10.0.0.1:1"), "the name of a node"},
		{"no port", peer("m", "10.0.0.1"), "HOST:PORT"},
		{"port 0", peer("m", "10.0.0.1:0"), "1 to 65535"},
		{"port of letters", peer("m", "10.0.0.1:http"), "1 to 65535"},
		{"an account", peer("m", "u:p@10.0.0.1:1"), "HOST:PORT"},
		{"no host", peer("m", ":1"), "neither an IP address"},
		{"a host with a blank", peer("m", "a b:1"), "neither an IP address"},
		{"loopback", peer("m", "127.0.0.2:22627"), "another node"},
		{"loopback of IPv6", peer("m", "[::1]:22627"), "another node"},
		{"loopback in IPv6", peer("m", "[::ffff:127.0.0.1]:22627"), "another node"},
		{"localhost", peer("m", "localhost:22627"), "another node"},
		{"every address", peer("m", "0.0.0.0:22626"), "another node"},
		{"link of one host", peer("m", "[fe80::1%eth0]:22626"), "another node"},
		{"one name twice", sameName, "twice"},
		{"one address twice", sameAddress, "twice"},
		{"too many", masters(65), "more than"},
		{"a registry with a path", peers.List{Registry: "a.example.com/b"}, "HOST or HOST:PORT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "peers.json")
			assert.ErrorContains(t, c.list.Write(path), c.want)
			assert.NoFileExists(t, path)
		})
	}
}

func TestBadFiles(t *testing.T) {
	good, err := masters(3).Encode()
	require.NoError(t, err)
	for _, c := range []struct{ name, content, want string }{
		{"empty", "", "damaged"},
		{"half written", string(good[:len(good)/2]), "damaged"},
		{"two in one", string(good) + string(good), "damaged"},
		{"too large", strings.Repeat(" ", 64<<10) + string(good), "more than"},
		{"another kind", `{"apiVersion":"v1","kind":"List","peers":[]}`, `it is "v1" "List"`},
		{"a later version", strings.Replace(string(good), "/v1", "/v2", 1), "wanted"},
		{"loopback", strings.Replace(string(good), "192.168.77.10", "127.0.0.1", 1), "another node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "peers.json")
			require.NoError(t, os.WriteFile(path, []byte(c.content), 0o600))
			_, err := peers.Read(path)
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, path)
		})
	}
	got, err := peers.Parse([]byte(strings.Replace(string(good), "{", `{"later":1,`, 1)))
	require.NoError(t, err, "a later version may add keys")
	assert.Equal(t, masters(3), got)
}

// A peer that comes takes its share from the others, and one that goes gives it back; no other node notices.
func TestAPeerMovesItsShareOnly(t *testing.T) {
	const nodes = 5000
	for n := 1; n < 8; n++ {
		few, many := masters(n), masters(n+1)
		rand.Shuffle(len(many.Peers), func(i, j int) { many.Peers[i], many.Peers[j] = many.Peers[j], many.Peers[i] })
		added := fmt.Sprintf("master-%d", n)
		moved := 0
		for i := range nodes {
			node := fmt.Sprintf("worker-%d", i)
			with := many.Order(node, now, nil)
			if with[0].Name == added {
				moved++
			}
			without := slices.DeleteFunc(with, func(p peers.Peer) bool { return p.Name == added })
			require.Equal(t, few.Order(node, now, nil), without)
		}
		// 5 standard deviations of a fair choice.
		share := float64(nodes) / float64(n+1)
		assert.InDelta(t, share, float64(moved), 5*71/2, "peers: %d", n+1)
	}
}

func TestOrder(t *testing.T) {
	l := masters(3)
	names := func(node string, health map[string]peers.Health) (out []string) {
		for _, p := range l.Order(node, now, health) {
			out = append(out, p.Name)
		}
		return out
	}
	assert.Equal(t, "master-2", names("master-2", nil)[0], "the node's own registry")
	usual := names("w", nil)
	h := map[string]peers.Health{usual[0]: peers.Health{}.Failed(now, 0)}
	assert.Equal(t, []string{usual[1], usual[2], usual[0]}, names("w", h), "one that failed goes last")
	h[usual[2]] = peers.Health{}.Failed(now, time.Minute)
	assert.Equal(t, []string{usual[1], usual[0], usual[2]}, names("w", h), "the soonest first")
	h[usual[1]] = peers.Health{}.Failed(now, 2*time.Second)
	assert.Equal(t, []string{usual[0], usual[1], usual[2]}, names("w", h), "all are asked when all failed")
	h[usual[0]] = peers.Health{Failures: 1, Until: now.Add(time.Hour)}
	h[usual[1]], h[usual[2]] = peers.Health{}, peers.Health{}
	assert.Equal(t, usual, names("w", h), "the clock was set back")
	assert.Empty(t, peers.List{}.Order("w", now, nil))
}

func TestPausesGrowToALimit(t *testing.T) {
	var h peers.Health
	var got []time.Duration
	for range 9 {
		h = h.Failed(now, 0)
		got = append(got, h.Until.Sub(now))
	}
	s := time.Second
	assert.Equal(t, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s}, got)
	assert.Equal(t, 90*s, peers.Health{}.Failed(now, 90*s).Until.Sub(now), "what it asked for")
	assert.Equal(t, 300*s, peers.Health{}.Failed(now, 1000*time.Hour).Until.Sub(now), "not for ever")
	assert.Equal(t, 60*s, h.Failed(now, s).Until.Sub(now), "the longer one counts")
}

func FuzzParse(f *testing.F) {
	good, err := masters(3).Encode()
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte(`{"apiVersion":"dayone.dev/v1","kind":"RegistryPeers","peers":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := peers.Parse(raw)
		if err != nil {
			return
		}
		again, err := l.Encode()
		require.NoError(t, err)
		back, err := peers.Parse(again)
		require.NoError(t, err)
		require.Equal(t, l, back)
	})
}
