package life

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/progress"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/codeblocks"
	"dayone.dev/dayone/hack/e2e"
	kubecluster "dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/hack/testnode"
)

func TestMain(m *testing.M) {
	testnode.Init()
	kubecluster.Init()
	os.Exit(m.Run())
}

// screen is where the demo writes.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Commands that the demo prints to be typed on what it keeps.
var (
	typedStatus = regexp.MustCompile(`bin/(kubectl-dayone) (status) (--kubeconfig) (\S+)`)
	typedShell  = regexp.MustCompile(`bin/testnode exec ((\S+)/worker-0) sh`)
)

// beginning is how many phases are lived through: until the bootstrap host has handed over. The others take minutes.
const beginning = 3

// keptLimit is many times what the beginning takes on two busy processors.
const keptLimit = 8 * time.Minute

// TestTheBeginningIsKept is make demo FULL=1 TINY=1 KEEP=1 until after the hand-over, with a node of each pool: all
// checks hold, the printed commands work on what stays, and Ctrl-C leaves nothing.
func TestTheBeginningIsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("boots nodes and starts a cluster: left out with -short")
	}
	if err := errors.Join(kubecluster.Missing(), testnode.Missing()); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	out, bin := &screen{}, programs(t)
	ctx, interrupt := context.WithTimeout(t.Context(), keptLimit)
	defer interrupt()
	var report *Report
	ended := make(chan error, 1)
	go func() {
		var err error
		report, err = live(ctx, Options{Workers: 1, Source: source(t), Options: e2e.Options{Bin: bin, Work: t.TempDir(),
			Kind: baseimage.Tiny, Masters: 1, Keep: true, View: progress.New(out)}}, phases()[:beginning])
		ended <- err
	}()
	for !typedShell.MatchString(out.String()) {
		select {
		case err := <-ended:
			require.FailNow(t, "it ended too soon", "%v\n%s", err, out)
		case <-time.After(100 * time.Millisecond):
		}
	}
	kept := typedStatus.FindStringSubmatch(out.String())
	require.NotNil(t, kept, out.String())
	status, err := exec.CommandContext(ctx, filepath.Join(bin, kept[1]), kept[2:]...).CombinedOutput()
	assert.NoError(t, err, string(status))
	for _, pool := range []string{master, worker, infra} {
		assert.Contains(t, string(status), pool)
	}
	node := typedShell.FindStringSubmatch(out.String())
	shell := exec.CommandContext(ctx, filepath.Join(bin, "testnode"), "exec", node[1], "sh")
	shell.Stdin = strings.NewReader("grep ^ID= /etc/os-release\n")
	inside, err := shell.CombinedOutput()
	assert.NoError(t, err, string(inside))
	assert.Contains(t, string(inside), "ID=dayone-tiny")
	interrupt()
	require.NoError(t, <-ended, out.String())
	report.Print(t.Output())
	assert.Len(t, report.Phases, beginning)
	assert.True(t, strings.HasPrefix(out.String(), played+"\n"), "the first line says what is played")
	asTheReadme(t, out.String())
	nothingLeft(t, node[2])
	assert.NoFileExists(t, kept[4], "the cluster is gone")
}

// ofLaterPhases are the forms of what the phases after the beginning print: the image of a pool, a node that changes,
// and a check.
var ofLaterPhases = regexp.MustCompile(`^(  built \S+@sha256:[0-9a-f]{64}| {1,4}\d+\.\ds  \S+ +boot \d  [A-Z].*|` +
	`  ok    .+: .+ \(.+\))$`)

// asTheReadme compares what the README says that the demo prints with what it has printed, but for figures, and for how
// many workers there are. Phases that the test leaves out have its titles and its forms.
func asTheReadme(t *testing.T, printed string) {
	t.Helper()
	blocks, err := codeblocks.Of("../../../README.md")
	require.NoError(t, err)
	at, shown := -1, map[int]int{}
	for _, b := range blocks {
		if b.Language != "console" || len(b.Commands()) > 0 {
			continue
		}
		for line := range strings.Lines(b.Text) {
			line = strings.TrimSuffix(line, "\n")
			title := titleOf.FindStringSubmatch(line)
			if title != nil {
				at = slices.IndexFunc(phases(), func(p phase) bool { return p.title == title[1]+title[2] })
				require.GreaterOrEqual(t, at, 0, "the life has no such phase: %s", line)
			}
			shown[at]++
			switch {
			case at < beginning:
				assert.Regexp(t, "(?m)^"+figure.ReplaceAllStringFunc(regexp.QuoteMeta(line), formOf)+"$", printed)
			case title == nil:
				assert.Regexp(t, ofLaterPhases, line)
			}
		}
	}
	assert.Len(t, shown, 6, "phases that the README shows: %v", shown)
}

var (
	// titleOf is a phase's as it begins, or as the report has it.
	titleOf = regexp.MustCompile(`^(?:== (.*)|(\w.*) \(\d+\.\ds\))$`)
	// figure is what differs from run to run: durations, hashes, columns, how many workers.
	figure = regexp.MustCompile(`\d+\\\.\d+s|\b[0-9a-f]{8}\b|\d+ workers|  +`)
)

func formOf(text string) string {
	switch {
	case strings.HasSuffix(text, "s") && strings.Contains(text, "."):
		return `\d+\.\d+s`
	case strings.HasSuffix(text, "workers"):
		return `\d+ workers`
	case strings.TrimSpace(text) == "":
		return " +"
	}
	return "[0-9a-f]{8}"
}

func source(t *testing.T) string {
	dir, err := filepath.Abs("../../..")
	require.NoError(t, err)
	return dir
}

// programs are what make build leaves in bin, as far as the life needs them.
func programs(t *testing.T) (bin string) {
	bin = t.TempDir()
	for _, p := range []program.Options{{Package: "dayone.dev/dayone/cmd/dayone", Cgo: true},
		{Package: "dayone.dev/dayone/cmd/dayone-daemon"}, {Package: "dayone.dev/dayone/cmd/dayone-registry"},
		{Package: "dayone.dev/dayone/hack/testnode/cmd/testnode"}} {
		require.NoError(t, program.Build(t.Context(), source(t), p, filepath.Join(bin, path.Base(p.Package))))
	}
	require.NoError(t, os.Symlink("dayone", filepath.Join(bin, "kubectl-dayone")))
	return bin
}

// nothingLeft looks for networks and mounts of a lab.
func nothingLeft(t *testing.T, lab string) {
	networks, err := exec.Command("ip", "netns", "list").Output()
	require.NoError(t, err)
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	assert.NotContains(t, string(networks), lab, "a network namespace is left behind")
	assert.NotContains(t, string(mounts), lab, "a mount is left behind")
}
