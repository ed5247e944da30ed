package pages

import (
	"bytes"
	"context"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/kube"
	"dayone.dev/dayone/hack/program"
)

const (
	// waitLimit is for a machine that is very busy.
	waitLimit = 3 * time.Minute
	waitEvery = 50 * time.Millisecond
	// lineLimit is how long a line may take.
	lineLimit = 5 * time.Minute
)

// addresses are those of the pages.
var addresses = []string{"192.0.2.1", "192.0.2.9", "192.0.2.2", bootstrapHost, registryAddress, cloudAddress,
	"192.168.77.1"}

const (
	// bootstrapHost is the pages' machine on which dayone bootstrap runs: this one.
	bootstrapHost = "192.0.2.10"
	// registryAddress is that of registry.example.com.
	registryAddress = "192.0.2.20"
	// cloudAddress is that of the played EC2.
	cloudAddress = "192.0.2.30"
	// registryName is the user's registry in the pages.
	registryName = "registry.example.com"
	// planeRegistry is the address of the control plane's own registries in the pages.
	planeRegistry = "api-int.lab.example.com"
)

// world is a machine with all that the pages name: the bootstrap host, the administrator's machine and a registry are
// one. What is not dayone's and cannot be here is played by a script, see playedPrograms.
type world struct {
	*testing.T
	// whole is the test that the machine is for; T is its part that runs.
	whole *testing.T
	// dir is where lines run, bin has the programs, home is the user's.
	dir, bin, home string
	// path is where programs are looked for.
	path string
	// environment is what the user's shell has beside what each has; exports are the lines with which the pages of the
	// chapter set more.
	environment, exports []string
	// at is the act that runs, for messages.
	at string
	// bootstrap is the one that runs.
	bootstrap *server
	// registry is dayone registry serve, as long as it is needed.
	registry *server
	plane    *plane
	// layouts are those of base images.
	layouts map[baseimage.Kind]string
	// digests are those of images of registry.example.com, by repository and tag.
	digests map[string]string
}

// programs are dayone's own.
var programs = []program.Options{
	{Package: "dayone.dev/dayone/cmd/dayone", Cgo: true},
	{Package: "dayone.dev/dayone/cmd/dayone-daemon"},
	{Package: "dayone.dev/dayone/cmd/dayone-registry"},
	{Package: "dayone.dev/dayone/cmd/dayone-controller"},
	{Package: "dayone.dev/dayone/cmd/machine-os-builder"},
}

// playedPrograms stand for what is not here. The bootstrap host is this machine, and who types is root.
var playedPrograms = []struct{ name, script string }{
	{"sudo", `exec "$@"`},
	{"ssh", `shift; exec sh -c "$*"`},
	{"oc", `exec kubectl "$@"`},
	{"rsync", `exec cp -a "${@: -2:1}" "${@: -1}"`},
	{"machine-config-osimagestream", `[ "$1 $2" = "get osimagestream" ] && test -s "${@: -1}"`},
	{"kubectl-dayone", `exec -a kubectl-dayone dayone "$@"`},
	{"openshift-install", installer},
	{"coreos-installer", coreosInstaller},
	{"reboot", `touch "$HOME/rebooted"`},
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, whole: t, dir: t.TempDir(), bin: t.TempDir(), home: t.TempDir(),
		digests: map[string]string{}}
	for _, p := range programs {
		require.NoError(t, program.Build(t.Context(), "", p, filepath.Join(w.bin, filepath.Base(p.Package))))
	}
	kubernetes, err := kube.Assets(t.Context(), nil)
	require.NoError(t, err)
	w.path = "/usr/local/bin:" + kubernetes + ":/usr/bin:/bin:/usr/sbin:/sbin"
	for _, p := range playedPrograms {
		require.NoError(t, os.WriteFile(filepath.Join(w.bin, p.name), []byte("#!/bin/bash\n"+p.script+"\n"), 0o755))
	}
	w.layouts = map[baseimage.Kind]string{} // made from packages of this machine, which are about to be hidden
	for _, kind := range []baseimage.Kind{baseimage.Shell, baseimage.Tiny} {
		w.layouts[kind], err = baseimage.Ensure(t.Context(), kind, "")
		require.NoError(t, err)
	}
	w.must("ip link set lo up")
	for _, a := range addresses {
		w.must("ip address add " + a + "/32 dev lo")
	}
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	var kept []string
	for _, dir := range []string{"/var/lib/dpkg", "/var/lib/usbutils"} { // what this machine's packages have there
		kept = append(kept, dir, t.TempDir())
		w.over(dir, kept[len(kept)-1])
	}
	for _, dir := range []string{"/opt", "/run", "/srv", "/var/lib", "/etc/systemd/system"} {
		require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""), dir)
	}
	for i := 0; i < len(kept); i += 2 {
		require.NoError(t, os.Mkdir(kept[i], 0o755))
		require.NoError(t, unix.Mount(kept[i+1], kept[i], "", unix.MS_MOVE, ""))
	}
	w.over(w.bin, "/usr/local/bin")
	for _, dir := range []string{"/var/lib/dayone", "/var/lib/registry", "/var/lib/cache"} { // on a disk: images are built
		require.NoError(t, os.MkdirAll(dir, 0o755))
		w.over(t.TempDir(), dir)
	}
	require.NoError(t, os.Mkdir("/run/dayone", 0o755))
	hosts := filepath.Join(w.home, "hosts")
	w.write(hosts, "127.0.0.1 localhost ADDR\n"+registryAddress+" "+registryName+"\n"+bootstrapHost+" HOST "+
		planeRegistry+"\n"+cloudAddress+" "+cloudName+"\n")
	w.over(hosts, "/etc/hosts")
	return w
}

// over mounts what there is over a file or directory of the machine.
func (w *world) over(what, at string) {
	w.Helper()
	require.NoError(w, unix.Mount(what, at, "", unix.MS_BIND, ""), at)
}

// write makes a file, with the directories above it. A relative name is in the directory where lines run.
func (w *world) write(name, text string) {
	w.Helper()
	name = w.file(name)
	require.NoError(w, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(w, os.WriteFile(name, []byte(text), 0o600))
}

func (w *world) file(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(w.dir, name)
}

func (w *world) read(name string) string {
	w.Helper()
	raw, err := os.ReadFile(w.file(name))
	require.NoError(w, err)
	return string(raw)
}

// change replaces a text in a file that has it.
func (w *world) change(name, from, to string) {
	w.Helper()
	text := w.read(name)
	require.Contains(w, text, from, name)
	w.write(name, strings.ReplaceAll(text, from, to))
}

// glob is the one file that there is.
func (w *world) glob(pattern string) string {
	w.Helper()
	found, err := filepath.Glob(w.file(pattern))
	require.NoError(w, err)
	require.Len(w, found, 1, pattern)
	return found[0]
}

// command is a line of a shell.
func (w *world) command(line string) *exec.Cmd {
	cmd := exec.Command("/bin/bash", "-euo", "pipefail", "-c", strings.Join(append(w.exports, line), "\n"))
	cmd.Dir = w.dir
	cmd.Env = append([]string{"PATH=" + w.path, "HOME=" + w.home, "TMPDIR=" + os.TempDir(),
		"SSL_CERT_FILE=" + filepath.Join(w.home, "trusted.pem")}, w.environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the machine's end is theirs
	return cmd
}

// sh runs a line to its end.
func (w *world) sh(line string) (stdout, stderr string, code int) {
	w.Helper()
	cmd := w.command(line)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(w, cmd.Start(), line)
	timer := time.AfterFunc(lineLimit, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err := cmd.Wait()
	timer.Stop()
	if err != nil {
		require.IsType(w, &exec.ExitError{}, err, line)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs a line that has to succeed, and gives its output.
func (w *world) must(line string) string {
	w.Helper()
	out, errs, code := w.sh(line)
	require.Zero(w, code, "%s: %s: %s%s", w.at, line, out, errs)
	return strings.TrimSpace(out)
}

// server is a line that goes on until it is told to end.
type server struct {
	w    *world
	line string
	cmd  *exec.Cmd
	out  string
	done chan struct{}
	// began is before the program did anything.
	began time.Time
}

// start runs a line that does not end.
func (w *world) start(line string) *server {
	w.Helper()
	out, err := os.CreateTemp(w.home, "server")
	require.NoError(w, err)
	defer out.Close()
	s := &server{w: w, line: line, cmd: w.command("exec " + line), out: out.Name(), done: make(chan struct{}),
		began: time.Now()}
	s.cmd.Stdout, s.cmd.Stderr = out, out
	require.NoError(w, s.cmd.Start(), line)
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	w.whole.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
	})
	w.Cleanup(func() {
		if w.Failed() { // the next chapter wants its addresses
			_ = s.cmd.Process.Kill()
			<-s.done
		}
	})
	return s
}

// says waits until the server has printed what matches.
func (s *server) says(pattern string) string {
	s.w.Helper()
	var found string
	s.until(func() bool {
		found = regexp.MustCompile(pattern).FindString(s.printed())
		return found != ""
	}, pattern)
	return found
}

// until waits for a condition while the server runs.
func (s *server) until(is func() bool, what string) {
	s.w.Helper()
	for deadline := time.Now().Add(waitLimit); !is(); time.Sleep(waitEvery) {
		select {
		case <-s.done:
			require.Fail(s.w, "it has ended", "%s: %s: %s", s.w.at, s.line, s.printed())
		default:
		}
		require.True(s.w, time.Now().Before(deadline), "%s: %s: %s: %s", s.w.at, s.line, what, s.printed())
	}
}

func (s *server) printed() string {
	raw, err := os.ReadFile(s.out)
	require.NoError(s.w, err)
	return string(raw)
}

// ends tells the server to end and looks at its exit code.
func (s *server) ends(code int) {
	s.w.Helper()
	require.NoError(s.w, s.cmd.Process.Signal(syscall.SIGTERM), s.line)
	s.ended(code)
}

// ended waits for the end.
func (s *server) ended(code int) {
	s.w.Helper()
	ctx, cancel := context.WithTimeout(s.w.Context(), waitLimit)
	defer cancel()
	select {
	case <-s.done:
	case <-ctx.Done():
		require.Fail(s.w, "it does not end", "%s: %s: %s", s.w.at, s.line, s.printed())
	}
	assert.Equal(s.w, code, s.cmd.ProcessState.ExitCode(), "%s: %s: %s", s.w.at, s.line, s.printed())
}

// trust makes the machine trust an authority, as its own CA bundle would.
func (w *world) trust(pem string) {
	w.Helper()
	require.True(w, x509.NewCertPool().AppendCertsFromPEM([]byte(pem)))
	w.write(filepath.Join(w.home, "trusted.pem"), pem)
}
