package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

func TestOutcome(t *testing.T) {
	finding := report.Finding{Severity: report.Error, File: "layering/master.yaml", Rule: "some-rule", Message: "wrong"}
	ended := time.Date(2026, 11, 26, 4, 0, 0, 0, time.UTC)
	cases := []struct {
		name string
		err  error
		want Outcome
	}{
		{"stopped", nil, Outcome{Ended: ended}},
		{"failed", errors.New("no space left on device"), Outcome{Ended: ended, Error: "no space left on device"}},
		{"refused", fmt.Errorf("check inputs: %w", finding),
			Outcome{Ended: ended, Error: "check inputs: " + finding.Error(), Findings: []report.Finding{finding}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, OutcomeFile), []byte(`{"error":"an earlier run's"}`), 0o600))
			during := &Outcome{}
			err := WithOutcome(dir, func() time.Time { return ended }, report.NoLog(), func() error {
				var err error
				during, err = ReadOutcome(dir)
				require.NoError(t, err)
				return c.err
			})
			assert.Equal(t, c.err, err)
			assert.Nil(t, during, "while a run works there is no outcome")
			have, err := ReadOutcome(dir)
			require.NoError(t, err)
			assert.Equal(t, &c.want, have)
		})
	}
}

// The run's own error counts, also where its outcome cannot be written.
func TestOutcomeThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	inTheWay := filepath.Join(dir, OutcomeFile)
	failed := errors.New("phase base: no route to host")
	err := WithOutcome(dir, time.Now, report.NoLog(), func() error {
		require.NoError(t, os.MkdirAll(filepath.Join(inTheWay, "a directory"), 0o700))
		return failed
	})
	assert.Equal(t, failed, err)
	_, err = ReadOutcome(dir)
	require.ErrorContains(t, err, "read the last run's outcome")

	err = WithOutcome(dir, time.Now, report.NoLog(), func() error {
		t.Error("a run begins though the outcome before it stays")
		return nil
	})
	require.ErrorContains(t, err, "remove the earlier run's outcome")
}

func TestReadDamagedOutcome(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, OutcomeFile), []byte(`{"ended":`), 0o600))
	_, err := ReadOutcome(dir)
	require.ErrorContains(t, err, "read the last run's outcome: unexpected end of JSON input")
}

// A run that has just begun does not serve what an earlier one did.
func TestOutcomeForgetsServices(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir)
	require.NoError(t, err)
	j.Endpoints = &Endpoints{Registry: "192.0.2.1:5000"}
	require.NoError(t, j.Save())
	err = WithOutcome(dir, time.Now, report.NoLog(), func() error {
		during, err := Open(dir)
		require.NoError(t, err)
		assert.Nil(t, during.Endpoints)
		return nil
	})
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(filepath.Join(dir, File), []byte("damaged"), 0o600))
	called := false
	err = WithOutcome(dir, time.Now, report.NoLog(), func() error { called = true; return nil })
	require.NoError(t, err)
	assert.True(t, called, "who needs the journal says what is wrong with it")
}
