package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

// ledger counts what ran and holds the world that results are checked against.
type ledger struct {
	ran    []string
	input  string
	gone   bool
	fail   error
	broken error
	result string
}

var ledgerPhases = []Phase{{"service", "start"}, {"work", "do the work"}}

func (l *ledger) run(ctx context.Context, r *Run) error {
	if err := Check(ctx, r, "service", func(context.Context) error {
		l.ran = append(l.ran, "service")
		return l.broken
	}); err != nil {
		return err
	}
	var err error
	l.result, err = Do(ctx, r, Step[string]{Name: "work",
		Inputs: func() (any, error) { return l.input, nil },
		Work: func(context.Context) (string, error) {
			l.ran = append(l.ran, "work")
			return "made from " + l.input, l.fail
		},
		Holds: func(context.Context, string) error {
			if l.gone {
				return errors.New("the result is gone")
			}
			return nil
		}})
	return err
}

func runOnce(t *testing.T, dir string, l *ledger) (*Journal, []EventKind, error) {
	t.Helper()
	l.ran, l.result = nil, ""
	j, err := Open(dir)
	require.NoError(t, err)
	var kinds []EventKind
	err = l.run(t.Context(), testRun(j, &kinds, ledgerPhases))
	return j, kinds, err
}

func testRun(j *Journal, kinds *[]EventKind, phases []Phase) *Run {
	return Begin(j, phases, func(e Event) { *kinds = append(*kinds, e.Kind) }, time.Now, report.NoLog())
}

func TestDoReusesResults(t *testing.T) {
	dir, l := t.TempDir(), &ledger{input: "a"}
	_, kinds, err := runOnce(t, dir, l)
	require.NoError(t, err)
	assert.Equal(t, []EventKind{EventStarted, EventRan, EventRecorded, EventStarted, EventRan, EventRecorded}, kinds)

	j, kinds, err := runOnce(t, dir, l)
	require.NoError(t, err)
	assert.Equal(t, []string{"service"}, l.ran, "services start in every process, work is taken from the journal")
	assert.Equal(t, "made from a", l.result)
	assert.Equal(t, EventReused, kinds[len(kinds)-1])
	assert.True(t, j.Find("work").Reused)
}

func TestDoRepeats(t *testing.T) {
	cases := []struct {
		name   string
		change func(l *ledger, dir string)
	}{
		{"other inputs", func(l *ledger, _ string) { l.input = "b" }},
		{"the result is gone", func(l *ledger, _ string) { l.gone = true }},
		{"the process was cut off", func(_ *ledger, dir string) { markRunning(dir) }},
		{"a record of another shape", func(_ *ledger, dir string) { spoilOutput(dir) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir, l := t.TempDir(), &ledger{input: "a"}
			_, _, err := runOnce(t, dir, l)
			require.NoError(t, err)
			c.change(l, dir)
			_, _, err = runOnce(t, dir, l)
			require.NoError(t, err)
			assert.Equal(t, []string{"service", "work"}, l.ran)
			assert.Equal(t, "made from "+l.input, l.result)
		})
	}
}

func TestDoRetriesFailure(t *testing.T) {
	dir, l := t.TempDir(), &ledger{input: "a", fail: errors.New("no space left on device")}
	_, _, err := runOnce(t, dir, l)
	require.ErrorContains(t, err, "phase work: no space left on device")
	j, err := Open(dir)
	require.NoError(t, err)
	assert.Equal(t, StatusFailed, j.Find("work").Status)
	assert.Equal(t, "no space left on device", j.Find("work").Error)

	l.fail = nil
	j, _, err = runOnce(t, dir, l)
	require.NoError(t, err)
	assert.Equal(t, 2, j.Find("work").Attempts)
	assert.Empty(t, j.Find("work").Error)
}

func TestBeginMarksInterrupted(t *testing.T) {
	dir, l := t.TempDir(), &ledger{input: "a"}
	_, _, err := runOnce(t, dir, l)
	require.NoError(t, err)
	markRunning(dir)
	l.ran, l.broken = nil, errors.New("port taken") // the next process does not come so far
	_, _, err = runOnce(t, dir, l)
	require.ErrorContains(t, err, "phase service: port taken")
	l.broken = nil
	j, err := Open(dir)
	require.NoError(t, err)
	cut := j.Find("work")
	assert.Equal(t, StatusInterrupted, cut.Status)
	assert.Equal(t, 1, cut.Interruptions)
	assert.False(t, cut.Interrupted.IsZero())
	assert.Zero(t, cut.Duration(time.Now()), "nobody knows when it ended")

	j, _, err = runOnce(t, dir, l)
	require.NoError(t, err)
	assert.Equal(t, []string{"service", "work"}, l.ran)
	assert.Equal(t, StatusDone, j.Find("work").Status)
	assert.Equal(t, 1, j.Find("work").Interruptions, "what happened stays known, and is counted once")
}

func TestOpenKeepsUnreadableFile(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"half a file", `{"version": 1, "phases": [`}, {"another layout", `{"version": 99}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, File)
			require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
			_, err := Open(dir)
			require.ErrorContains(t, err, "move")
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, c.text, string(raw))
		})
	}
}

func edit(dir string, change func(*Record)) {
	file := filepath.Join(dir, File)
	raw, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	var j Journal
	if err := json.Unmarshal(raw, &j); err != nil {
		panic(err)
	}
	change(j.Find("work"))
	if raw, err = json.Marshal(j); err != nil {
		panic(err)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		panic(err)
	}
}

func markRunning(dir string) { edit(dir, func(r *Record) { r.Status = StatusRunning }) }
func spoilOutput(dir string) {
	edit(dir, func(r *Record) { r.Output = json.RawMessage(`{"not":"a string"}`) })
}

func TestDoFailsWithoutInputs(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir)
	require.NoError(t, err)
	var kinds []EventKind
	r := testRun(j, &kinds, []Phase{{"build", "build"}})
	_, err = Do(t.Context(), r, Step[string]{Name: "build",
		Inputs: func() (any, error) { return nil, errors.New("no rendering") }})
	require.ErrorContains(t, err, "phase build: no rendering")
	assert.Equal(t, []EventKind{EventFailed}, kinds)
	j, err = Open(dir)
	require.NoError(t, err)
	assert.Equal(t, StatusFailed, j.Find("build").Status)
	assert.Equal(t, "no rendering", j.Find("build").Error)
	assert.False(t, j.Find("build").Started.IsZero(), "a phase that failed has begun")
}

// What JSON cannot write identifies no inputs and is no result: the phase fails.
func TestDoFailsWithoutJSON(t *testing.T) {
	for _, c := range []struct {
		name          string
		input, output any
		says          string
	}{
		{"inputs", make(chan int), "a", "phase build: hash inputs: "},
		{"a result", "a", make(chan int), "phase build: encode result: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, err := Open(t.TempDir())
			require.NoError(t, err)
			r := testRun(j, &[]EventKind{}, []Phase{{"build", "build"}})
			_, err = Do(t.Context(), r, Step[any]{Name: "build", Inputs: func() (any, error) { return c.input, nil },
				Work: func(context.Context) (any, error) { return c.output, nil }})
			require.ErrorContains(t, err, c.says)
			assert.NotEqual(t, StatusDone, j.Find("build").Status)
		})
	}
}

func TestEventsCountPhases(t *testing.T) {
	j, err := Open(t.TempDir())
	require.NoError(t, err)
	var said []string
	r := Begin(j, ledgerPhases, func(e Event) {
		said = append(said, fmt.Sprintf("%s %d/%d", e.Record.Name, e.Index, e.Total))
	}, time.Now, report.NoLog())
	require.NoError(t, (&ledger{input: "a"}).run(t.Context(), r))
	assert.Equal(t, []string{"service 0/2", "work 1/2"}, slices.Compact(said))
}

// A failure keeps the time at which its work began.
func TestFailureKeepsItsStart(t *testing.T) {
	dir, l := t.TempDir(), &ledger{input: "a", broken: errors.New("port taken")}
	j, err := Open(dir)
	require.NoError(t, err)
	clock := time.Date(2026, 11, 26, 4, 0, 0, 0, time.UTC)
	r := Begin(j, ledgerPhases, func(Event) {}, func() time.Time { clock = clock.Add(time.Second); return clock },
		report.NoLog())
	require.ErrorContains(t, l.run(t.Context(), r), "port taken")
	assert.Equal(t, time.Second, j.Find("service").Duration(time.Time{}))
}

// No phase begins whose start the journal cannot keep, and none counts as done whose result it cannot keep.
func TestDoNeedsItsJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.Mkdir(dir, 0o700))
	j, err := Open(dir)
	require.NoError(t, err)
	var kinds []EventKind
	r := testRun(j, &kinds, ledgerPhases)
	err = Check(t.Context(), r, "service", func(context.Context) error { return os.RemoveAll(dir) })
	require.ErrorContains(t, err, "write journal")
	assert.Equal(t, []EventKind{EventStarted, EventRan}, kinds)
	require.ErrorContains(t, r.Serving(Endpoints{}), "write journal")
	kinds = nil
	err = Check(t.Context(), r, "work", func(context.Context) error {
		t.Error("the phase runs")
		return nil
	})
	require.ErrorContains(t, err, "write journal")
	assert.Empty(t, kinds)

	require.NoError(t, os.Mkdir(dir, 0o700))
	step := Step[string]{Name: "work", Inputs: func() (any, error) { return "a", nil },
		Work:  func(context.Context) (string, error) { return "made", nil },
		Holds: func(context.Context, string) error { return os.RemoveAll(dir) }}
	_, err = Do(t.Context(), r, step)
	require.NoError(t, err)
	_, err = Do(t.Context(), r, step)
	require.ErrorContains(t, err, "write journal", "that it is reused stays unknown")
}

func TestOpenUnreadable(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, File), 0o700))
	_, err := Open(dir)
	require.ErrorContains(t, err, "read the state directory's journal")
}

func TestRecorded(t *testing.T) {
	j := &Journal{Records: []Record{
		{Name: "done", Status: StatusDone, Output: json.RawMessage(`"image"`)},
		{Name: "failed", Status: StatusFailed, Output: json.RawMessage(`"image"`)},
		{Name: "no result", Status: StatusDone},
	}}
	for _, name := range []string{"failed", "no result", "unknown"} {
		var out string
		kept, err := j.Recorded(name, &out)
		require.NoError(t, err)
		assert.False(t, kept, name)
		assert.Empty(t, out, name)
	}
	var out string
	kept, err := j.Recorded("done", &out)
	require.NoError(t, err)
	assert.True(t, kept)
	assert.Equal(t, "image", out)
	var number int
	_, err = j.Recorded("done", &number)
	require.ErrorContains(t, err, "read recorded result of phase done")
}

// A phase that was not announced has no place in the journal, and none begins after its context has ended.
func TestDoRefusesWhatMayNotBegin(t *testing.T) {
	j, err := Open(t.TempDir())
	require.NoError(t, err)
	r := testRun(j, &[]EventKind{}, ledgerPhases)
	nothing := func(context.Context) error { return nil }
	require.ErrorContains(t, Check(t.Context(), r, "other", nothing), "not announced")
	_, err = Do(t.Context(), r, Step[string]{Name: "other"})
	require.ErrorContains(t, err, "not announced")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Check(ended, r, "service", nothing), context.Canceled)
	assert.Equal(t, StatusPending, j.Find("service").Status)
}

// What runs at the same time counts on its own: the failure of one keeps the result of the other.
func TestTogetherKeepsOtherResults(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir)
	require.NoError(t, err)
	r := testRun(j, &[]EventKind{}, []Phase{{"a", "a"}, {"b", "b"}})
	met := make(chan struct{})
	do := func(name string, meet func(), fail error) func() error {
		return func() error {
			_, err := Do(t.Context(), r, Step[string]{Name: name, Inputs: func() (any, error) { return name, nil },
				Work: func(context.Context) (string, error) { meet(); return name, fail }})
			return err
		}
	}
	err = Together([]func() error{do("a", func() { close(met) }, errors.New("no space")), do("b", func() { <-met }, nil)})
	require.ErrorContains(t, err, "phase a: no space")
	j, err = Open(dir)
	require.NoError(t, err)
	assert.Equal(t, StatusFailed, j.Find("a").Status)
	var out string
	found, err := j.Recorded("b", &out)
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, "b", out)
}

// A journal of an earlier version, or of a run without a name, is taken over; that of another cluster is not.
func TestBelongTo(t *testing.T) {
	dir := t.TempDir()
	_, _, err := runOnce(t, dir, &ledger{input: "a"})
	require.NoError(t, err)
	j, err := Open(dir)
	require.NoError(t, err)
	require.NoError(t, j.BelongTo(""))
	require.NoError(t, j.BelongTo("one.example.com"))
	require.NoError(t, j.Save())
	j, err = Open(dir)
	require.NoError(t, err)
	require.NoError(t, j.BelongTo("one.example.com"))
	require.NoError(t, j.BelongTo(""), "an install directory may have no name")
	err = j.BelongTo("two.example.com")
	require.ErrorContains(t, err, "belongs to one.example.com, and the install directory is of two.example.com")
	require.ErrorContains(t, err, "--state-dir")
	assert.Equal(t, "one.example.com", j.Owner)
}
