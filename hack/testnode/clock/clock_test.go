package clock_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/testnode/clock"
)

// childEnv makes this program one that says what time it is, once for each line that it gets.
const childEnv = "DAYONE_CLOCK_CHILD"

// slack is for a machine that does many other things; the shifts are far longer.
const slack = 10 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	os.Exit(m.Run())
}

// reading is what the child's clocks say.
type reading struct {
	Wall      time.Time
	Elapsed   time.Duration // monotonic, since the child's beginning
	Timer     time.Duration // how long a timer of a millisecond took
	Backwards bool          // elapsed time has gone backwards for some goroutine
}

func child() {
	began := time.Now()
	backwards := make(chan struct{}, 1)
	for range 2 * runtime.NumCPU() { // threads that are in the middle of clock_gettime most of the time
		go func() {
			for last := time.Duration(0); ; {
				now := time.Since(began)
				if now < last {
					backwards <- struct{}{}
					return
				}
				last = now
			}
		}()
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		before := time.Now()
		time.Sleep(time.Millisecond)
		r := reading{Wall: time.Now().Round(0), Elapsed: time.Since(began), Timer: time.Since(before),
			Backwards: len(backwards) > 0}
		if json.NewEncoder(os.Stdout).Encode(r) != nil {
			return
		}
	}
}

func TestAProcessHasAClockOfItsOwn(t *testing.T) {
	cmd := exec.Command("/proc/self/exe") // ends when nobody asks any more
	cmd.Env = append(os.Environ(), childEnv+"=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		assert.NoError(t, in.Close())
		assert.NoError(t, cmd.Wait())
	})
	read := json.NewDecoder(out)
	ask := func() (r reading) {
		_, err := io.WriteString(in, "\n")
		require.NoError(t, err)
		require.NoError(t, read.Decode(&r))
		return r
	}
	last := ask()
	for _, by := range []time.Duration{0, 3 * time.Hour, -3 * time.Hour, 30 * 365 * 24 * time.Hour, 0} {
		t.Run(fmt.Sprint(by), func(t *testing.T) {
			before := time.Now()
			require.NoError(t, clock.Shift(cmd.Process.Pid, by))
			r := ask()
			assert.WithinDuration(t, time.Now().Add(by), r.Wall, slack)
			assert.Less(t, r.Timer, slack, "timers do not follow")
			assert.Greater(t, r.Elapsed, last.Elapsed)
			assert.Less(t, r.Elapsed-last.Elapsed, slack, "monotonic time does not follow")
			assert.False(t, r.Backwards)
			assert.Less(t, time.Since(before).Abs(), slack, "nobody else's clock follows")
			assert.Less(t, time.Since(before.Round(0)).Abs(), slack, "nobody else's clock follows")
			last = r
		})
	}
}

func TestShiftNamesTheProcessThatIsNotThere(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "true")
	require.NoError(t, cmd.Run())
	require.ErrorContains(t, clock.Shift(cmd.Process.Pid, time.Hour), fmt.Sprintf("process %d", cmd.Process.Pid))
}
