package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/wanted"
)

// olderProgram names a dayone-registry of an earlier version, where you have one: without it the test replaces the
// program by another build of the same source.
const olderProgram = "DAYONE_TEST_OLDER_REGISTRY"

// process runs a program as a node's unit does, until end: SIGTERM, as systemd stops it.
func (h host) process(t *testing.T, program, rate string) (end func()) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	c := exec.Command(program, "--config", h.config, "--root", filepath.Join(h.dir, "root"), "--state", h.state(),
		"--listen", h.addr, "--peers", filepath.Join(h.dir, "peers.json"), "--node", h.node, "--min-free", "0",
		"--auth", filepath.Join(h.dir, poolaccounts.AuthPath), "--rate", rate)
	c.Stderr = log
	require.NoError(t, c.Start())
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		_ = c.Process.Signal(syscall.SIGTERM) // one that has ended says so below
		err := c.Wait()
		text, _ := os.ReadFile(log.Name()) // it is for people
		assert.NoError(t, err, "%s", text)
	}
	t.Cleanup(end)
	return end
}

// received is how much of blobs under way a registry has.
func (h host) received(t *testing.T) (n int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(h.dir, "root", storage.Subdirectory, "repositories", "ns", "os", "_uploads",
		"*", "data"))
	require.NoError(t, err)
	for _, f := range files {
		if fi, err := os.Stat(f); err == nil {
			n += fi.Size()
		}
	}
	return n
}

// TestUpgradeInTheMiddleOfAReplication: the program of a node is replaced twice on one storage while a blob is half
// there, to a newer one and back to an older one, and the peer that gives it is the older one. Nothing comes anew, and
// nothing that a newer version wrote is misread.
func TestUpgradeInTheMiddleOfAReplication(t *testing.T) {
	if testing.Short() {
		t.Skip("links dayone-registry")
	}
	now := filepath.Join(t.TempDir(), "dayone-registry")
	require.NoError(t, program.Build(t.Context(), "../..", program.Options{
		Package: "dayone.dev/dayone/cmd/dayone-registry"}, now))
	older := os.Getenv(olderProgram)
	if older == "" {
		older = filepath.Join(t.TempDir(), "older")
		require.NoError(t, os.Link(now, older))
		t.Logf("%s names no program of an earlier version: the same one stands for it", olderProgram)
	}
	f := newFleetOf(t, 2)
	giver, taker := f.hosts[0], f.hosts[1]
	giver.process(t, older, "100")
	giver.answers(t)
	img, err := random.Image(12<<20, 1)
	require.NoError(t, err)
	d, err := img.Digest()
	require.NoError(t, err)
	to, err := name.NewDigest(giver.addr + "/ns/os@" + d.String())
	require.NoError(t, err)
	options, done, err := f.client.options(registry.PushAuthFile)
	require.NoError(t, err)
	defer done()
	require.NoError(t, remote.Write(to, img, options...))
	image := wanted.Image{Repository: "ns/os", Digest: digest.Digest(d.String()), By: []string{"test"}}
	list := wanted.New(time.Now(), []wanted.Image{image})
	raw, err := list.Encode()
	require.NoError(t, err)
	// What versions after the older one write beside its list.
	require.NoError(t, os.MkdirAll(taker.state(), 0o700))
	require.NoError(t, wanted.WriteAccounts(filepath.Join(taker.state(), wanted.AccountsFile), "# none\n"))
	_, err = wanted.WriteFile(filepath.Join(taker.state(), wanted.ListFile), raw)
	require.NoError(t, err)

	before := int64(0)
	for i, p := range []string{older, now, older, now} {
		rate := "1"
		if i == 3 {
			rate = "100"
		}
		end := taker.process(t, p, rate)
		if i < 3 {
			require.Eventually(t, func() bool { return taker.received(t) > before+1<<20 }, time.Minute, 10*time.Millisecond,
				"program %d goes on after %d bytes", i, before)
			end()
			require.Greater(t, taker.received(t), before, "what has come stays")
			before = taker.received(t)
		}
	}
	taker.answers(t)
	require.Eventually(t, func() bool { return f.client.pull(taker.addr, image) == nil }, 2*time.Minute,
		100*time.Millisecond)
	require.Eventually(t, func() bool {
		r, there, err := wanted.ReadReport(filepath.Join(taker.state(), wanted.ReportFile), time.Now())
		return err == nil && there && r.Ready && r.List == list.Hash() && r.Accounts != ""
	}, time.Minute, 100*time.Millisecond)
}
