package replica_test

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/wanted"
)

const (
	// shutdownIoctl stops an ext4 at once, noLogFlush without what its journal has not written: then the disk has what a
	// power cut leaves, without anything that no program has synced. Source: linux/fs/ext4/ext4.h, EXT4_IOC_SHUTDOWN.
	shutdownIoctl = 0x8004587d
	noLogFlush    = 2
)

// powerDisk is an ext4 in a file whose power a test cuts.
type powerDisk struct{ image, dir string }

func newPowerDisk(t *testing.T) powerDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root to mount a file system")
		}
		t.Skip("needs root to mount a file system")
	}
	d := powerDisk{filepath.Join(t.TempDir(), "disk"), t.TempDir()}
	require.NoError(t, os.WriteFile(d.image, nil, 0o600))
	require.NoError(t, os.Truncate(d.image, 640<<20))
	out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput()
	require.NoError(t, err, "%s", out)
	d.mount(t)
	t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) })
	return d
}

func (d powerDisk) mount(t testing.TB) {
	t.Helper()
	out, err := exec.Command("mount", "-o", "loop", d.image, d.dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// cut leaves programs with a file system that does nothing any more.
func (d powerDisk) cut(t testing.TB) {
	t.Helper()
	f, err := os.Open(d.dir)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(f.Fd()), shutdownIoctl, noLogFlush))
	require.NoError(t, f.Close())
}

// back mounts what the cut has left. It mounts a copy: a mount namespace of another program may hold the file system
// that was cut, and the kernel would give that one again.
func (d powerDisk) back(t testing.TB) {
	t.Helper()
	require.NoError(t, unix.Unmount(d.dir, unix.MNT_DETACH))
	out, err := exec.Command("cp", "--sparse=always", d.image, d.image+".copy").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Rename(d.image+".copy", d.image))
	d.mount(t)
}

// TestThePowerDiskLosesWhatIsNotSynced holds the stand-in for a power cut against what a power cut does.
func TestThePowerDiskLosesWhatIsNotSynced(t *testing.T) {
	d := newPowerDisk(t)
	write := func(name string, sync bool) {
		f, err := os.Create(filepath.Join(d.dir, name))
		require.NoError(t, err)
		_, err = f.WriteString(name)
		require.NoError(t, err)
		if sync {
			require.NoError(t, f.Sync())
		}
		require.NoError(t, f.Close())
	}
	write("synced", true)
	write("not", false)
	d.cut(t)
	d.back(t)
	raw, err := os.ReadFile(filepath.Join(d.dir, "synced"))
	require.NoError(t, err)
	assert.Equal(t, "synced", string(raw))
	assert.NoFileExists(t, filepath.Join(d.dir, "not"))
}

// promised is what a registry has said, by image: a push was answered, or a report says that it holds the image.
type promised struct {
	mu  sync.Mutex
	all map[digest.Digest]wanted.Image
}

func (p *promised) add(images ...wanted.Image) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range images {
		p.all[i.Digest] = i
	}
}

// newImage is an image that is not pushed yet.
func (w *world) newImage(dice *rand.Rand) (v1.Image, wanted.Image) {
	w.t.Helper()
	img, err := random.Image(1+dice.Int64N(200_000), 2)
	require.NoError(w.t, err)
	d, err := img.Digest()
	require.NoError(w.t, err)
	return img, wanted.Image{Repository: repo, Digest: digest.Digest(d.String()), By: []string{"test"}}
}

// TestPowerCuts: power goes at random moments among pushes, fetches, drops and collections, with everything that is not
// synced. The registry then has, without help, each wanted image of which it has said that it has it.
func TestPowerCuts(t *testing.T) {
	cuts, seed := 8, uint64(time.Now().UnixNano())
	if v := os.Getenv(killsEnv); v != "" {
		var err error
		cuts, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	if v := os.Getenv(killSeedEnv); v != "" {
		var err error
		seed, err = strconv.ParseUint(v, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("%d cuts, seed %d", cuts, seed)
	dice := rand.New(rand.NewPCG(seed, seed))
	d, w := newPowerDisk(t), newWorld(t, 1)
	s := w.newChildSite()
	s.Options.Root, s.dir = filepath.Join(d.dir, "root"), filepath.Join(d.dir, "state")
	require.NoError(t, os.Mkdir(s.dir, 0o700))
	var kept []wanted.Image
	pushes, fetches := 0, 0
	for cut := range cuts {
		list := kept[max(0, len(kept)-8):] // what falls out is dropped and collected
		var pushed []v1.Image
		var fetched []wanted.Image
		for range 6 {
			img, image := w.newImage(dice)
			pushed, list = append(pushed, img), append(list, image)
		}
		for range 2 {
			_, image := w.pushImage(w.sites[0], 1+dice.Int64N(1<<20), 2)
			fetched, list = append(fetched, image), append(list, image)
		}
		said := w.untilCut(d, s, list, pushed, time.Duration(200+dice.IntN(1500))*time.Millisecond)
		kept = kept[:0]
		for _, i := range list {
			if _, there := said.all[i.Digest]; there {
				kept = append(kept, i)
			}
		}
		for _, i := range fetched {
			if _, there := said.all[i.Digest]; there {
				fetches++
			}
		}
		pushes += len(kept)
		alone := w.childOf(s, 1, peers.List{})
		w.give(s, wanted.New(time.Now(), list))
		for _, i := range kept {
			require.NoError(t, w.whole(s, i), "cut %d of seed %d: %s was there", cut, seed, i.Name())
		}
		require.NoError(t, alone.Process.Kill())
		_ = alone.Wait() // it was killed, that is its error
	}
	t.Logf("%d promises were kept, %d of fetched images", pushes, fetches)
	assert.Positive(t, pushes, "nothing was promised: the cuts come too early")
	w.child(s, 1<<30)
	l := w.want(kept...)
	w.ready(s, l)
}

// untilCut runs a registry on a disk until its power goes, and gives what it has said.
func (w *world) untilCut(d powerDisk, s *site, list []wanted.Image, pushed []v1.Image, after time.Duration) *promised {
	w.t.Helper()
	said := &promised{all: map[digest.Digest]wanted.Image{}}
	cmd := w.child(s, 64<<20)
	for _, i := range list { // what was promised before is there, or the test has ended
		if w.whole(s, i) == nil {
			said.add(i)
		}
	}
	l := w.want(list...)
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for _, img := range pushed {
			if image, err := w.tryPush(ctx, s, img); err == nil {
				said.add(image)
			}
		}
	})
	all.Go(func() {
		for ctx.Err() == nil {
			r, _, err := wanted.ReadReport(filepath.Join(s.dir, wanted.ReportFile), time.Now())
			for _, i := range list {
				if err == nil && r.Holds(l, i.Repository, i.Digest) {
					said.add(i)
				}
			}
			time.Sleep(pause)
		}
	})
	all.Go(func() {
		for ctx.Err() == nil {
			if root, err := registry.OpenRoot(ctx, s.Options.Root, nil); err == nil {
				_, _ = root.Collect(ctx, storage.CollectOptions{Grace: -1}) // the cut fails it
				_ = root.Close()                                            // so it does this
			}
			time.Sleep(30 * pause)
		}
	})
	time.Sleep(after)
	d.cut(w.t)
	require.NoError(w.t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed, that is its error
	cancel()
	all.Wait()
	d.back(w.t)
	return said
}

// tryPush gives what was pushed, or why it was not answered.
func (w *world) tryPush(ctx context.Context, s *site, img v1.Image) (wanted.Image, error) {
	d, err := img.Digest()
	if err != nil {
		return wanted.Image{}, err
	}
	to, err := name.NewDigest(s.Addr + "/" + repo + "@" + d.String())
	if err != nil {
		return wanted.Image{}, err
	}
	options := append(w.remote(s, w.pusher), remote.WithContext(ctx), remote.WithRetryPredicate(func(error) bool {
		return false
	}))
	return wanted.Image{Repository: repo, Digest: digest.Digest(d.String()), By: []string{"test"}},
		remote.Write(to, img, options...)
}
