package sign_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/hack/faultproxy"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

const (
	final = "registry.example.com/os/worker"
	// layerSize is much more than a signature has.
	layerSize = 64 << 10
)

// made are keys for all tests: to read one takes a while, on purpose.
var made = sync.OnceValues(func() ([]*sign.Key, error) {
	dir, err := os.MkdirTemp("", "keys-")
	if err != nil {
		return nil, err
	}
	keys := make([]*sign.Key, 3)
	for i := range keys {
		if keys[i], err = sign.LoadOrCreate(filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return nil, err
		}
	}
	return keys, os.RemoveAll(dir)
})

func keys(t testing.TB) []*sign.Key {
	t.Helper()
	keys, err := made()
	require.NoError(t, err)
	return keys
}

func parse(t testing.TB, s string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(s)
	require.NoError(t, err)
	return ref
}

func digestOf(t testing.TB, x interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	d, err := x.Digest()
	require.NoError(t, err)
	return d.String()
}

// push gives an image a place in the registry and names it there.
func push(t testing.TB, r *registrytest.Registry, repository string) (v1.Image, sign.Image) {
	t.Helper()
	img, err := random.Image(layerSize, 3)
	require.NoError(t, err)
	at := sign.Image{Repository: final, Endpoint: transfer.Endpoint{CAFile: r.CAFile, AuthFile: r.PushAuthFile,
		Reference: r.Addr + "/" + repository + "@" + digestOf(t, img)}}
	require.NoError(t, remote.Write(parse(t, at.Endpoint.Reference), img, r.Pusher(t)...))
	return img, at
}

func signatureTag(at sign.Image) string {
	repository, d, _ := strings.Cut(at.Endpoint.Reference, "@")
	return repository + ":" + strings.Replace(d, ":", "-", 1) + ".sig"
}

func TestSign(t *testing.T) {
	reg := registrytest.Start(t)
	_, at := push(t, reg, "os/worker")
	k, other := keys(t)[0], keys(t)[1]
	require.ErrorIs(t, sign.Verify(t.Context(), at, k.Public), transfer.ErrNotAllowed, "unsigned")
	added, err := k.Sign(t.Context(), at)
	require.NoError(t, err)
	assert.True(t, added)
	added, err = k.Sign(t.Context(), at)
	require.NoError(t, err)
	assert.False(t, added, "it is there already")
	for _, tc := range []struct {
		name string
		at   func(sign.Image) sign.Image
		keys []sign.PublicKey
		ok   bool
	}{
		{"its key", func(i sign.Image) sign.Image { return i }, []sign.PublicKey{k.Public}, true},
		{"one of several keys", func(i sign.Image) sign.Image { return i }, []sign.PublicKey{other.Public, k.Public}, true},
		{"another key", func(i sign.Image) sign.Image { return i }, []sign.PublicKey{other.Public}, false},
		{"another repository", func(i sign.Image) sign.Image { i.Repository = final + "2"; return i },
			[]sign.PublicKey{k.Public}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := sign.Verify(t.Context(), tc.at(at), tc.keys...)
			if tc.ok {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, transfer.ErrNotAllowed)
			}
		})
	}
	t.Run("a second key adds its signature", func(t *testing.T) {
		_, err := other.Sign(t.Context(), at)
		require.NoError(t, err)
		require.NoError(t, sign.Verify(t.Context(), at, k.Public))
		require.NoError(t, sign.Verify(t.Context(), at, other.Public))
	})
	t.Run("another image's signature", func(t *testing.T) {
		_, theirs := push(t, reg, "os/worker")
		signatures, err := remote.Image(parse(t, signatureTag(at)), reg.Pusher(t)...)
		require.NoError(t, err)
		require.NoError(t, remote.Write(parse(t, signatureTag(theirs)), signatures, reg.Pusher(t)...))
		require.ErrorIs(t, sign.Verify(t.Context(), theirs, k.Public), transfer.ErrNotAllowed)
	})
	t.Run("the tag is deleted", func(t *testing.T) {
		require.NoError(t, remote.Delete(parse(t, signatureTag(at)), reg.Pusher(t)...))
		require.ErrorIs(t, sign.Verify(t.Context(), at, k.Public), transfer.ErrNotAllowed)
	})
	t.Run("no registry", func(t *testing.T) {
		gone := at
		gone.Endpoint.Reference = strings.Replace(at.Endpoint.Reference, reg.Addr, "127.0.0.1:1", 1)
		err := sign.Verify(t.Context(), gone, k.Public)
		require.Error(t, err)
		require.NotErrorIs(t, err, transfer.ErrNotAllowed, "nothing is known")
	})
	t.Run("by tag", func(t *testing.T) {
		tagged := at
		tagged.Endpoint.Reference = reg.Addr + "/os/worker:v1"
		_, err := k.Sign(t.Context(), tagged)
		require.Error(t, err)
	})
}

// TestSignMovesNoBlob counts what goes to and from the registry.
func TestSignMovesNoBlob(t *testing.T) {
	reg := registrytest.Start(t)
	img, at := push(t, reg, "os/worker")
	layers, err := img.Layers()
	require.NoError(t, err)
	proxy, err := faultproxy.To(reg.URL(), reg.Transport(t))
	require.NoError(t, err)
	var moved atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = counted{r.Body, &moved}
		for _, l := range layers {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/blobs/"+digestOf(t, l)) {
				moved.Add(layerSize)
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	at.Endpoint = transfer.Endpoint{Username: reg.Push.Name, Password: reg.Push.Password, Insecure: true,
		Reference: strings.Replace(at.Endpoint.Reference, reg.Addr, s.Listener.Addr().String(), 1)}
	_, err = keys(t)[0].Sign(t.Context(), at)
	require.NoError(t, err)
	assert.Positive(t, moved.Load())
	assert.Less(t, moved.Load(), int64(layerSize))
}

type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// BenchmarkVouch is what signing adds to a Day 1: provenance, a signature with its second look, and a node's check.
func BenchmarkVouch(b *testing.B) {
	reg := registrytest.Start(b)
	k := keys(b)[0]
	var used time.Duration
	for b.Loop() {
		b.StopTimer()
		_, at := push(b, reg, "os/worker")
		began := processorTime(b)
		b.StartTimer()
		require.NoError(b, k.Attest(b.Context(), at, sign.Provenance{}))
		_, err := k.Sign(b.Context(), at)
		require.NoError(b, err)
		require.NoError(b, sign.Verify(b.Context(), at, k.Public))
		used += processorTime(b) - began
	}
	b.ReportMetric(float64(used.Milliseconds())/float64(b.N), "cpu-ms/op")
}

// processorTime is what this process has used: on a busy machine it says more than a clock.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestSignAnIndex(t *testing.T) {
	reg := registrytest.Start(t)
	img, at := push(t, reg, "os/worker")
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img})
	whole := at
	whole.Endpoint.Reference = reg.Addr + "/os/worker@" + digestOf(t, index)
	require.NoError(t, remote.WriteIndex(parse(t, whole.Endpoint.Reference), index, reg.Pusher(t)...))
	k := keys(t)[0]
	_, err := k.Sign(t.Context(), whole)
	require.NoError(t, err)
	require.NoError(t, sign.Verify(t.Context(), whole, k.Public))
	require.NoError(t, sign.Verify(t.Context(), at, k.Public), "a node pulls the index's image")
}

// TestSignaturesFromAnotherTime: a clock that is years off decides nothing. The signature is one that another program
// has made, in the form that cosign documents (specs/SIGNATURE_SPEC.md there).
func TestSignaturesFromAnotherTime(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	require.NoError(t, err)
	public, err := sign.ParsePublicKey(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	require.NoError(t, err)
	reg := registrytest.Start(t)
	for _, at := range []time.Time{time.Unix(0, 0), time.Now(), time.Now().AddDate(70, 0, 0)} {
		t.Run(at.Format(time.DateOnly), func(t *testing.T) {
			_, image := push(t, reg, "os/worker")
			_, digest, _ := strings.Cut(image.Endpoint.Reference, "@")
			payload := fmt.Appendf(nil, `{"critical":{"type":"cosign container image signature","image":`+
				`{"docker-manifest-digest":%q},"identity":{"docker-reference":%q}},"optional":{"timestamp":%d}}`, digest, final,
				at.Unix())
			sum := sha256.Sum256(payload)
			signature, err := ecdsa.SignASN1(rand.Reader, private, sum[:])
			require.NoError(t, err)
			const kind = "application/vnd.dev.cosign.simplesigning.v1+json"
			signatures, err := mutate.Append(mutate.MediaType(empty.Image, "application/vnd.oci.image.manifest.v1+json"),
				mutate.Addendum{Layer: static.NewLayer(payload, kind), MediaType: kind, Annotations: map[string]string{
					"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)}})
			require.NoError(t, err)
			require.NoError(t, remote.Write(parse(t, signatureTag(image)), signatures, reg.Pusher(t)...))
			require.NoError(t, sign.Verify(t.Context(), image, public))
			require.ErrorIs(t, sign.Verify(t.Context(), image, keys(t)[0].Public), transfer.ErrNotAllowed)
		})
	}
}

// TestSignersAtOnce lets signers race for one tag: each signature must be there in the end.
func TestSignersAtOnce(t *testing.T) {
	reg := registrytest.Start(t)
	_, at := push(t, reg, "os/worker")
	keys := keys(t)
	var g errgroup.Group
	for _, k := range keys {
		g.Go(func() error {
			_, err := k.Sign(t.Context(), at)
			return err
		})
	}
	require.NoError(t, g.Wait())
	for i, k := range keys {
		require.NoError(t, sign.Verify(t.Context(), at, k.Public), i)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	k, err := sign.LoadOrCreate(dir)
	require.NoError(t, err)
	again, err := sign.LoadOrCreate(dir)
	require.NoError(t, err)
	assert.Equal(t, k.Public, again.Public)
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{sign.KeyFile, sign.PassphraseFile} {
		info, err := os.Stat(file(name))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
	public, err := sign.ReadPublicKey(file(sign.PublicFile))
	require.NoError(t, err)
	assert.Equal(t, k.Public, public)
	assert.Len(t, public.Fingerprint(), 64)
	shown := fmt.Sprintf("%v %+v %#v %s", k, k, k, k)
	assert.Equal(t, strings.TrimSpace(strings.Repeat(public.Fingerprint()+" ", 4)), shown)

	raw, err := os.ReadFile(file(sign.KeyFile))
	require.NoError(t, err)
	assert.True(t, bytes.HasPrefix(raw, []byte("-----BEGIN ENCRYPTED COSIGN PRIVATE KEY-----")))
	write := func(t *testing.T, name, text string, mode os.FileMode) string {
		t.Helper()
		f := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(f, []byte(text), mode))
		return f
	}
	for _, tc := range []struct {
		name, key, passphrase, message string
	}{
		{"wrong passphrase", file(sign.KeyFile), write(t, "p", "wrong\n", 0o600), "decryption failed: is "},
		{"others may read the key", write(t, "k", string(raw), 0o640), file(sign.PassphraseFile), "chmod 0600"},
		{"others may read the passphrase", file(sign.KeyFile), write(t, "p", "x", 0o604), "chmod 0600"},
		{"a public key", file(sign.PublicFile), file(sign.PassphraseFile), "chmod 0600"},
		{"no key", write(t, "k", "text", 0o600), file(sign.PassphraseFile), "dayone keygen"},
		{"too large", write(t, "k", strings.Repeat("x", 1<<20), 0o600), file(sign.PassphraseFile), "it is no key"},
		{"absent", filepath.Join(dir, "none"), file(sign.PassphraseFile), "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := sign.Load(tc.key, tc.passphrase)
			require.ErrorContains(t, err, tc.message)
		})
	}
	_, err = sign.ParsePublicKey([]byte("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA" +
		"GbVr7kKDkYzGkzOoZP1xJbm7C5lZb5dR0qL7QnTfH1Q=\n-----END PUBLIC KEY-----\n"))
	require.ErrorContains(t, err, "P-256", "an Ed25519 key")
	_, err = sign.ParsePublicKey(raw)
	require.Error(t, err, "a private key is no public one")
}
