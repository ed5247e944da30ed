package replica_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/replica"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/wanted"
)

const (
	// childEnv makes the test program a registry that a test can kill; it holds a childOptions.
	childEnv = "DAYONE_TEST_REPLICA_CHILD"
	// killsEnv is how often TestKillAtRandomMoments kills, killSeedEnv the seed of another run.
	killsEnv    = "DAYONE_TEST_KILLS"
	killSeedEnv = "DAYONE_TEST_KILL_SEED"
)

type childOptions struct {
	Root, Dir, TLS, Auth string
	Listen               string
	Users                []registry.User
	Peers                peers.List
	Rate                 int64
}

func TestMain(m *testing.M) {
	if v := os.Getenv(childEnv); v != "" {
		if err := runChild(v); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runChild(text string) error {
	var c childOptions
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	beside := replica.Options{Dir: c.Dir, CAFile: filepath.Join(c.TLS, "ca.crt"), AuthFile: c.Auth, Every: every,
		BytesPerSecond: c.Rate, Grace: 5 * every, Peers: func() (peers.List, error) { return c.Peers, nil }}
	s, err := registry.New(registry.Options{Root: c.Root, Listen: c.Listen, TLSDir: c.TLS, Users: c.Users,
		Beside: func(ctx context.Context, store *storage.Store) { replica.Run(ctx, store, beside) }})
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		return err
	}
	fmt.Println(s.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
	return nil
}

// child runs a registry of the world in a process of its own, on a site's root and directory.
func (w *world) child(s *site, rate int64) *exec.Cmd {
	w.t.Helper()
	return w.childOf(s, rate, w.list)
}

// childOf is a child that knows other registries.
func (w *world) childOf(s *site, rate int64, others peers.List) *exec.Cmd {
	w.t.Helper()
	exe, err := os.Executable()
	require.NoError(w.t, err)
	raw, err := json.Marshal(childOptions{Root: s.Options.Root, Dir: s.dir, TLS: s.Options.TLSDir, Rate: rate,
		Listen: s.Addr, Auth: filepath.Join(w.shared, "pull-auth.json"), Users: []registry.User{w.pusher, w.pull},
		Peers: others})
	require.NoError(w.t, err)
	cmd := exec.CommandContext(w.t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+string(raw))
	_, err = cmd.StdinPipe()
	require.NoError(w.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, cmd.Start())
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(w.t, err)
	require.Equal(w.t, s.Addr, strings.TrimSpace(line))
	return cmd
}

// newChildSite is a site whose registry a test runs as a child.
func (w *world) newChildSite() *site {
	tls := w.t.TempDir()
	require.NoError(w.t, os.CopyFS(tls, os.DirFS(w.shared)))
	s := &site{dir: w.t.TempDir(), Registry: &registrytest.Registry{CAFile: filepath.Join(tls, "ca.crt"),
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(w.t)))}}
	s.Options = registry.Options{Root: filepath.Join(w.t.TempDir(), "root"), TLSDir: tls}
	w.sites = append(w.sites, s)
	w.know(append(w.list.Peers, peers.Peer{Name: fmt.Sprintf("child%d", len(w.sites)), Address: s.Addr})...)
	return s
}

// A kill in the middle of a blob loses nothing that has come: the next process asks for the rest.
func TestKillInTheMiddleOfABlob(t *testing.T) {
	w := newWorld(t, 1)
	_, image := w.pushImage(w.sites[0], 16<<20, 1)
	s := w.newChildSite()
	w.want(image)
	cmd := w.child(s, 8<<20)
	data := filepath.Join(s.Options.Root, storage.Subdirectory, "repositories", repo, "_uploads", "*", "data")
	received := func() (n int64) {
		files, err := filepath.Glob(data)
		require.NoError(t, err)
		for _, f := range files {
			if fi, err := os.Stat(f); err == nil {
				n += fi.Size()
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return received() > 4<<20 }, patience, pause)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed, that is its error
	before := received()
	require.Positive(t, before)
	w.child(s, 1<<20)
	require.Eventually(t, func() bool { return received() > before }, patience, pause, "it goes on, not anew")
	files, err := filepath.Glob(data)
	require.NoError(t, err)
	assert.Len(t, files, 1)
}

// TestKillAtRandomMoments kills a registry among fetches, pushes, drops and collections: what was answered is there,
// and what was wanted comes.
func TestKillAtRandomMoments(t *testing.T) {
	kills, seed := 5, uint64(11)
	if v := os.Getenv(killsEnv); v != "" {
		var err error
		kills, err = strconv.Atoi(v)
		require.NoError(t, err)
		seed = uint64(time.Now().UnixNano())
	}
	if v := os.Getenv(killSeedEnv); v != "" {
		var err error
		seed, err = strconv.ParseUint(v, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("%d kills, seed %d", kills, seed)
	dice := rand.New(rand.NewPCG(seed, seed))
	w := newWorld(t, 1)
	s := w.newChildSite()
	var kept []wanted.Image
	for range kills {
		cmd := w.child(s, 8<<20)
		_, pushed := w.pushImage(s, 20_000, 2) // answered: it must be there, and reach the other one
		_, fetched := w.pushImage(w.sites[0], 1<<20, 3)
		kept = append(kept, pushed, fetched)
		kept = kept[max(0, len(kept)-6):] // what falls out is dropped and collected
		w.want(kept...)
		killed, stop := context.WithCancel(t.Context())
		var collector sync.WaitGroup
		collector.Go(func() {
			for killed.Err() == nil {
				if root, err := registry.OpenRoot(t.Context(), s.Options.Root, nil); err == nil {
					_, _ = root.Collect(t.Context(), storage.CollectOptions{Grace: -1}) // the kill may fail it
					_ = root.Close()                                                    // so it may this
				}
				time.Sleep(pause)
			}
		})
		time.Sleep(time.Duration(dice.IntN(400)) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed, that is its error
		stop()
		collector.Wait()
	}
	w.child(s, 1<<30)
	l := w.want(kept...)
	for _, at := range w.sites {
		w.ready(at, l)
		for _, i := range kept {
			require.NoError(t, w.whole(at, i), "seed %d: %s", seed, i.Name())
		}
	}
	root, err := registry.OpenRoot(t.Context(), s.Options.Root, nil)
	require.NoError(t, err)
	found, err := root.Verify(t.Context())
	require.NoError(t, err)
	require.NoError(t, root.Close())
	assert.Empty(t, found.Corrupt)
	assert.Empty(t, found.Missing)
	assert.Empty(t, found.Damaged)
}
