package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/codeblocks"
)

const root = "../.."

// acceptMode is the value of asProgram with which the test program only checks its command line.
const acceptMode = "accept"

// others are the programs of the pages' blocks that are not dayone: here they are played by a script that takes any
// argument, or by the one that is named. hack/e2e/pages runs the blocks.
var others = []struct{ name, script string }{
	// make -n needs the target and reads the variables; go takes packages of this repository.
	{"make", `exec /usr/bin/make -n -C "$ROOT" "$@" >/dev/null`},
	{"go",
		`for p; do case $p in ./*) test -d "$ROOT/$p" || { echo "no package $p" >&2; exit 1; };; esac; done`},
	{"kubectl", `case $1 in dayone) shift; exec kubectl-dayone "$@";; esac`},
	{"oc", ""},
	{"openshift-install", ""},
	{"machine-config-osimagestream", ""},
	{"dayone-daemon", ""},
	{"bin/testnode", ""},
	{"hack/setup/setup.sh", `test -x "$ROOT/hack/setup/setup.sh"`},
	{"kubeadm", ""},
	{"sh", ""},
	{"tail", ""},
	{"mkdir", ""},
	{"tee", ""},
	{"coreos-installer", ""},
	{"reboot", ""},
	{"virt-install", ""},
	{"aws", ""},
	{"ssh", ""},
	{"systemctl", ""},
	{"journalctl", ""},
	{"cat", ""},
	{"touch", ""},
	{"dpkg", ""},
	{"base64", ""},
	{"openssl", ""},
	{"sha256sum", ""},
	{"sha512sum", ""},
	{"cut", ""},
	{"jq", ""},
	{"rsync", ""},
	{"cp", ""},
	{"sudo", `exec "$@"`},
}

// pages are all with blocks that are commands.
func pages(t *testing.T) (names []string) {
	t.Helper()
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || slices.Contains([]string{"out", "bin"}, name)):
			return fs.SkipDir
		case strings.HasSuffix(name, ".md") && name != "CHANGELOG.md":
			names = append(names, name)
		}
		return nil
	}))
	return names
}

// shell is where blocks run: a directory of their own, with no program but those that stand for the others.
type shell struct{ dir, bin string }

func newShell(t *testing.T) shell {
	t.Helper()
	s := shell{dir: t.TempDir(), bin: t.TempDir()}
	absolute, err := filepath.Abs(root)
	require.NoError(t, err)
	for _, o := range others {
		at := filepath.Join(s.bin, o.name)
		if strings.Contains(o.name, "/") {
			at = filepath.Join(s.dir, o.name)
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte("#!/bin/bash\nROOT="+absolute+"\n"+o.script+"\n"), 0o755))
	}
	for _, name := range []string{"dayone", "kubectl-dayone"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.bin, name),
			[]byte("#!/bin/bash\nexec -a "+name+" "+os.Args[0]+` "$@"`+"\n"), 0o755))
	}
	return s
}

// accepts lets bash run a script in which programs only look at their command lines.
func (s shell) accepts(t *testing.T, script string) (stderr string, code int) {
	t.Helper()
	// No page writes to this machine.
	script = strings.ReplaceAll(script, "> /etc/systemd/system/", "> ")
	cmd := exec.CommandContext(t.Context(), "/bin/bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = s.dir
	cmd.Env = []string{asProgram + "=" + acceptMode, "PATH=" + s.bin, "HOME=" + s.dir, "KUBECONFIG=/nowhere", "AMI=ami",
		"CONTROLLER=c", "BUILDER=b", "DAEMON=d"}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err, script)
	}
	return errs.String(), cmd.ProcessState.ExitCode()
}

// Every block of commands is taken by bash, and each command line of dayone in it by dayone.
func TestConsoleBlocksAreAccepted(t *testing.T) {
	counted := 0
	for _, page := range pages(t) {
		blocks, err := codeblocks.Of(filepath.Join(root, page))
		require.NoError(t, err)
		s := newShell(t)
		for _, dir := range []string{"DIR", "IN", "cluster"} {
			require.NoError(t, os.Mkdir(filepath.Join(s.dir, dir), 0o755))
		}
		for _, b := range blocks {
			if b.Language != "sh" && b.Language != "console" {
				continue
			}
			counted++
			stderr, code := s.accepts(t, strings.Join(b.Commands(), "\n"))
			assert.Zero(t, code, "%s:%d: %s", page, b.Line, stderr)
		}
	}
	assert.Greater(t, counted, 80)
}

// Sentences name commands and flags that are there; they may leave out arguments.
func TestCommandsInSentences(t *testing.T) {
	counted := 0
	for _, page := range append(pages(t), "CHANGELOG.md") {
		spans, err := codeblocks.Spans(filepath.Join(root, page))
		require.NoError(t, err)
		for _, span := range spans {
			words := strings.Fields(span)
			if end := slices.IndexFunc(words, func(w string) bool { return strings.ContainsAny(w, "|>…;") }); end >= 0 {
				words = words[:end]
			}
			if len(words) > 1 && words[0] == "kubectl" && words[1] == "dayone" {
				words = append([]string{"kubectl-dayone"}, words[2:]...)
			}
			if len(words) < 2 || words[0] != "dayone" && words[0] != "kubectl-dayone" {
				continue
			}
			counted++
			found, args, err := find(words)
			if err == nil {
				err = found.ParseFlags(args)
			}
			if _, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
				err = nil // the sentence is about the flag
			}
			if err == nil && len(found.Flags().Args()) > 0 {
				err = arguments(found)
			}
			assert.NoError(t, err, "%s: %s", page, span)
		}
	}
	assert.Greater(t, counted, 100)
}

// acceptOnly tells whether the program takes its command line, and does nothing.
func acceptOnly(argv []string) int {
	argv[0] = filepath.Base(argv[0])
	if err := accepted(argv); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %v\n", argv, err)
		return cli.ExitUsage
	}
	return cli.ExitOK
}

// accepted checks a command line against the program's: command, flags, arguments, what is required.
func accepted(argv []string) error {
	found, args, err := find(argv)
	if err != nil {
		return err
	}
	for _, check := range []func() error{
		func() error { return found.ParseFlags(args) },
		func() error { return arguments(found) },
		found.ValidateRequiredFlags, found.ValidateFlagGroups,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// find gives the command of a command line, those that cobra adds among them.
func find(argv []string) (*cobra.Command, []string, error) {
	p := program(argv)
	p.InitDefaultHelpCmd()
	p.InitDefaultCompletionCmd()
	p.AddCommand(&cobra.Command{Use: "__complete", Hidden: true, Run: func(*cobra.Command, []string) {}})
	return p.Find(argv[1:])
}

// arguments checks those that are no flags. A group of commands takes any, and then says that it has no such command.
func arguments(c *cobra.Command) error {
	if group := len(c.Annotations) > 0; group && len(c.Flags().Args()) > 0 {
		return fmt.Errorf("%s has no command %s", c.CommandPath(), c.Flags().Arg(0))
	}
	return c.ValidateArgs(c.Flags().Args())
}

// What the pages may not say is noticed.
func TestStaleCommandsAreNoticed(t *testing.T) {
	for _, line := range []string{"dayone frobnicate", "dayone cluster stats", "dayone status --nodez", "dayone prepare x",
		"dayone registry ls", "dayone sign image --key", "kubectl-dayone prepare"} {
		assert.Error(t, accepted(strings.Fields(line)), line)
	}
	require.NoError(t, accepted([]string{"dayone", "status", "--nodes"}))
}
