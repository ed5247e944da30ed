package buildahengine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
)

// builderOrder names the environment variable with the file that tells the program what to build.
const builderOrder = "DAYONE_TEST_BUILDER"

type order struct {
	Root, State, Isolation string
	Request                build.Request
}

// runBuilder is a builder in a process of its own, for tests that kill it. It prints its events.
func runBuilder(file string) int {
	raw, err := os.ReadFile(file)
	var o order
	if err == nil {
		err = json.Unmarshal(raw, &o)
	}
	var engine *buildahengine.Engine
	if err == nil {
		engine, err = buildahengine.New(buildahengine.Options{Root: o.Root, Isolation: o.Isolation})
	}
	if err == nil {
		b := build.NewBuilder(build.BuilderOptions{Engine: engine, StateDir: o.State, Progress: func(e build.Event) { fmt.Println(e.Phase, e.Text) }})
		_, err = b.Build(context.Background(), o.Request)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("finished")
	return 0
}

// killAt runs a builder and kills it when it prints a line that begins so.
func (b *bench) killAt(r build.Request, mark string) {
	b.t.Helper()
	b.killIsolated(r, mark, buildahengine.IsolationChroot)
}

func (b *bench) killIsolated(r build.Request, mark, isolation string) {
	b.t.Helper()
	raw, err := json.Marshal(order{Root: b.root, State: b.state, Isolation: isolation, Request: r})
	require.NoError(b.t, err)
	file := filepath.Join(b.t.TempDir(), "order")
	require.NoError(b.t, os.WriteFile(file, raw, 0o600))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), builderOrder+"="+file)
	killAtLine(b.t, cmd, b.root, mark)
}

// killAtLine starts a builder with that engine directory and kills it when it prints a line that begins so.
func killAtLine(t testing.TB, cmd *exec.Cmd, root, mark string) {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines, seen := bufio.NewScanner(out), false
	var all []string
	for !seen && lines.Scan() {
		all = append(all, lines.Text())
		seen = strings.HasPrefix(lines.Text(), mark)
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed: its error says so
	require.True(t, seen, "the builder came to %q: %s", mark, strings.Join(all, "\n"))
	assert.Eventually(t, func() bool { return len(processes(t, root)) == 0 }, 10*time.Second, 10*time.Millisecond, "no process outlives the builder")
	// What runs inside a container dies with its namespace, a moment later; until then it holds the storage's lock, and a build that
	// comes meanwhile leaves the clearing up to the next one.
	lock, err := os.OpenFile(filepath.Join(root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	defer lock.Close()
	assert.Eventually(t, func() bool { return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil }, 10*time.Second, 10*time.Millisecond, "the storage is free")
}

func TestKilledInEveryStageTheNextBuildSucceeds(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	r := b.request("FROM configs\nRUN echo one >/usr/lib/one\nRUN echo in the middle; sleep 0.3; echo two >/usr/lib/two\nCOPY --from=base /etc/stock.conf /usr/lib/three\n")
	for _, mark := range []string{"config", "push", "containerfile FROM", "containerfile RUN echo one", "containerfile in the middle", "containerfile COMMIT", "push Copying", "seal", "check"} {
		b.killAt(r, mark)
	}
	again := r
	again.Options.Rebuild = true // the last one was killed when the image had its tag
	result, err := b.builder.Build(t.Context(), again)
	require.NoError(t, err)
	b.clean()
	b.noGroups()

	other := newBench(t, buildahengine.Options{})
	same := other.build(r.Containerfile)
	assert.Equal(t, same.Digest, result.Digest, "and the image is the one that an undisturbed build makes")
}
