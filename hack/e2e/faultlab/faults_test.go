package faultlab

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The lab's settings: for how long it makes cases (a Go duration; without it, one case of each fault), and the seed.
const (
	durationEnv = "DAYONE_TEST_FAULTS"
	seedEnv     = "DAYONE_SEED"
)

// fault is one kind of bad luck.
type fault struct {
	name   string
	strike func(a *attempt)
}

func faults() []fault {
	return []fault{
		{"killed", killed},
		{"disk full", diskFull},
		{"no inodes left", noInodes},
		{"damaged state", damagedState},
		{"damaged install directory", damagedDirectory},
		{"spoiled registry", spoiledRegistry},
		{"clock step", clockStep},
		{"hostile base", hostileBase},
	}
}

// TestFaults runs one case of each fault, or as many as fit into a time. Each prints its seed: with DAYONE_SEED=SEED
// and -run TestFaults/NAME it is run again.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("builds images")
	}
	l := newLab(t)
	seed := uint64(5000) // without a time the cases are always the same
	until := time.Now()
	if given := os.Getenv(durationEnv); given != "" {
		d, err := time.ParseDuration(given)
		require.NoError(t, err)
		until, seed = until.Add(d), uint64(time.Now().UnixNano())
	}
	if given := os.Getenv(seedEnv); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err)
	}
	cases := 0
	for first := true; first || time.Now().Before(until); first = false {
		for i, f := range faults() {
			t.Run(fmt.Sprintf("%s/%d", f.name, seed), func(t *testing.T) {
				a := &attempt{lab: l, t: t, dice: rand.New(rand.NewPCG(seed, uint64(i))),
					state: filepath.Join(t.TempDir(), "state")}
				f.strike(a)
			})
			cases++
		}
		seed++
	}
	t.Logf("%d cases, the last seed is %d", cases, seed-1)
}

// killed ends the program, its process group or one process that it has started, at any moment.
func killed(a *attempt) {
	b := a.start(a.t, a.state)
	after := time.Duration(a.dice.Int64N(int64(a.took)))
	select {
	case <-time.After(after):
	case <-b.log.ready:
	}
	all := b.descendants()
	victim := all[a.dice.IntN(len(all))]
	if a.dice.IntN(3) == 0 {
		victim = -b.cmd.Process.Pid
	}
	a.t.Logf("kill %d of %v after %s", victim, all, after.Round(time.Millisecond))
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		a.t.Logf("it had ended: %v", err)
	}
	if victim != all[0] && victim > 0 {
		e := b.serves()
		a.servesOrSays(e, "phase ")
		assert.NotContains(a.t, e.log, "build failed (user)", "the user is blamed for a kill")
	} else {
		<-b.ended
	}
	a.reaches()
}

// diskFull gives the state directory a disk of any size, then a large one.
func diskFull(a *attempt) {
	size := 1 + a.dice.IntN(200)
	a.t.Logf("a disk of %d MiB", size)
	grow := a.memory(fmt.Sprintf("size=%dm", size))
	a.servesOrSays(a.start(a.t, a.state).serves(), "no space left on device", "free space", "bytes free", "disk space")
	grow()
	a.reaches()
}

// noInodes gives the state directory a disk for any number of files, then a large one.
func noInodes(a *attempt) {
	count := 5 + a.dice.IntN(2500)
	a.t.Logf("a disk for %d files", count)
	grow := a.memory(fmt.Sprintf("size=2g,nr_inodes=%d", count))
	a.servesOrSays(a.start(a.t, a.state).serves(), "inodes", "no space left on device")
	grow()
	a.reaches()
}

// damagedState changes one file of a finished run. The program mends it, or refuses and names the file; with the file
// as it was, all is well.
func damagedState(a *attempt) {
	a.copyState()
	file := a.anyFile(a.state)
	before, err := os.ReadFile(file)
	require.NoError(a.t, err)
	what := a.damage(file, before)
	relative, err := filepath.Rel(a.state, file)
	require.NoError(a.t, err)
	a.t.Logf("%s: %s", relative, what)
	e := a.start(a.t, a.state).serves(a.pull)
	a.servesOrSays(e, namesOf(relative)...)
	if !e.served {
		require.NoError(a.t, os.WriteFile(file, before, 0o600))
		a.reaches()
	}
}

// namesOf are words by which a message names a file of the state directory: its path, its name unless many files have
// that, and the digest in the path of what a registry keeps.
func namesOf(path string) []string {
	names := []string{path}
	if base := filepath.Base(path); !slices.Contains([]string{"data", "link", "lock"}, base) {
		names = append(names, base)
	}
	for part := range strings.SplitSeq(path, "/") {
		if len(part) == hex.EncodedLen(sha256.Size) {
			names = append(names, part)
		}
	}
	return names
}

// anyFile takes one regular file below dir. Every entry of dir has the same chance, also one with many files.
func (a *attempt) anyFile(dir string) string {
	a.t.Helper()
	groups := map[string][]string{}
	require.NoError(a.t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			group, _, _ := strings.Cut(strings.TrimPrefix(path, dir+"/"), "/")
			groups[group] = append(groups[group], path)
		}
		return err
	}))
	require.NotEmpty(a.t, groups)
	names := slices.Sorted(maps.Keys(groups))
	files := groups[names[a.dice.IntN(len(names))]]
	return files[a.dice.IntN(len(files))]
}

// damage changes a file: one byte, its end, or all of it.
func (a *attempt) damage(file string, content []byte) string {
	a.t.Helper()
	kind := a.dice.IntN(4)
	if len(content) == 0 {
		kind = 3
	}
	switch kind {
	case 0:
		at := a.dice.IntN(len(content))
		changed := bytes.Clone(content)
		changed[at] ^= 1 << a.dice.IntN(8)
		require.NoError(a.t, os.WriteFile(file, changed, 0o600))
		return fmt.Sprintf("byte %d is changed", at)
	case 1:
		size := a.dice.IntN(len(content))
		require.NoError(a.t, os.Truncate(file, int64(size)))
		return fmt.Sprintf("%d bytes are left of %d", size, len(content))
	case 2:
		require.NoError(a.t, os.Truncate(file, 0))
		return "it is empty"
	default:
		require.NoError(a.t, os.Remove(file))
		return "it is gone"
	}
}

// badInput is the exit status of a command that refuses what the user wrote.
const badInput = 3

// damagedDirectory changes install directories: a command that reads one takes it or refuses it as the user's input; it
// neither crashes nor hangs nor takes all memory.
func damagedDirectory(a *attempt) {
	const directories, changes, seconds = 5, 3, "30"
	for i := range directories {
		dir := filepath.Join(a.t.TempDir(), "cluster")
		out, err := exec.CommandContext(a.t.Context(), "cp", "-a", a.dir, dir).CombinedOutput()
		require.NoError(a.t, err, string(out))
		var what []string
		for range changes {
			file := a.anyFile(dir)
			content, err := os.ReadFile(file)
			require.NoError(a.t, err)
			what = append(what, filepath.Base(file)+": "+a.mutate(file, content))
		}
		for _, verb := range []string{"plan", "prepare", "manifests"} {
			bounded := []string{memory, "timeout", seconds, a.program, verb, "--dir", dir}
			out, err := exec.CommandContext(a.t.Context(), "prlimit", bounded...).CombinedOutput()
			says := fmt.Sprintf("directory %d: %s after %s:\n%s", i, verb, strings.Join(what, ", "), out)
			for _, crash := range []string{"panic:", "goroutine ", "fatal error:"} {
				assert.NotContains(a.t, string(out), crash, says)
			}
			if err != nil {
				assert.Equal(a.t, badInput, err.(*exec.ExitError).ExitCode(), says)
				assert.NotEmpty(a.t, out, says)
			}
		}
	}
}

// mutate changes text as a careless or a hostile hand does: a line twice, a line gone, a value of another kind, a byte.
func (a *attempt) mutate(file string, content []byte) string {
	a.t.Helper()
	lines := bytes.SplitAfter(content, []byte("\n"))
	at := a.dice.IntN(len(lines))
	key, _, found := bytes.Cut(lines[at], []byte(":"))
	values := []string{"{}", "[]", "null", "-1", "1e400", "\"\\u0000\"", "&a [*a]", "*none", "!!binary x", "../../x",
		strings.Repeat("[", 20000), strings.Repeat("a", 70000)}
	var what string
	switch kind := a.dice.IntN(4); {
	case kind == 0 && found:
		value := values[a.dice.IntN(len(values))]
		lines[at] = []byte(string(key) + ": " + value + "\n")
		what = fmt.Sprintf("line %d has the value %.20q", at+1, value)
	case kind == 1:
		lines[at] = bytes.Repeat(lines[at], 2)
		what = fmt.Sprintf("line %d is there twice", at+1)
	case kind == 2:
		lines[at] = nil
		what = fmt.Sprintf("line %d is gone", at+1)
	default:
		return a.damage(file, content)
	}
	require.NoError(a.t, os.WriteFile(file, bytes.Join(lines, nil), 0o600))
	return what
}
