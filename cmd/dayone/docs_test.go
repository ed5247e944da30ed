package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// others are the programs of the pages' blocks that are not dayone, and why the blocks do not run here. They are played
// by a script that takes any argument, or by the one that is named.
var others = []struct{ name, why, script string }{
	// make -n needs the target and reads the variables; go takes packages of this repository.
	{"make", "it builds for minutes or boots nodes: targets are looked up",
		`exec /usr/bin/make -n -C "$ROOT" "$@" >/dev/null`},
	{"go", "it builds for minutes: packages are looked up",
		`for p; do case $p in ./*) test -d "$ROOT/$p" || { echo "no package $p" >&2; exit 1; };; esac; done`},
	{"kubectl", "a cluster: cmd/dayone/cluster runs them on a real API server",
		`case $1 in dayone) shift; exec kubectl-dayone "$@";; esac`},
	{"oc", "a cluster: cmd/dayone/cluster runs them on a real API server", ""},
	{"openshift-install", "hack/e2e/upstream runs the real one", ""},
	{"machine-config-osimagestream", "MCO's own program", ""},
	{"dayone-daemon", "a node: hack/e2e/deployers runs it there", ""},
	{"bin/testnode", "it boots nodes: hack/testnode's tests do", ""},
	{"hack/setup/setup.sh", "it looks at the machine's packages", `test -x "$ROOT/hack/setup/setup.sh"`},
	{"kubeadm", "hack/e2e/kubeadm runs the whole page", ""},
	{"sh", "hack/e2e/kubeadm runs the whole page", ""},
	{"tail", "hack/e2e/kubeadm runs the whole page", ""},
	{"mkdir", "hack/e2e/kubeadm runs the whole page", ""},
	{"tee", "hack/e2e/kubeadm runs the whole page", ""},
	{"coreos-installer", "a machine with a disk to write", ""},
	{"reboot", "a machine to reboot", ""},
	{"virt-install", "a hypervisor", ""},
	{"aws", "a cloud", ""},
	{"ssh", "another host", ""},
	{"systemctl", "systemd: hack/e2e runs the unit", ""},
	{"journalctl", "systemd: hack/e2e runs the unit", ""},
	{"cat", "a file of a node", ""},
	{"touch", "a file of a node", ""},
	{"dpkg", "a release: hack/release installs it", ""},
	{"base64", "a release: hack/release verifies it", ""},
	{"openssl", "a release: hack/release verifies it", ""},
	{"sha256sum", "a release: hack/release verifies it", ""},
	{"sha512sum", "the program to install", ""},
	{"cut", "the program to install", ""},
	{"jq", "a cluster", ""},
	{"rsync", "not on every machine", ""},
	{"cp", "it runs below", ""},
	{"sudo", "it runs below, as root or not", `exec "$@"`},
}

// outOfReach says why a command line of dayone is not run but only held against what dayone takes. A bootstrap is
// root's: hack/release runs the README's whole walk in a bare root. Those of a cluster are in cmd/dayone/cluster.
var outOfReach = []struct{ line, why string }{
	{`^dayone bootstrap( --\S+ \S+)*( +#.*)?$`, "root and a base image"},
	{"^dayone build --dir", "root and a base image"},
	{"^dayone status", "a bootstrap"},
	{"^dayone handover", "a bootstrap and a cluster"},
	{"^dayone gather", "a bootstrap or a cluster"},
	{"^dayone analyze", "a log bundle"},
	{"^dayone ignition", "the installer's bootstrap.ign"},
	{"^dayone serve", "it does not end"},
	{"^dayone registry serve", "it does not end"},
	{"^dayone registry copy", "a registry"},
	{"^dayone registry ls", "a registry's directory of the host"},
	{"^dayone registry verify .*--repair-from", "a registry"},
	{"^dayone (sign|verify|sbom|diff) ", "images"},
	{"^dayone render parity", "a dump of a cluster"},
	{"^dayone cluster", "a cluster"},
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

// run lets bash run a script; mode is what the program does.
func (s shell) run(t *testing.T, mode, script string) (stdout, stderr string, code int) {
	t.Helper()
	// No page writes to this machine.
	script = strings.ReplaceAll(script, "> /etc/systemd/system/", "> ")
	cmd := exec.CommandContext(t.Context(), "/bin/bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = s.dir
	cmd.Env = []string{asProgram + "=" + mode, "PATH=" + s.bin, "HOME=" + s.dir, "KUBECONFIG=/nowhere", "AMI=ami",
		"CONTROLLER=c", "BUILDER=b", "DAEMON=d"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err, script)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
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
			_, stderr, code := s.run(t, acceptMode, strings.Join(b.Commands(), "\n"))
			assert.Zero(t, code, "%s:%d: %s", page, b.Line, stderr)
			if len(b.Commands()) == 0 {
				assert.True(t, transcripts[page+": "+firstLine(b.Text)], "%s:%d: a console without a command", page, b.Line)
			}
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

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// transcripts are what make demo prints, with its times: hack/e2e and hack/e2e/life run it.
var transcripts = map[string]bool{
	"README.md: == Day 1: masters boot the image that the bootstrap host built":                   true,
	"README.md: == workers and infra: the cluster builds their images in Jobs and rolls them out": true,
	"README.md: workers opt out (22.0s)":                                                          true,
}

// walks are the pages whose blocks run, one after another, in one directory, and what a reader has before each.
var walks = []struct {
	page   string
	before map[int]func(t *testing.T, s shell)
}{
	{"README.md", nil},
	{"docs/users/getting-started.md", nil},
	{"docs/users/installing.md", nil},
	{"docs/users/containerfile.md", map[int]func(*testing.T, shell){0: func(t *testing.T, s shell) {
		s.must(t, "dayone sample --dir cluster; cp cluster/layering/master.yaml worker.yaml")
	}}},
	{"docs/users/day1-standalone.md", map[int]func(*testing.T, shell){0: installDirectories}},
	{"docs/users/day1-openshift.md", map[int]func(*testing.T, shell){0: openshift, 3: openshift}},
	{"docs/operators/disruption-policies.md", map[int]func(*testing.T, shell){0: installDirectories}},
	{"docs/operators/registry-in-cluster.md", nil},
	{"docs/operators/registry-backup.md", map[int]func(*testing.T, shell){0: func(t *testing.T, s shell) {
		_, stop := serveRegistry(t, filepath.Join(s.dir, "ROOT"))
		stop()
	}}},
	{"docs/users/rendering.md", map[int]func(*testing.T, shell){0: func(t *testing.T, s shell) {
		raw, err := os.ReadFile(filepath.Join(cases, "a-layered-pool/in/a.yaml"))
		require.NoError(t, err)
		require.NoError(t, os.Mkdir(filepath.Join(s.dir, "IN"), 0o755))
		raw = bytes.ReplaceAll(raw, []byte("version: 1.0.0"), []byte("version: RELEASE")) // the words of the page
		raw = bytes.ReplaceAll(raw, []byte("generated-by-version: v1"), []byte("generated-by-version: RAW"))
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, "IN/a.yaml"), raw, 0o600))
	}, 1: func(t *testing.T, s shell) {
		s.must(t, "for f in OUT/machine-configs/rendered-*.yaml; do cp $f A; done; cp A B")
	}}},
	{"docs/users/scripting.md", map[int]func(*testing.T, shell){1: func(t *testing.T, s shell) {
		name := filepath.Join(s.dir, "cluster/install-config.yaml")
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(name, bytes.Replace(raw, []byte("  flow:"), []byte("  flwo:"), 1), 0o600))
	}}},
}

func (s shell) must(t *testing.T, script string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.bin, "cp"), []byte("#!/bin/bash\nexec /bin/cp \"$@\"\n"), 0o755))
	_, stderr, code := s.run(t, "run", script)
	require.Zero(t, code, "%s: %s", script, stderr)
}

func installDirectories(t *testing.T, s shell) {
	t.Helper()
	s.must(t, `for d in cluster D EARLIER; do
		dayone sample --dir $d; dayone prepare --dir $d; dayone manifests --dir $d; done`)
}

func openshift(t *testing.T, s shell) {
	t.Helper()
	require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "cluster")))
	s.must(t, "dayone sample --dir cluster --flow openshift")
}

// The lines of dayone that need nothing but files run, and print what their page says.
func TestConsoleBlocksRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts dayone fifty times: left out with -short")
	}
	used, ran := map[string]bool{}, 0
	reason := func(line string) (why string) {
		for _, o := range outOfReach {
			if regexp.MustCompile(o.line).MatchString(strings.TrimPrefix(line, "sudo ")) {
				used[o.line], why = true, o.why
			}
		}
		return why
	}
	walked := map[string]bool{}
	for _, w := range walks {
		walked[w.page] = true
		s := newShell(t)
		blocks, err := codeblocks.Of(filepath.Join(root, w.page))
		require.NoError(t, err)
		blocks = slices.DeleteFunc(blocks, func(b codeblocks.Block) bool { return len(b.Commands()) == 0 })
		for i, b := range blocks {
			if before := w.before[i]; before != nil {
				before(t, s)
			}
			for _, line := range b.Commands() {
				if !ours(line) || reason(line) != "" {
					continue
				}
				ran++
				stdout, stderr, code := s.run(t, "run", line)
				shows(t, fmt.Sprintf("%s:%d: %s", w.page, b.Line, line), b.Output(), stdout, stderr, code)
			}
		}
	}
	for _, page := range pages(t) {
		blocks, err := codeblocks.Of(filepath.Join(root, page))
		require.NoError(t, err)
		for _, b := range blocks {
			for _, line := range b.Commands() {
				if ours(line) && !walked[page] && !strings.HasPrefix(line, "cp ") {
					assert.NotEmpty(t, reason(line), "%s:%d: no test runs %s", page, b.Line, line)
				}
			}
		}
	}
	assert.Greater(t, ran, 20)
	for _, o := range outOfReach {
		assert.True(t, used[o.line], "no line is like %s", o.line)
	}
}

// ours tells lines that dayone runs, and the copies that they read.
func ours(line string) bool {
	return strings.HasPrefix(strings.TrimPrefix(line, "sudo "), "dayone ") || strings.HasPrefix(line, "cp ")
}

// shows compares what a command printed with what the page shows below it; … stands for anything.
func shows(t *testing.T, line, want, stdout, stderr string, code int) {
	t.Helper()
	wanted := cli.ExitOK
	if m := regexp.MustCompile(`"exitCode": (\d)`).FindStringSubmatch(want); m != nil {
		wanted = int(m[1][0] - '0')
	}
	assert.Equal(t, wanted, code, "%s: %s", line, stderr)
	if want != "" {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*")
		assert.Regexp(t, "^"+pattern+"$", stdout, line)
	}
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
