package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLinesOfGoTestAreRead(t *testing.T) {
	got := parseLine("BenchmarkServe/identity-2   	   20000	    101234 ns/op	     12.5 p99-ms	  9878 requests/s")
	assert.Equal(t, map[string]float64{"BenchmarkServe/identity ns/op": 101234, "BenchmarkServe/identity p99-ms": 12.5,
		"BenchmarkServe/identity requests/s": 9878}, got)
	assert.Nil(t, parseLine("goos: linux"))
}

func TestMedian(t *testing.T) {
	assert.InDelta(t, 2, median([]float64{9, 1, 2}), 0)
	assert.InDelta(t, 1.5, median([]float64{2, 1}), 0)
}

func TestGoalsAreJudged(t *testing.T) {
	measured := results{"a x": 8, "b x": 2}
	cases := []struct {
		name  string
		goal  string
		holds bool
	}{
		{"a value within its bound", "value <= 8", true},
		{"a value below its bound", "value >= 9", false},
		{"a ratio that is reached", "ratio >= 4", true},
		{"a ratio that is too high", "ratio <= 3.9", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := judge([]want{{name: "n", from: "a x", peer: "b", peerFrom: "b x", goal: c.goal}}, measured)
			require.NoError(t, err)
			require.Len(t, got, 1)
			assert.Equal(t, c.holds, *got[0].Holds)
			assert.InDelta(t, 4, *got[0].Ratio, 1e-9)
		})
	}
	less, err := judge([]want{{name: "n", from: "a x", minus: "b x", goal: "value <= 6"},
		{name: "unknown", from: "a x", minus: "c x"}}, measured)
	require.NoError(t, err)
	require.Len(t, less, 1, "a part that was not measured cannot be taken away")
	assert.InDelta(t, 6, less[0].Value, 1e-9)
	without, err := judge([]want{{name: "n", from: "a x", peer: "p", peerFrom: "p x", goal: "ratio >= 1"},
		{name: "m", from: "a x", peer: "p", peerFrom: "p x", goal: "value >= 1"}}, measured)
	require.NoError(t, err)
	require.Len(t, without, 1, "a peer that this machine does not have")
	assert.Equal(t, "m", without[0].Name)
	_, err = judge([]want{{name: "n", from: "a x", goal: "ratio >= 1"}}, measured)
	require.Error(t, err, "a goal on a ratio without a peer cannot hold silently")
	got, err := judge(figureTable(), measured)
	require.NoError(t, err)
	assert.Empty(t, got, "what was not measured is not in the table")
	for _, w := range figureTable() {
		if w.goal != "" {
			peer := 1.0
			_, err := Figure{Value: 1, Ratio: &peer}.meets(w.goal)
			assert.NoError(t, err, w.name)
		}
	}
}
