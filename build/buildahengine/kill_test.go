package buildahengine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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
	"dayone.dev/dayone/build/buildtest"
)

// builderOrder names the environment variable with the file that tells the program what to build.
const builderOrder = "DAYONE_TEST_BUILDER"

type order struct {
	Root, State, Isolation, Runtime string
	Request                         build.Request
	// KillAt begins the line at which the builder kills itself: another process would hear of it too late now and then.
	KillAt string
	// TakeIn lets the builder take in the request's base and build nothing.
	TakeIn bool
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
		engine, err = buildahengine.New(buildahengine.Options{Root: o.Root, Isolation: o.Isolation, Runtime: o.Runtime})
	}
	if err == nil {
		b := build.NewBuilder(build.BuilderOptions{Engine: engine, StateDir: o.State, Progress: func(e build.Event) {
			line := fmt.Sprintln(e.Phase, e.Text)
			fmt.Print(line)
			if o.KillAt != "" && strings.HasPrefix(line, o.KillAt) {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			}
		}})
		var result *build.Result
		if o.TakeIn {
			err = b.TakeIn(context.Background(), baseJob(o.Request))
		} else if result, err = b.Build(context.Background(), o.Request); err == nil {
			fmt.Println("isolation", result.Isolation, result.IsolationReason)
		}
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
	killAtLine(b.t, b.orderedProcess(order{Isolation: isolation, Request: r, KillAt: mark}), b.root, mark)
}

// builderProcess is a builder on this bench's directories in a process of its own, not started.
func (b *bench) builderProcess(r build.Request, isolation string) *exec.Cmd {
	b.t.Helper()
	return b.orderedProcess(order{Isolation: isolation, Request: r})
}

func (b *bench) orderedProcess(o order) *exec.Cmd {
	b.t.Helper()
	o.Root, o.State = b.root, b.state
	raw, err := json.Marshal(o)
	require.NoError(b.t, err)
	file := filepath.Join(b.t.TempDir(), "order")
	require.NoError(b.t, os.WriteFile(file, raw, 0o600))
	self, err := os.Executable()
	require.NoError(b.t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), builderOrder+"="+file)
	return cmd
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
	if err := cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(t, err)
	}
	_ = cmd.Wait() // killed: its error says so
	require.True(t, seen, "the builder came to %q: %s", mark, strings.Join(all, "\n"))
	gone(t, root)
}

// gone waits until a killed builder's processes are.
func gone(t testing.TB, root string) {
	t.Helper()
	assert.Eventually(t, func() bool { return len(processes(t, root)) == 0 }, 60*time.Second, 10*time.Millisecond,
		"no process outlives the builder")
	// What runs inside a container dies with its namespace, a moment later; until then it holds the storage's lock, and a
	// build that comes meanwhile leaves the clearing up to the next one.
	lock, err := os.OpenFile(filepath.Join(root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	defer lock.Close()
	assert.Eventually(t, func() bool { return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil },
		60*time.Second, 10*time.Millisecond, "the storage is free")
}

func TestKilledInEveryStage(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	r := b.request(
		"FROM configs\nRUN echo one >/usr/lib/one\nRUN echo in the middle; sleep 0.3; echo two >/usr/lib/two\n" +
			"COPY --from=base /etc/stock.conf /usr/lib/three\n")
	for _, mark := range []string{"config", "push", "containerfile FROM", "containerfile RUN echo one",
		"containerfile in the middle", "containerfile COMMIT", "push Copying", "seal", "check"} {
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

// TestKilledWhileTheBaseIsPulled kills the builder when a layer of the base has begun to arrive and does not go on.
func TestKilledWhileTheBaseIsPulled(t *testing.T) {
	for _, c := range []struct {
		name, isolation string
		takeIn          bool
	}{
		{"by a build with chroot", buildahengine.IsolationChroot, false},
		{"by a build with a runtime", buildahengine.IsolationOCI, false},
		{"before the build", buildahengine.IsolationOCI, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, buildahengine.Options{})
			b.base = buildtest.Push(t, b.reg, buildtest.Base{Layers: 2, LayerSize: 4 << 20, Repository: "os/pulled"})
			b.build("") // the base's file tree is known then: the only one who pulls layers is the engine
			r := b.request("FROM configs\nRUN echo one >/usr/lib/one\n")
			want := *b.mustBuild(r)
			through := newStall(t, b.reg.Addr, 2<<20)
			stalled := through.request(b, r)
			stalled.Options.Rebuild = true
			b.root = t.TempDir() // storage without the base

			cmd := b.orderedProcess(order{Isolation: c.isolation, Request: stalled, TakeIn: c.takeIn})
			cmd.Stderr = os.Stderr
			require.NoError(t, cmd.Start())
			select {
			case <-through.held:
			case <-time.After(time.Minute):
				t.Fatal("the base was not pulled")
			}
			require.Eventually(t, func() bool { return b.stored() > 1<<20 }, 60*time.Second, 5*time.Millisecond,
				"a part of the layer is on disk")
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait() // killed: its error says so
			gone(t, b.root)

			b.open(buildahengine.Options{Isolation: c.isolation})
			again := r
			again.Options.Rebuild = true
			result, err := b.builder.Build(t.Context(), again)
			require.NoError(t, err)
			assert.Equal(t, want.Digest, result.Digest, "and the image is the one that an undisturbed build makes")
			b.clean()
			b.noGroups()
			assert.Less(t, b.stored(), int64(24<<20), "what had arrived is not kept beside the base")
		})
	}
}
