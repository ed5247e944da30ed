package replica_test

import (
	"crypto/tls"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/faultproxy"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/replica"
	"dayone.dev/dayone/registry/wanted"
)

func TestImageReachesAllReplicas(t *testing.T) {
	w := newWorld(t, 3)
	img, image := w.pushImage(w.sites[0], 100_000, 3)
	referrer, tag := w.attach(w.sites[0], img)
	l := w.want(image)
	for _, s := range w.sites {
		w.ready(s, l)
		require.NoError(t, w.whole(s, image))
		require.Eventually(t, func() bool { return w.status(s, repo+"/manifests/"+tag) == http.StatusOK }, patience, pause)
		assert.Equal(t, http.StatusOK, w.status(s, repo+"/manifests/"+string(referrer)))
	}
	assert.True(t, w.report(w.sites[1]).Holds(l, repo, image.Digest))
}

// A cold start has no API and, for a registry that comes first, no peers.
func TestColdStart(t *testing.T) {
	w := newWorld(t, 2)
	_, image := w.pushImage(w.sites[0], 1000, 1)
	l := w.want(image)
	for _, s := range w.sites {
		w.ready(s, l)
	}
	w.know()
	for _, s := range w.sites {
		w.lose(s, false)
		require.NoError(t, os.Remove(filepath.Join(s.dir, wanted.ReportFile)))
	}
	for _, s := range w.sites {
		w.back(s)
		w.ready(s, l)
		require.NoError(t, w.whole(s, image))
	}
}

// badPeer stands before a registry, with a certificate that the replicas trust.
func (w *world) badPeer(s *site, make func(*faultproxy.Proxy) faultproxy.Fault) peers.Peer {
	w.t.Helper()
	p, err := faultproxy.To(s.URL(), s.Transport(w.t))
	require.NoError(w.t, err)
	p.Spoil(make(p))
	ca, err := certs.LoadOrCreateCA(w.shared, certs.CAOptions{})
	require.NoError(w.t, err)
	pair, err := ca.ServerCertificate([]string{"127.0.0.1"}, certs.ServerOptions{})
	require.NoError(w.t, err)
	srv := httptest.NewUnstartedServer(p)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	w.t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return peers.Peer{Name: "bad", Address: srv.Listener.Addr().String()}
}

func TestBadPeers(t *testing.T) {
	changed := func(body []byte) []byte {
		out := append([]byte{}, body...)
		out[len(out)/2] ^= 1
		return out
	}
	other := func([]byte) []byte { return []byte("quite another blob") }
	for _, tc := range []struct {
		name string
		bad  func(*faultproxy.Proxy) faultproxy.Fault
	}{
		{"wrong bytes", func(p *faultproxy.Proxy) faultproxy.Fault { return faultproxy.On("/blobs/", p.Changed(changed)) }},
		{"another blob", func(p *faultproxy.Proxy) faultproxy.Fault { return faultproxy.On("/blobs/", p.Changed(other)) }},
		{"another manifest", func(p *faultproxy.Proxy) faultproxy.Fault {
			return faultproxy.On("/manifests/sha256:", p.Changed(changed))
		}},
		{"half a blob", func(p *faultproxy.Proxy) faultproxy.Fault { return faultproxy.On("/blobs/", p.Dying(500)) }},
		{"silent at blobs", func(*faultproxy.Proxy) faultproxy.Fault {
			return faultproxy.On("/blobs/", faultproxy.Silent)
		}},
		{"silent", func(*faultproxy.Proxy) faultproxy.Fault { return faultproxy.Silent }},
		{"endless manifest", func(*faultproxy.Proxy) faultproxy.Fault {
			return faultproxy.On("/manifests/", faultproxy.Endless)
		}},
		{"endless blob", func(*faultproxy.Proxy) faultproxy.Fault { return faultproxy.On("/blobs/", faultproxy.Endless) }},
		{"503", func(*faultproxy.Proxy) faultproxy.Fault { return faultproxy.Status(http.StatusServiceUnavailable) }},
		{"404", func(*faultproxy.Proxy) faultproxy.Fault { return faultproxy.Status(http.StatusNotFound) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, 2)
			_, image := w.pushImage(w.sites[0], 50_000, 2)
			bad := w.badPeer(w.sites[0], tc.bad)
			w.know(bad)
			l := wanted.New(time.Now(), []wanted.Image{image})
			w.give(w.sites[1], l)
			r := w.until(w.sites[1], func(r wanted.Report) bool { return len(r.Missing) == 1 })
			assert.False(t, r.Ready)
			assert.Equal(t, image.Name(), r.Missing[0].Image)
			assert.NotEmpty(t, r.Missing[0].Why)
			assert.Equal(t, http.StatusNotFound, w.status(w.sites[1], repo+"/manifests/"+string(image.Digest)))

			w.know(bad, peers.Peer{Name: "m0", Address: w.sites[0].Addr})
			w.ready(w.sites[1], l)
			require.NoError(t, w.whole(w.sites[1], image))
		})
	}
}

// A registry that lost its peer in the middle of a blob takes the rest from another one.
func TestAnotherPeerGoesOnInTheMiddleOfABlob(t *testing.T) {
	w := newWorld(t, 3)
	img, image := w.pushImage(w.sites[0], 4<<20, 1)
	w.give(w.sites[1], wanted.New(time.Now(), []wanted.Image{image}))
	w.until(w.sites[1], func(r wanted.Report) bool { return r.Ready })
	layers, err := img.Layers()
	require.NoError(t, err)
	d, err := layers[0].Digest()
	require.NoError(t, err)
	dying := w.badPeer(w.sites[0], func(p *faultproxy.Proxy) faultproxy.Fault {
		return faultproxy.On("/blobs/"+d.String(), p.Dying(700))
	})
	w.know(dying)
	l := wanted.New(time.Now(), []wanted.Image{image})
	w.give(w.sites[2], l)
	w.until(w.sites[2], func(r wanted.Report) bool { return len(r.Missing) == 1 })
	var asked []string
	good := w.badPeer(w.sites[1], func(*faultproxy.Proxy) faultproxy.Fault {
		return faultproxy.On("/blobs/"+d.String(), func(_ http.ResponseWriter, r *http.Request) bool {
			asked = append(asked, r.Header.Get("Range"))
			return false
		})
	})
	good.Name = "good"
	w.know(good)
	w.ready(w.sites[2], l)
	require.NoError(t, w.whole(w.sites[2], image))
	require.Len(t, asked, 1)
	assert.NotEmpty(t, asked[0], "it goes on where the other one has died")
}

// A list that was forged or damaged changes nothing: what was wanted before stays, and nothing is fetched or dropped.
func TestForgedListChangesNothing(t *testing.T) {
	for _, tc := range []struct{ name, text string }{
		{"not JSON", `{"images":`}, {"no digest", `{"images":[{"repository":"ns/os","digest":"latest"}]}`},
		{"leaves the root", `{"images":[{"repository":"../../etc","digest":"` + string(digest.FromString("x")) + `"}]}`},
		{"two lists", `{"images":[]}{"images":[]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, 1, func(_ int, _ *registry.Options, r *replica.Options) { r.Grace = time.Nanosecond })
			_, image := w.pushImage(w.sites[0], 1000, 1)
			l := w.want(image)
			w.ready(w.sites[0], l)
			path := filepath.Join(w.sites[0].dir, wanted.ListFile)
			require.NoError(t, os.WriteFile(path, []byte(tc.text), 0o600))
			before := time.Now()
			require.Eventually(t, func() bool {
				fi, err := os.Stat(filepath.Join(w.sites[0].dir, wanted.ReportFile))
				return err == nil && fi.ModTime().After(before.Add(5*pause))
			}, patience, pause)
			w.ready(w.sites[0], l)
			require.NoError(t, w.whole(w.sites[0], image))
		})
	}
}

// A newer dayone may say more in a list than this registry knows. If it means something else by it, the registry keeps
// what it has and says what to do.
func TestListOfANewerVersion(t *testing.T) {
	w := newWorld(t, 2, func(_ int, _ *registry.Options, r *replica.Options) { r.Grace = time.Nanosecond })
	_, first := w.pushImage(w.sites[0], 1000, 1)
	_, second := w.pushImage(w.sites[0], 1000, 1)
	s, l := w.sites[1], wanted.New(time.Now(), []wanted.Image{first})
	path := filepath.Join(s.dir, wanted.ListFile)
	raw, err := l.Encode()
	require.NoError(t, err)
	more := strings.Replace(string(raw), `{"repository"`, `{"since":"2027","repository"`, 1)
	require.NotEqual(t, string(raw), more)
	_, err = wanted.WriteFile(path, []byte(strings.Replace(more, `{"issued"`, `{"pools":["a"],"issued"`, 1)))
	require.NoError(t, err, "an older agent carries it")
	w.ready(s, l)
	require.NoError(t, w.whole(s, first))

	raw, err = wanted.New(time.Now(), []wanted.Image{second}).Encode()
	require.NoError(t, err)
	newer := strings.Replace(string(raw), `{"issued"`, `{"version":1,"issued"`, 1)
	_, err = wanted.WriteFile(path, []byte(newer))
	require.ErrorIs(t, err, wanted.ErrNewer, "an older agent leaves the file")
	require.NoError(t, os.WriteFile(path, []byte(newer), 0o600))
	said := w.until(s, func(r wanted.Report) bool { return r.Problem != "" })
	assert.Contains(t, said.Problem, "newer version of dayone: bring dayone-registry of that version")
	assert.Equal(t, l.Hash(), said.List)
	assert.False(t, said.Holds(l, repo, first.Digest), "nothing relies on it")
	require.NoError(t, w.whole(s, first))
	assert.Equal(t, http.StatusNotFound, w.status(s, repo+"/manifests/"+string(second.Digest)))
}

// What a restored backup of etcd wants again is fetched from whoever has it still, and otherwise named.
func TestListGoesBack(t *testing.T) {
	w := newWorld(t, 2, func(i int, _ *registry.Options, r *replica.Options) {
		r.Grace = time.Nanosecond
		if i == 1 {
			r.Grace = time.Hour
		}
	})
	_, stays := w.pushImage(w.sites[0], 1000, 1)
	_, goes := w.pushImage(w.sites[0], 1000, 1)
	_, lost := w.pushImage(w.sites[0], 1000, 1)
	before := w.want(stays, goes)
	for _, s := range w.sites {
		w.ready(s, before)
	}
	w.ready(w.sites[0], w.want(stays))
	for _, i := range []wanted.Image{goes, lost} {
		require.Eventually(t, func() bool {
			return w.status(w.sites[0], repo+"/manifests/"+string(i.Digest)) == http.StatusNotFound
		}, patience, pause)
	}
	w.want(stays, goes, lost)
	said := w.until(w.sites[0], func(r wanted.Report) bool { return r.Wanted == 3 && r.Held == 2 })
	require.Len(t, said.Missing, 1)
	assert.Equal(t, lost.Name(), said.Missing[0].Image)
	assert.NotEmpty(t, said.Missing[0].Why)
	require.NoError(t, w.whole(w.sites[0], goes))
}

// A node that was off for a month names an image that nothing else wants any more: who has it keeps it.
func TestWhatOnlyANodeNamesStays(t *testing.T) {
	w := newWorld(t, 2, func(_ int, _ *registry.Options, r *replica.Options) { r.Grace = time.Nanosecond })
	_, old := w.pushImage(w.sites[0], 1000, 1)
	_, now := w.pushImage(w.sites[0], 1000, 1)
	_, goes := w.pushImage(w.sites[0], 1000, 1)
	old.OnlyKeep = true
	l := w.want(old, now)
	for _, s := range w.sites {
		w.ready(s, l)
	}
	require.Eventually(t, func() bool {
		return w.status(w.sites[0], repo+"/manifests/"+string(goes.Digest)) == http.StatusNotFound
	}, patience, pause, "the registry lets go what nothing names")
	require.NoError(t, w.whole(w.sites[0], old))
	require.Error(t, w.whole(w.sites[1], old), "it is not fetched: a node may name anything")
}

func TestDrop(t *testing.T) {
	week := 7 * 24 * time.Hour
	for _, tc := range []struct {
		name string
		// grace, and how old the list is by this host's clock.
		grace, age time.Duration
		empty      bool
		gone       bool
	}{
		{name: "after its grace", grace: 5 * every, gone: true},
		{name: "not before", grace: time.Hour},
		{name: "not by a list that nobody renews", grace: time.Nanosecond, age: week},
		{name: "not when the clock was set back", grace: time.Nanosecond, age: -week},
		{name: "not by an empty list", grace: time.Nanosecond, empty: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, 1, func(_ int, _ *registry.Options, r *replica.Options) { r.Grace = tc.grace })
			s := w.sites[0]
			old, unwanted := w.pushImage(s, 1000, 1)
			_, oldTag := w.attach(s, old)
			img, image := w.pushImage(s, 1000, 1)
			referrer, tag := w.attach(s, img)
			l := wanted.New(time.Now(), []wanted.Image{image})
			if tc.empty {
				l.Images = []wanted.Image{}
			}
			w.give(s, l)
			then := time.Now().Add(-tc.age)
			require.NoError(t, os.Chtimes(filepath.Join(s.dir, wanted.ListFile), then, then))
			w.ready(s, l)
			if tc.gone {
				require.Eventually(t, func() bool {
					return w.status(s, repo+"/manifests/"+string(unwanted.Digest)) == http.StatusNotFound
				}, patience, pause)
				require.Eventually(t, func() bool {
					return w.status(s, repo+"/manifests/"+oldTag) == http.StatusNotFound
				}, patience, pause)
			} else {
				time.Sleep(20 * pause)
				require.NoError(t, w.whole(s, unwanted))
			}
			require.NoError(t, w.whole(s, image))
			assert.Equal(t, http.StatusOK, w.status(s, repo+"/manifests/"+tag))
			assert.Equal(t, http.StatusOK, w.status(s, repo+"/manifests/"+string(referrer)))
		})
	}
}

// A disk that is too small names what is missing; what it has is served and stays.
func TestDiskTooSmall(t *testing.T) {
	w := newWorld(t, 2, func(i int, o *registry.Options, _ *replica.Options) {
		if i == 1 {
			o.MaxBytes = 100_000
		}
	})
	_, small := w.pushImage(w.sites[0], 10_000, 1)
	w.ready(w.sites[1], w.want(small))
	_, large := w.pushImage(w.sites[0], 500_000, 1)
	l := w.want(small, large)
	r := w.until(w.sites[1], func(r wanted.Report) bool { return r.List == l.Hash() })
	require.Len(t, r.Missing, 1)
	assert.Equal(t, large.Name(), r.Missing[0].Image)
	assert.Contains(t, r.Missing[0].Why, "free disk space")
	require.NotNil(t, r.RoomBytes, "a build can be held back")
	assert.InDelta(t, 90_000, *r.RoomBytes, 10_000)
	assert.True(t, r.Holds(l, repo, small.Digest))
	assert.False(t, r.Holds(l, repo, large.Digest))
	require.NoError(t, w.whole(w.sites[1], small))
}

// roundsEnv is how often TestLossOfAnyReplica loses one.
const roundsEnv = "DAYONE_TEST_ROUNDS"

// Whichever replica is lost at whatever time, with or without its disk: every wanted digest is still pulled.
func TestLossOfAnyReplica(t *testing.T) {
	rounds, seed := 40, uint64(7)
	if testing.Short() {
		rounds = 5
	}
	if v := os.Getenv(roundsEnv); v != "" {
		var err error
		rounds, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	dice := rand.New(rand.NewPCG(seed, seed))
	w := newWorld(t, 3)
	var images []wanted.Image
	for round := range rounds {
		at := w.sites[dice.IntN(3)]
		img, image := w.pushImage(at, 2000, 2)
		if round%4 == 0 {
			w.attach(at, img)
		}
		images = append(images, image)
		images = images[max(0, len(images)-6):]
		l := w.want(images...)
		early := dice.IntN(3) == 0 // before the image counts as there: then only where it was pushed must it stay
		if !early {
			for _, s := range w.sites {
				w.ready(s, l)
			}
		}
		lost := w.sites[dice.IntN(3)]
		if early && lost == at {
			lost = w.sites[(dice.IntN(2)+1+index(w.sites, at))%3]
		}
		w.lose(lost, dice.IntN(2) == 0)
		for _, i := range images {
			var pulled bool
			for _, s := range w.sites {
				pulled = pulled || !s.down && w.whole(s, i) == nil
			}
			require.True(t, pulled, "round %d of seed %d: nobody has %s", round, seed, i.Name())
		}
		w.back(lost)
		w.give(lost, l)
		for _, s := range w.sites {
			w.ready(s, l)
		}
	}
}

func index(sites []*site, s *site) int {
	for i := range sites {
		if sites[i] == s {
			return i
		}
	}
	return 0
}
