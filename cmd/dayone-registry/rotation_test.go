package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/rotation"
	"dayone.dev/dayone/registry/wanted"
)

// client is who pulls and pushes: files of a node, which lag behind those of the registries.
type client struct{ dir string }

// options are those of the files as they are now, on a connection of its own.
func (c client) options(file string) ([]remote.Option, func(), error) {
	pem, err := os.ReadFile(filepath.Join(c.dir, certs.CACertFile))
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, nil, errors.New("no CA")
	}
	accounts, err := credentials.Read(filepath.Join(c.dir, file))
	if err != nil {
		return nil, nil, err
	}
	a, _, err := accounts.Find(sharedName)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return []remote.Option{remote.WithTransport(tr), remote.WithAuth(&authn.Basic{Username: a.Username,
		Password: a.Password})}, tr.CloseIdleConnections, err
}

// sharedName is the registries' in auth files.
const sharedName = "api-int.example.com:22626"

// pull takes an image with every byte.
func (c client) pull(addr string, image wanted.Image) error {
	options, end, err := c.options(registry.PullAuthFile)
	if err != nil {
		return err
	}
	defer end()
	from, err := name.NewDigest(addr + "/" + image.Name())
	if err != nil {
		return err
	}
	img, err := remote.Image(from, options...)
	if err != nil {
		return err
	}
	return validate.Image(img)
}

func (c client) push(t *testing.T, addr string) wanted.Image {
	t.Helper()
	image, err := c.pushRandom(addr)
	require.NoError(t, err)
	return image
}

// pushRandom pushes an image of random bytes, which no registry has.
func (c client) pushRandom(addr string) (out wanted.Image, err error) {
	options, end, err := c.options(registry.PushAuthFile)
	if err != nil {
		return out, err
	}
	defer end()
	img, err := random.Image(20_000, 2)
	if err != nil {
		return out, err
	}
	d, err := img.Digest()
	if err != nil {
		return out, err
	}
	to, err := name.NewDigest(addr + "/ns/os@" + d.String())
	if err != nil {
		return out, err
	}
	return wanted.Image{Repository: "ns/os", Digest: digest.Digest(d.String()), By: []string{"test"}},
		remote.Write(to, img, options...)
}

// bring copies one file of the shared directory, as a node's agent writes it.
func bring(t *testing.T, from, to, file string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(from, file))
	require.NoError(t, err)
	require.NoError(t, credentials.Write(filepath.Join(to, file), raw))
}

// fleet is a control plane of three registries that run, and who uses them.
type fleet struct {
	shared string
	hosts  []host
	client client
	// stop ends one of them, by node.
	stop map[string]func() error
}

func newFleet(t *testing.T) fleet {
	t.Helper()
	f := newFleetOf(t, 3)
	for _, h := range f.hosts {
		f.start(t, h)
	}
	return f
}

func (f fleet) start(t *testing.T, h host) {
	t.Helper()
	stop := h.start(t)
	t.Cleanup(func() { require.NoError(t, stop()) })
	f.stop[h.node] = stop
}

// newFleetOf is a control plane of n registries that do not run yet.
func newFleetOf(t *testing.T, n int) fleet {
	t.Helper()
	f := fleet{shared: t.TempDir(), client: client{t.TempDir()}, stop: map[string]func() error{}}
	_, err := registry.LoadOrCreateUsers(f.shared, sharedName)
	require.NoError(t, err)
	_, err = certs.LoadOrCreateCA(f.shared, certs.CAOptions{CommonName: "CA"})
	require.NoError(t, err)
	var list peers.List
	for i := range n {
		h := newHostIn(t, f.shared)
		h.node = fmt.Sprintf("m%d", i)
		f.hosts = append(f.hosts, h)
		list.Peers = append(list.Peers, peers.Peer{Name: h.node, Address: h.addr})
	}
	list.Registry = sharedName
	for _, h := range f.hosts {
		raw, err := json.Marshal(map[string]any{"apiVersion": "dayone.dev/v1", "kind": "RegistryPeers",
			"registry": sharedName, "peers": list.Peers})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(h.dir, "peers.json"), raw, 0o600))
	}
	for _, file := range clientFiles() {
		bring(t, f.shared, f.client.dir, file)
	}
	return f
}

// sharedFiles are what a control-plane node has.
func sharedFiles() []string { return []string{usersFile, pullFile, caFile, certs.CAKeyFile} }

func clientFiles() []string {
	return []string{certs.CACertFile, registry.PullAuthFile, registry.PushAuthFile}
}

// want gives all registries a list, and waits until they have it all.
func (f fleet) want(t *testing.T, images ...wanted.Image) {
	t.Helper()
	l := wanted.New(time.Now(), images)
	raw, err := l.Encode()
	require.NoError(t, err)
	for _, h := range f.hosts {
		_, err := wanted.WriteFile(filepath.Join(h.state(), wanted.ListFile), raw)
		require.NoError(t, err)
	}
	for _, h := range f.hosts {
		var last wanted.Report
		require.Eventually(t, func() bool {
			last, _, err = wanted.ReadReport(filepath.Join(h.state(), wanted.ReportFile), time.Now())
			return err == nil && last.Ready && last.List == l.Hash()
		}, 2*time.Minute, 50*time.Millisecond, "%s: %+v", h.node, &last)
	}
}

// TestRotationInARunningControlPlane: accounts and CA are replaced file by file, in any order of registries and
// clients, while clients pull from each registry again and again. No pull fails, and what is pushed between two steps
// reaches all registries. At the end the old accounts are refused.
func TestRotationInARunningControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	f := newFleet(t)
	images := []wanted.Image{f.client.push(t, f.hosts[0].addr)}
	f.want(t, images...)
	old := client{t.TempDir()}
	for _, file := range clientFiles() {
		bring(t, f.shared, old.dir, file)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var pulls atomic.Int64
	var wg sync.WaitGroup
	for _, h := range f.hosts {
		wg.Go(func() {
			for ctx.Err() == nil {
				if !assert.NoError(t, f.client.pull(h.addr, images[0]), "pull from %s", h.node) {
					return
				}
				pulls.Add(1)
				time.Sleep(100 * time.Millisecond) // two cores have to do the rest, too
			}
		})
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	for range 3 {
		step, err := rotation.Next(f.shared)
		require.NoError(t, err)
		var changes []func()
		for _, h := range f.hosts {
			for _, file := range sharedFiles() {
				changes = append(changes, func() { bring(t, f.shared, h.config, file) })
			}
		}
		for _, file := range clientFiles() {
			changes = append(changes, func() { bring(t, f.shared, f.client.dir, file) })
		}
		chance.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
		for i, change := range changes {
			change()
			time.Sleep(time.Duration(chance.IntN(400)) * time.Millisecond) // nodes do not change at the same time
			if i == len(changes)/2 {
				images = append(images, f.client.push(t, f.hosts[chance.IntN(3)].addr))
			}
		}
		for _, h := range f.hosts {
			f.settled(t, h, step, old)
		}
		f.want(t, images...)
		require.False(t, t.Failed(), "after step %s", step)
	}
	cancel()
	wg.Wait()
	t.Logf("%d pulls", pulls.Load())
	for _, h := range f.hosts {
		require.Error(t, old.pull(h.addr, images[0]))
	}
}

// settled waits until a registry works by the files of a step: then the next step may begin.
func (f fleet) settled(t *testing.T, h host, step rotation.Step, old client) {
	t.Helper()
	fresh := f.shared
	if step == rotation.Added {
		fresh = filepath.Join(f.shared, "rotation", "new")
	}
	accounts, err := credentials.Read(filepath.Join(fresh, registry.PullAuthFile))
	require.NoError(t, err)
	a, _, err := accounts.Find(sharedName)
	require.NoError(t, err)
	before, err := credentials.Read(filepath.Join(old.dir, registry.PullAuthFile))
	require.NoError(t, err)
	was, _, err := before.Find(sharedName)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		code, issuer := h.ask(t, a.Username, a.Password)
		switch step {
		case rotation.Switched:
			return code == http.StatusOK && issuer == "CA-2"
		case rotation.Ended:
			gone, _ := h.ask(t, was.Username, was.Password)
			return code == http.StatusOK && gone == http.StatusUnauthorized
		}
		return code == http.StatusOK
	}, time.Minute, 200*time.Millisecond, "%s has not taken over step %s", h.node, step)
}
