package faultlab

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
)

// memory bounds the address space of each process, in the form of prlimit: a fault may make one grow without an end.
const memory = "--as=8589934592"

// runLimit bounds one run of the program; it is for a busy machine.
const runLimit = 5 * time.Minute

// lab has what all cases share: the programs, an install directory and what a run without a fault ends in.
type lab struct {
	program, base string
	// dir is the install directory as its user wrote it, prepared the same after dayone prepare.
	dir, prepared    string
	registry, config string
	// state is the state directory of a run without a fault; digest is the masters' image that it built.
	state, digest string
	// took is how long that run was.
	took time.Duration
}

func newLab(t *testing.T) *lab {
	t.Helper()
	phasetest.NeedsBuilds(t)
	base, err := baseimage.Ensure(t.Context(), baseimage.Tiny, "")
	require.NoError(t, err)
	bin := t.TempDir()
	for _, p := range []struct {
		name string
		cgo  bool
	}{{"dayone", true}, {"dayone-daemon", false}} {
		o := program.Options{Package: "dayone.dev/dayone/cmd/" + p.name, Cgo: p.cgo}
		require.NoError(t, program.Build(t.Context(), "../../..", o, filepath.Join(bin, p.name)))
	}
	registryPort, configPort := phasetest.FreePort(t), phasetest.FreePort(t)
	l := &lab{program: filepath.Join(bin, "dayone"), base: base,
		dir: filepath.Join(bin, "cluster"), prepared: filepath.Join(bin, "prepared"),
		registry: net.JoinHostPort(phasetest.HostAddress(t), strconv.Itoa(registryPort)),
		config:   net.JoinHostPort("127.0.0.1", strconv.Itoa(configPort)), state: filepath.Join(bin, "state")}
	require.NoError(t, assets.WriteSample(l.dir))
	file := filepath.Join(l.dir, installconfig.FileName)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	text := strings.Replace(string(raw), "host: 192.168.77.1\n    port: 5000",
		fmt.Sprintf("host: %s\n    port: %d", phasetest.HostAddress(t), registryPort), 1)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	for _, argv := range [][]string{{"cp", "-a", l.dir, l.prepared}, {l.program, "prepare", "--dir", l.prepared}} {
		out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
		require.NoError(t, err, "%s: %s", argv, out)
	}

	started := time.Now()
	end := l.start(t, l.state).serves()
	l.took = time.Since(started)
	require.True(t, end.served, "a run without a fault: %s", end.log)
	l.digest = digest(t, l.state)
	return l
}

// digest is that of the masters' image in a journal.
func digest(t *testing.T, state string) string {
	t.Helper()
	j, err := journal.Open(state)
	require.NoError(t, err)
	record := j.Find("build-master")
	require.NotNil(t, record)
	var built build.Result
	require.NoError(t, json.Unmarshal(record.Output, &built))
	return built.Digest
}

// readyLine is what the program says when it serves.
const readyLine = "ready: waiting for nodes"

// bootstrap is a run of the program on a state directory.
type bootstrap struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   readyLog
	ended chan struct{}
}

// readyLog keeps what a program says and closes ready when it serves.
type readyLog struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ready chan struct{}
}

func (l *readyLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := bytes.Contains(l.text.Bytes(), []byte(readyLine))
	l.text.Write(p)
	if !before && bytes.Contains(l.text.Bytes(), []byte(readyLine)) {
		close(l.ready)
	}
	return len(p), nil
}

// end is how a run ended: it served, or it refused with a log.
type end struct {
	served bool
	log    string
}

// start runs the program in a process group of its own. more are options that take the place of the lab's base image.
func (l *lab) start(t *testing.T, state string, more ...string) *bootstrap {
	t.Helper()
	if len(more) == 0 {
		more = []string{"--base", "oci:" + l.base}
	}
	b := &bootstrap{t: t, ended: make(chan struct{})}
	b.log.ready = make(chan struct{})
	b.cmd = exec.Command("prlimit", append([]string{memory, l.program, "bootstrap", "--dir", l.prepared,
		"--state-dir", state, "--registry-listen", l.registry, "--config-listen", l.config}, more...)...)
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	b.cmd.Stderr = &b.log
	require.NoError(t, b.cmd.Start())
	t.Cleanup(b.killGroup)
	go func() {
		_ = b.cmd.Wait() // how it ended is read from its state
		close(b.ended)
	}()
	return b
}

// serves waits until the program serves or ends, and stops it; look, where it is given, is called while it serves.
func (b *bootstrap) serves(look ...func()) end {
	b.t.Helper()
	select {
	case <-b.log.ready:
		for _, l := range look {
			l()
		}
		require.NoError(b.t, b.cmd.Process.Signal(syscall.SIGTERM))
	case <-b.ended:
	case <-time.After(runLimit):
		b.killGroup()
		b.t.Fatalf("the program neither serves nor ends within %s:\n%s", runLimit, b.log.text.String())
	}
	<-b.ended
	e := end{log: b.log.text.String(), served: b.cmd.ProcessState.Success()}
	for _, crash := range []string{"panic:", "goroutine ", "fatal error:", "SIGSEGV"} {
		assert.NotContains(b.t, e.log, crash, "the program crashed")
	}
	return e
}

// killGroup ends the program and what it has started.
func (b *bootstrap) killGroup() {
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	<-b.ended
}

// descendants are the processes below the program's, itself included.
func (b *bootstrap) descendants() []int {
	all := []int{b.cmd.Process.Pid}
	for i := 0; i < len(all); i++ {
		children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		if err != nil {
			continue
		}
		for _, file := range children {
			raw, _ := os.ReadFile(file) // a process that has ended has none
			for _, word := range strings.Fields(string(raw)) {
				if pid, err := strconv.Atoi(word); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// attempt is one case: a fault by the dice of a seed, on a state directory of its own.
type attempt struct {
	*lab
	t     *testing.T
	dice  *rand.Rand
	state string
}

// reaches runs the program without a fault: it must end in the image of a run that never had one.
func (a *attempt) reaches(more ...string) {
	a.t.Helper()
	e := a.start(a.t, a.state, more...).serves(a.pull)
	require.True(a.t, e.served, "the fault is gone, and the program refuses:\n%s", e.log)
	require.Equal(a.t, a.digest, digest(a.t, a.state))
}

// pull takes the masters' image from the registry as a node does: the digest of every byte is checked.
func (a *attempt) pull() {
	a.t.Helper()
	ca, err := os.ReadFile(filepath.Join(a.state, "identity/ca.crt"))
	require.NoError(a.t, err)
	roots := x509.NewCertPool()
	require.True(a.t, roots.AppendCertsFromPEM(ca))
	password, err := os.ReadFile(filepath.Join(a.state, "identity/dayone-node.password"))
	require.NoError(a.t, err)
	ref, err := name.NewDigest(a.registry + "/ocp/master-os@" + a.digest)
	require.NoError(a.t, err)
	image, err := remote.Image(ref, remote.WithContext(a.t.Context()),
		remote.WithTransport(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}),
		remote.WithAuth(&authn.Basic{Username: "dayone-node", Password: strings.TrimSpace(string(password))}))
	require.NoError(a.t, err)
	_, err = image.RawConfigFile()
	require.NoError(a.t, err)
	layers, err := image.Layers()
	require.NoError(a.t, err)
	for _, l := range layers {
		content, err := l.Compressed()
		require.NoError(a.t, err)
		_, err = io.Copy(io.Discard, content)
		require.NoError(a.t, errors.Join(err, content.Close()))
	}
}

// servesOrSays takes the end of a run with a fault: either the right image, or a refusal with one of these words.
func (a *attempt) servesOrSays(e end, words ...string) {
	a.t.Helper()
	if e.served {
		require.Equal(a.t, a.digest, digest(a.t, a.state), "it serves another image:\n%s", e.log)
		return
	}
	for _, w := range words {
		if strings.Contains(e.log, w) {
			return
		}
	}
	a.t.Fatalf("the refusal has none of the words %q:\n%s", words, e.log)
}

// copyState starts from the state directory of the run without a fault.
func (a *attempt) copyState() {
	a.t.Helper()
	out, err := exec.CommandContext(a.t.Context(), "cp", "-a", a.lab.state, a.state).CombinedOutput()
	require.NoError(a.t, err, string(out))
}

// memory mounts the state directory as a file system of its own with limits such as size=8m; grow lifts them.
func (a *attempt) memory(limits string) (grow func()) {
	a.t.Helper()
	require.NoError(a.t, os.Mkdir(a.state, 0o700))
	require.NoError(a.t, unix.Mount("tmpfs", a.state, "tmpfs", 0, limits+",mode=0700"))
	a.t.Cleanup(func() { assert.NoError(a.t, unix.Unmount(a.state, unix.MNT_DETACH)) })
	return func() {
		require.NoError(a.t, unix.Mount("", a.state, "", unix.MS_REMOUNT, "size=2g,nr_inodes=1000000,mode=0700"))
	}
}
