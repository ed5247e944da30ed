package upstream_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/program"
)

const (
	// mcoEnv names a directory with machine-config-operator, machine-config-controller, machine-config-server,
	// machine-os-builder and the operator's templates/.
	mcoEnv = "DAYONE_TEST_MCO"
	// installerEnv names openshift-install.
	installerEnv = "DAYONE_TEST_OPENSHIFT_INSTALL"
)

// run is this run of the suite.
var run suite

func TestMain(m *testing.M) {
	if os.Getenv(sendEnv) != "" {
		if err := send(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	run.print()
	run.clean()
	os.Exit(code)
}

// suite keeps what the cases share: dayone's program and the table of results.
type suite struct {
	mu     sync.Mutex
	dayone string
	rows   []row
}

type row struct{ name, result string }

// record puts the test into the table when it ends. facts says what was compared.
func (s *suite) record(t *testing.T, facts func() string) {
	t.Cleanup(func() {
		result := "passed: " + facts()
		switch {
		case t.Failed():
			result = "FAILED"
		case t.Skipped():
			return // whoever skipped said why
		}
		s.add(t.Name(), result)
	})
}

func (s *suite) add(name, result string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = append(s.rows, row{strings.TrimPrefix(name, "Test"), result})
}

// without leaves the test out, by name.
func (s *suite) without(t *testing.T, reason string) {
	t.Helper()
	s.add(t.Name(), "left out: "+reason)
	t.Skip(reason)
}

func (s *suite) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "case\tresult")
	for _, r := range s.rows {
		fmt.Fprintf(w, "%s\t%s\n", r.name, r.result)
	}
	_ = w.Flush()
}

func (s *suite) clean() {
	if s.dayone != "" {
		_ = os.RemoveAll(filepath.Dir(s.dayone))
	}
}

// program is dayone's, built once.
func (s *suite) program(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dayone == "" {
		dir, err := os.MkdirTemp("", "dayone-upstream-")
		require.NoError(t, err)
		file := filepath.Join(dir, "dayone")
		require.NoError(t, program.Build(t.Context(), "",
			program.Options{Package: "dayone.dev/dayone/cmd/dayone", Cgo: true}, file))
		s.dayone = file
	}
	return s.dayone
}

// mco is a directory with the Machine Config Operator's programs.
type mco string

func (s *suite) mco(t *testing.T) mco {
	t.Helper()
	dir := os.Getenv(mcoEnv)
	if dir == "" {
		s.without(t, mcoEnv+" names no directory with the Machine Config Operator's programs")
	}
	for _, name := range []string{"machine-config-operator", "machine-config-controller", "machine-config-server",
		"machine-os-builder", "templates"} {
		_, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err, "%s=%s", mcoEnv, dir)
	}
	return mco(dir)
}

// command is one of the operator's programs.
func (m mco) command(t *testing.T, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), filepath.Join(string(m), name), args...)
}

// says runs a program to its end and gives what it wrote.
func says(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	return string(out), err
}
