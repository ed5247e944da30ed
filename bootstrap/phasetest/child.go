package phasetest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/registry/registrytest"
)

// ChildEnv makes a test binary the program of a bootstrap host; its value is the order as JSON.
const ChildEnv = "DAYONE_TEST_BOOTSTRAP"

// Child runs the flow when this process is a child, and says so: TestMain then has nothing else to do. It is also what
// container builds start again.
func Child[O any](run func(O) error) bool {
	if buildahengine.Init() {
		return true
	}
	raw := os.Getenv(ChildEnv)
	if raw == "" {
		return false
	}
	var order O
	err := json.Unmarshal([]byte(raw), &order)
	if err == nil {
		err = run(order)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// Kill says where the child dies by its own SIGKILL: at an event of a phase. At "instruction" is the first instruction
// of a build.
type Kill struct{ Phase, At string }

// instruction is Kill.At during a build.
const instruction = "instruction"

// Reached tells the parent of an event and dies where it is to.
func (k Kill) Reached(phase, at string) {
	fmt.Printf("event %s %s\n", phase, at)
	if phase == k.Phase && at == k.At {
		die()
	}
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// Observer reaches every event; then is called after each.
func (k Kill) Observer(then func(journal.Event)) journal.Observer {
	return func(e journal.Event) {
		k.Reached(e.Record.Name, string(e.Kind))
		then(e)
	}
}

// Build dies at the first instruction where it is to.
func (k Kill) Build(_ string, e build.Event) {
	if k.At == instruction && e.Step > 0 {
		die()
	}
}

// Engine runs Containerfiles with its storage in dir.
func Engine(dir string) (build.ContainerEngine, error) {
	return buildahengine.New(buildahengine.Options{Root: dir})
}

// childLimit bounds a child; it is for a busy machine.
const childLimit = 10 * time.Minute

// Ended is what a child has left: its events as "phase kind", its log and its end.
type Ended struct {
	Events []string
	Log    string
	Err    error
}

// Start runs this test binary as a child; wait gives its end.
func Start(t testing.TB, order any) (wait func() Ended) {
	t.Helper()
	return Begin(t, order).Wait
}

// Process is a child at work.
type Process struct {
	// Wait gives its end. Kill ends it at once, and all that it has started, and waits for that; Terminate asks it to
	// stop, as a service manager does.
	Wait            func() Ended
	Kill, Terminate func()
	// Done is closed when it has ended.
	Done <-chan struct{}
}

// Begin is Start for a child that a test ends.
func Begin(t testing.TB, order any) Process {
	t.Helper()
	raw, err := json.Marshal(order)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), childLimit)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), ChildEnv+"="+string(raw))
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	done := make(chan struct{})
	go func() { ended <- cmd.Wait(); close(done) }()
	wait := sync.OnceValue(func() Ended {
		defer cancel()
		e := Ended{Err: <-ended, Log: errs.String()}
		for _, line := range strings.Split(out.String(), "\n") {
			if event, ok := strings.CutPrefix(line, "event "); ok {
				e.Events = append(e.Events, event)
			}
		}
		return e
	})
	kill := func() { cancel(); wait() }
	t.Cleanup(func() { // a child that still writes when the test ends would write into directories that are being removed
		kill()
		if t.Failed() {
			t.Logf("%s", wait().tail())
		}
	})
	terminate := func() { require.NoError(t, cmd.Process.Signal(syscall.SIGTERM)) }
	return Process{Wait: wait, Kill: kill, Terminate: terminate, Done: done}
}

// tail is what a child said last, and how it ended.
func (e Ended) tail() string {
	lines := strings.Split(strings.TrimSpace(e.Log), "\n")
	return fmt.Sprintf("child: %v\n%s", e.Err, strings.Join(lines[max(0, len(lines)-40):], "\n"))
}

// Only are the events of one kind.
func (e Ended) Only(kind string) []string {
	var out []string
	for _, event := range e.Events {
		if strings.HasSuffix(event, " "+kind) {
			out = append(out, event)
		}
	}
	return out
}

// NeedsBuilds skips a test where no container builds can run; in CI it fails there.
func NeedsBuilds(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root: it runs container builds")
	}
	if testing.Short() {
		t.Skip("runs container builds: left out with -short")
	}
}

// FreePort is a TCP port that no other test gets before the test ends.
func FreePort(t testing.TB) int {
	t.Helper()
	return registrytest.Port(t)
}
