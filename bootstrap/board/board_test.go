package board

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"

// full has every list.
func full() Board {
	return Board{Head: []string{"dayone v1 in namespace dayone, mode full"},
		Phases: []Row{{Name: "base", State: "done", Progress: Done, Seconds: 2, Text: "take in the base image"},
			{Name: "build-master", State: "cut off", Progress: Failed, Text: "build the image of pool master",
				Says: "push " + digest + ": connection refused"}},
		Programs:   []Row{{Name: "dayone-controller", State: "available", Progress: Done}},
		Conditions: []Row{{Name: "Degraded", State: "False", Progress: Done, Text: "AsExpected"}},
		Pools:      []Row{{Name: "master", State: "image done", Progress: Running, Text: "1 of 2 nodes run their image"}},
		Builds: []Row{{Name: "worker", State: "running", Progress: Running, Seconds: 75.5, Text: "LINE 3: RUN dnf install x",
			Says: "50%\r\x1b[31mred"}},
		Nodes: []Row{{Name: "master-0", Pool: "master", State: "booted", Progress: Done, Text: "runs its image since 2m"},
			Row{Name: "10.0.0.8", Pool: "master", State: "pulling", Progress: Failed, Text: "pulls since 4m, no byte for 2m",
				Next: "check the network from the node to this host's registry"}.Steady("310")},
		Notes: []string{"2 of 3 phases begun"}}
}

func TestLinesOfAPipe(t *testing.T) {
	assert.Equal(t, `dayone v1 in namespace dayone, mode full
phases:
done     base          2.0s  take in the base image
cut off  build-master        build the image of pool master
    push `+digest+`: connection refused
programs:
available  dayone-controller
conditions:
False  Degraded  AsExpected
pools:
image done  master  1 of 2 nodes run their image
builds:
running  worker  1m15s  LINE 3: RUN dnf install x
    50%  [31mred
nodes:
booted   master  master-0  runs its image since 2m
pulling  master  10.0.0.8  pulls since 4m, no byte for 2m
    next: check the network from the node to this host's registry
2 of 3 phases begun`, strings.Join(full().Lines(0), "\n"))
}

// Every width says the same words; only one that is longer than the line goes beyond it.
func TestLinesFit(t *testing.T) {
	words := func(lines []string) []string { return strings.Fields(strings.Join(lines, " ")) }
	for _, width := range []int{20, 40, 80, 200} {
		lines := full().Lines(width)
		assert.Equal(t, words(full().Lines(0)), words(lines), width)
		for _, line := range lines {
			if len(strings.Fields(line)) > 1 {
				assert.LessOrEqual(t, utf8.RuneCountInString(line), width, line)
			}
		}
	}
	assert.Contains(t, full().Lines(80), "pulling  master  10.0.0.8  pulls since 4m, no byte for 2m")
	assert.Contains(t, strings.Join(full().Lines(20), "\n"),
		"pulling master\n10.0.0.8\n    pulls since 4m,\n    no byte for 2m\n")
}

func TestScreen(t *testing.T) {
	b := full()
	assert.Equal(t, b.Lines(80), b.Screen(80, 24))
	short := strings.Join(b.Screen(80, 19), "\n")
	assert.Contains(t, short, "phases (1 done):\ncut off  build-master")
	assert.NotContains(t, short, "master-0")
	assert.Contains(t, short, "2 of 3 phases begun")
	for _, height := range []int{1, 2, 5} {
		lines := b.Screen(20, height)
		assert.LessOrEqual(t, Height(lines, 20), height)
		assert.Equal(t, "...", lines[len(lines)-1])
	}
	assert.Equal(t, 5, Height([]string{"", strings.Repeat("x", 20), strings.Repeat("ä", 41)}, 20))
}

// Colours are on the words for states only, and count nowhere.
func TestColours(t *testing.T) {
	plainly := func(lines []string) (out []string) {
		for _, line := range lines {
			out = append(out, painted.ReplaceAllString(line, ""))
		}
		return out
	}
	b := full().InColour()
	for _, width := range []int{4, 8, 20, 40, 80, 200} {
		assert.Equal(t, full().Lines(width), plainly(b.Lines(width)), width)
		assert.Equal(t, Height(full().Lines(width), width), Height(b.Lines(width), width), width)
		for _, height := range []int{1, 5, 19, 24} {
			assert.Equal(t, full().Screen(width, height), plainly(b.Screen(width, height)), "%d x %d", width, height)
		}
	}
	b.Phases = append(b.Phases, Row{Name: "gate", State: "pending", Progress: Pending, Text: "open"})
	text := strings.Join(b.Lines(80), "\n")
	for _, want := range []string{"phases:\n\x1b[32mdone\x1b[m     base          2.0s  take in",
		"\n\x1b[31mcut off\x1b[m  build-master", "\npending  gate", "\n\x1b[36mimage done\x1b[m  master",
		"\n    50%  [31mred\n", "\n\x1b[32mbooted\x1b[m   master  master-0"} {
		assert.Contains(t, text, want)
	}
	assert.Contains(t, strings.Join(b.Lines(8), "\n"), "\x1b[36mimage\x1b[m\ndone\n", "a state on two lines")
	assert.Equal(t, full().Changes(Board{}), full().InColour().Changes(Board{}))
}

func TestChanges(t *testing.T) {
	was, is := full(), full()
	is.Phases[0].Seconds++
	is.Nodes[1] = is.Nodes[1].Steady("310")
	is.Nodes[1].Text = "pulls since 5m, no byte for 3m"
	assert.Empty(t, is.Changes(was), "ages are no change")

	is.Builds[0].Says = "100%"
	is.Nodes[1] = is.Nodes[1].Steady("620")
	is.Nodes = is.Nodes[1:]
	is.Notes = []string{"3 of 3 phases begun"}
	assert.Equal(t, []string{
		"builds: running worker 1m15s  LINE 3: RUN dnf install x  100%",
		"nodes: pulling master 10.0.0.8  pulls since 5m, no byte for 3m; next: check the network from the node to this " +
			"host's registry",
		"nodes: master master-0 is gone", "3 of 3 phases begun"}, is.Changes(was))
	assert.Len(t, full().Changes(Board{}), 10, "everything is new")
}
