package journal

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ledger counts what ran and holds the world that results are checked against.
type ledger struct {
	ran    []string
	input  string
	gone   bool
	fail   error
	result string
}

func (l *ledger) phases() []Phase {
	return []Phase{
		NewService("service", "start", func(context.Context) error { l.ran = append(l.ran, "service"); return nil }),
		NewPhase("work", "do the work", &l.result,
			func() (any, error) { return l.input, nil },
			func(context.Context) (string, error) {
				l.ran = append(l.ran, "work")
				return "made from " + l.input, l.fail
			},
			func(context.Context, string) error {
				if l.gone {
					return errors.New("the result is gone")
				}
				return nil
			}),
	}
}

func runOnce(t *testing.T, dir string, l *ledger) (*Journal, []EventKind, error) {
	t.Helper()
	l.ran, l.result = nil, ""
	j, err := Open(dir)
	require.NoError(t, err)
	var kinds []EventKind
	r := testRunner(j, &kinds)
	err = r.Run(context.Background(), l.phases())
	return j, kinds, err
}

func testRunner(j *Journal, kinds *[]EventKind) *Runner {
	return &Runner{journal: j, now: time.Now, log: logrus.NewEntry(logrus.New()),
		observe: func(e Event) { *kinds = append(*kinds, e.Kind) }}
}

func TestFinishedPhasesAreNotRepeated(t *testing.T) {
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

func TestPhasesRunAgainWhenTheirResultNoLongerCounts(t *testing.T) {
	cases := map[string]func(*ledger, string){
		"other inputs":              func(l *ledger, _ string) { l.input = "b" },
		"the result is gone":        func(l *ledger, _ string) { l.gone = true },
		"the process was cut off":   func(_ *ledger, dir string) { markRunning(dir) },
		"a record of another shape": func(_ *ledger, dir string) { spoilOutput(dir) },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			dir, l := t.TempDir(), &ledger{input: "a"}
			_, _, err := runOnce(t, dir, l)
			require.NoError(t, err)
			change(l, dir)
			_, _, err = runOnce(t, dir, l)
			require.NoError(t, err)
			assert.Equal(t, []string{"service", "work"}, l.ran)
			assert.Equal(t, "made from "+l.input, l.result)
		})
	}
}

func TestFailureIsRecordedAndTriedAgain(t *testing.T) {
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

func TestWhatAKilledProcessWasAtIsNotTakenForRunning(t *testing.T) {
	dir, l := t.TempDir(), &ledger{input: "a"}
	_, _, err := runOnce(t, dir, l)
	require.NoError(t, err)
	markRunning(dir)
	// The next process does not come so far.
	l.ran = nil
	broken := l.phases()
	broken[0] = NewService("service", "start", func(context.Context) error { return errors.New("port taken") })
	j, err := Open(dir)
	require.NoError(t, err)
	require.Error(t, testRunner(j, &[]EventKind{}).Run(t.Context(), broken))
	j, err = Open(dir)
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

func TestJournalThatCannotBeReadIsNotOverwritten(t *testing.T) {
	for name, text := range map[string]string{"half a file": `{"version": 1, "phases": [`,
		"another layout": `{"version": 99}`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, File)
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			_, err := Open(dir)
			require.ErrorContains(t, err, "move")
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, text, string(raw))
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

func TestInputsThatCannotBeMadeFailTheirPhase(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir)
	require.NoError(t, err)
	var kinds []EventKind
	r := testRunner(j, &kinds)
	var result string
	err = r.Run(t.Context(), []Phase{NewPhase("build", "build", &result,
		func() (any, error) { return nil, errors.New("no rendering") },
		func(context.Context) (string, error) { return "", nil }, nil)})
	require.ErrorContains(t, err, "phase build: no rendering")
	assert.Equal(t, []EventKind{EventFailed}, kinds)
	j, err = Open(dir)
	require.NoError(t, err)
	assert.Equal(t, StatusFailed, j.Find("build").Status)
	assert.Equal(t, "no rendering", j.Find("build").Error)
}
