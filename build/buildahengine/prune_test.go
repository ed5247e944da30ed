package buildahengine_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/buildahengine"
)

// stored is what layers take, in bytes. Files that go away meanwhile do not count: a build may be at work.
func (b *bench) stored() int64 {
	b.t.Helper()
	var sum int64
	_ = filepath.Walk(filepath.Join(b.root, "storage-"+b.engine.Driver()),
		func(_ string, info os.FileInfo, err error) error {
			if err == nil && info.Mode().IsRegular() {
				sum += info.Size()
			}
			return nil
		})
	return sum
}

func text(n int) string {
	return fmt.Sprintf("FROM configs\nRUN dd if=/dev/zero of=/usr/lib/big bs=1M count=6 && echo %d >/usr/lib/n\n", n)
}

func TestStorageLimit(t *testing.T) {
	const limit = 16 << 20
	b := newBench(t, buildahengine.Options{StorageLimit: limit})
	for n := range 4 {
		b.build(text(n))
	}
	assert.Less(t, b.stored(), int64(limit+(8<<20)), "the limit and one build")
	assert.Equal(t, 1, b.build(text(3)+"RUN true\n").CacheHits, "the last build is in the cache")
	assert.Zero(t, b.build(text(0)+"RUN true\n").CacheHits, "the first one is not")
	b.clean()
}

func TestStorageOfCopiesIsBounded(t *testing.T) {
	b := newBench(t, buildahengine.Options{Driver: "vfs", StorageLimit: 1})
	b.build(text(0))
	one := b.stored()
	b.build(text(1))
	assert.Less(t, b.stored(), one+(1<<20), "the build before has gone")
}

func TestKilledPullIsPruned(t *testing.T) {
	b := newBench(t, buildahengine.Options{StorageLimit: 30 << 20})
	for n := range 2 {
		b.killAt(b.request(text(n)), "containerfile COMMIT")
	}
	b.open(buildahengine.Options{StorageLimit: 1}) // nothing is worth keeping
	b.build("FROM configs\nRUN echo small >/usr/lib/small\n")
	assert.Less(t, b.stored(), int64(12<<20), "what killed builds wrote is gone")
	b.clean()
}

func TestPruneSparesRunningBuild(t *testing.T) {
	started, proceed := make(chan struct{}), make(chan struct{})
	gate := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(started); <-proceed }))
	t.Cleanup(gate.Close)
	b := newBench(t, buildahengine.Options{Parallel: 2, StorageLimit: 1})
	var running sync.WaitGroup
	running.Go(func() {
		_, err := b.builder.Build(t.Context(),
			b.request("FROM configs\nRUN echo kept >/usr/lib/kept\nRUN wget -q -O - "+gate.URL+"; cat /usr/lib/kept\n"))
		assert.NoError(t, err)
	})
	<-started
	b.build("FROM configs\nRUN echo beside >/usr/lib/beside\n")
	close(proceed)
	running.Wait()
	b.clean()
}

func TestOldLogsAndCachesGo(t *testing.T) {
	b := newBench(t, buildahengine.Options{StorageLimit: 16 << 20})
	for n := range 110 {
		require.NoError(t, os.WriteFile(filepath.Join(b.root, "logs", fmt.Sprintf("20200101T000000.%03d-old.log", n)),
			[]byte("old\n"), 0o600))
	}
	fill := "FROM configs\nRUN --mount=type=cache,target=/var/cache/x ls /var/cache/x; dd if=/dev/zero " +
		"of=/var/cache/x/%s bs=1M count=%d\n"
	b.build(fmt.Sprintf(fill, "one", 1))
	second := b.build(fmt.Sprintf(fill, "two", 5))
	third := b.build(fmt.Sprintf(fill, "three", 1))
	logs, err := os.ReadDir(filepath.Join(b.root, "logs"))
	require.NoError(t, err)
	assert.LessOrEqual(t, len(logs), 101)
	kept, err := os.ReadFile(second.Log)
	require.NoError(t, err)
	assert.Contains(t, string(kept), "\none\n", "a cache lives from build to build")
	anew, err := os.ReadFile(third.Log)
	require.NoError(t, err)
	assert.NotContains(t, string(anew), "\ntwo\n", "until it has more than its share")
}
