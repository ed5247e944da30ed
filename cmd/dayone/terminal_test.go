package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/cmd/internal/cli"
)

// asProgram makes the test program be dayone.
const asProgram = "DAYONE_TEST_AS_PROGRAM"

// process is dayone as a process of its own, in an environment that a shell of few settings has.
func process(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append([]string{asProgram + "=1", "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	return cmd
}

// onTerminal runs it with a terminal of so many columns and gives what the terminal got.
func onTerminal(t *testing.T, columns uint16, env []string, args ...string) (code int, screen string) {
	t.Helper()
	return watched(t, columns, env, io.Discard, args...)
}

// watched is onTerminal with somebody who sees what the terminal gets.
func watched(t *testing.T, columns uint16, env []string, eye io.Writer, args ...string) (code int, screen string) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer ours.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	theirs, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(theirs.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: 24}))
	cmd := process(t, env, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	require.NoError(t, cmd.Start())
	require.NoError(t, theirs.Close())
	var got bytes.Buffer
	_, _ = io.Copy(io.MultiWriter(&got, eye), ours) // a terminal ends with EIO
	err = cmd.Wait()
	if err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return cmd.ProcessState.ExitCode(), strings.ReplaceAll(got.String(), "\r\n", "\n")
}

// begins lets a bootstrap begin, and end, when status has shown that there is none.
type begins struct {
	t   *testing.T
	dir string
}

// Write is io.Writer's.
func (b begins) Write(p []byte) (int, error) {
	name := filepath.Join(b.dir, journal.File)
	if strings.Contains(string(p), "no bootstrap") {
		assert.NoError(b.t, os.WriteFile(name+".new", []byte(ended), 0o600))
		assert.NoError(b.t, os.Rename(name+".new", name))
	}
	return len(p), nil
}

// A terminal shows the state as it is now; where the cursor cannot go back, each change is a line.
func TestWatch(t *testing.T) {
	args := func(eye begins) []string { return []string{"status", "--watch", "--state-dir", eye.dir} }
	change := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\dZ phases: done base`)
	for _, c := range []struct {
		name    string
		columns uint16
		env     []string
		drawn   string
	}{
		{"80 columns", 80, []string{"TERM=xterm"},
			"\x1b[1A\r\x1b[Jphases:\n\x1b[32mdone\x1b[m     base          2.0s  take in the base image\n" +
				"\x1b[31mcut off\x1b[m  "},
		{"20 columns", 20, []string{"TERM=xterm"},
			"\x1b[3A\r\x1b[Jphases:\n\x1b[32mdone\x1b[m base 2.0s\n    take in the base\n    image\n"},
		{"no colour", 80, []string{"TERM=xterm", "NO_COLOR=1"},
			"\x1b[1A\r\x1b[Jphases:\ndone     base          2.0s  take in the base image\ncut off  "},
		{"dumb", 80, []string{"TERM=dumb"}, ""},
		{"no kind", 80, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			eye := begins{t, t.TempDir()}
			code, screen := watched(t, c.columns, c.env, eye, args(eye)...)
			assert.Equal(t, cli.ExitFailed, code, "the bootstrap does not run any more")
			assert.Contains(t, screen, c.drawn)
			if c.drawn == "" {
				assert.NotContains(t, screen, "\x1b")
				assert.Regexp(t, change, screen)
			}
		})
	}
	t.Run("a pipe", func(t *testing.T) {
		eye := begins{t, t.TempDir()}
		var out bytes.Buffer
		cmd := process(t, []string{"TERM=xterm"}, args(eye)...)
		cmd.Stdout = io.MultiWriter(&out, eye)
		require.Error(t, cmd.Run())
		assert.Regexp(t, change, out.String())
		assert.Equal(t, 1, strings.Count(out.String(), "no bootstrap"), "only changes are printed")
		assert.NotContains(t, out.String(), "\x1b")
	})
	t.Run("JSON", func(t *testing.T) {
		eye := begins{t, t.TempDir()}
		var out bytes.Buffer
		cmd := process(t, nil, append(args(eye), "-o", "json")...)
		cmd.Stdout = io.MultiWriter(&out, eye)
		require.Error(t, cmd.Run())
		require.GreaterOrEqual(t, strings.Count(out.String(), "\n"), 2)
		for line := range strings.Lines(out.String()) {
			var look struct{ Kind string }
			require.NoError(t, json.Unmarshal([]byte(line), &look), "every look is a line")
			assert.Equal(t, "BootstrapStatus", look.Kind)
		}
		assert.Contains(t, out.String(), `"board":{"phases":[{"name":"base","state":"done","progress":"done"`)
	})
}

// commandsToSee print help, tables, lists, errors and progress.
func commandsToSee(t *testing.T) [][]string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, journal.File), []byte(ended), 0o600))
	return [][]string{{"registry", "serve", "--help"}, {"plan", "--dir", installDirectory(t)},
		{"status", "--state-dir", dir},
		{"build", "--dir", installDirectory(t), "--base", "oci:/nowhere", "--state-dir", t.TempDir()}}
}

func installDirectory(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cluster")
	code, _, stderr := dayone(t, "sample", "--dir", dir)
	require.Equal(t, cli.ExitOK, code, stderr)
	return dir
}

func TestTerminals(t *testing.T) {
	colours := regexp.MustCompile("\x1b\\[[0-9;]*m")
	for _, args := range commandsToSee(t) {
		t.Run(strings.Join(args[:min(len(args), 2)], " "), func(t *testing.T) {
			plain := process(t, nil, args...)
			var all bytes.Buffer
			plain.Stdout, plain.Stderr = &all, &all
			_ = plain.Run() // the code is below
			code := plain.ProcessState.ExitCode()
			assert.NotContains(t, all.String(), "\x1b", "pipes are plain")
			for _, c := range []struct {
				name    string
				columns uint16
				env     []string
				colours bool
			}{
				{"20 columns", 20, []string{"TERM=xterm-256color"}, true},
				{"100 columns", 100, []string{"TERM=xterm-256color"}, true},
				{"no size", 0, []string{"TERM=xterm-256color"}, true},
				{"dumb", 80, []string{"TERM=dumb"}, false},
				{"no kind", 80, nil, false},
				{"no colour", 80, []string{"TERM=xterm-256color", "NO_COLOR=1"}, false},
				{"empty NO_COLOR", 80, []string{"TERM=xterm", "NO_COLOR="}, true},
				{"locale C", 80, []string{"TERM=xterm", "LC_ALL=C"}, true},
			} {
				t.Run(c.name, func(t *testing.T) {
					got, screen := onTerminal(t, c.columns, c.env, args...)
					assert.Equal(t, code, got, screen)
					assert.NotContains(t, screen, "panic")
					if c.columns == 100 && args[0] == "plan" && code == 0 {
						for line := range strings.Lines(screen) {
							assert.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 100, "%q fits the terminal", line)
						}
					}
					want := c.colours && slices.Contains([]string{"status", "build"}, args[0]) // of states, and of an error
					assert.Equal(t, want, colours.MatchString(screen), "colours in %q", screen)
					if c.name == "dumb" || c.name == "no kind" {
						assert.NotContains(t, screen, "\x1b")
					}
					words, says := strings.Fields(all.String()), strings.Fields(colours.ReplaceAllString(screen, ""))
					assert.Contains(t, strings.Join(says, " "), words[len(words)-1], "it says the same")
					for _, r := range screen {
						if r > 126 {
							t.Fatalf("a terminal of locale C cannot show %q in %s", r, screen)
						}
					}
				})
			}
		})
	}
}

func TestOutputClosedEarly(t *testing.T) {
	for _, args := range [][]string{{"schema", "plan"}, {"--help"}, {"plan", "--dir", installDirectory(t)},
		{"plan", "--dir", "/nowhere", "-o", "json"}} {
		reader, writer, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, reader.Close()) // as head -1 when it has its line
		cmd := process(t, nil, args...)
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = writer, &errs
		require.NoError(t, cmd.Start())
		require.NoError(t, writer.Close())
		_ = cmd.Wait() // the signal is below
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		assert.True(t, status.Signaled() && status.Signal() == syscall.SIGPIPE, "%v ends as every program: %v", args, status)
		for _, wrong := range []string{"panic", "broken pipe", "goroutine"} {
			assert.NotContains(t, errs.String(), wrong, args)
		}
	}
}

func TestOutputThatTakesNothing(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	for _, args := range [][]string{{"version"}, {"--help"}, {"schema"}, {"plan", "--dir", installDirectory(t)},
		{"version", "-o", "json"}} {
		cmd := process(t, nil, args...)
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &errs
		require.Error(t, cmd.Run(), args)
		assert.Equal(t, cli.ExitFailed, cmd.ProcessState.ExitCode(), args)
		assert.Contains(t, errs.String(), "no space left on device", args)
	}
}
