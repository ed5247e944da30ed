package buildahengine_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/registrytest"
)

func TestAFailedRunIsExplained(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	f := b.fails(
		b.request(
			"# comment\nFROM configs\nRUN echo before\nRUN for i in $(seq 1 60); do echo line $i; done; \\\n    exit 7\n" +
				"RUN echo never\n"))
	assert.Equal(t, build.ClassUser, f.Class)
	assert.Equal(t, "containerfile", f.Step)
	assert.Equal(t, 4, f.Line)
	assert.Contains(t, f.Instruction, "exit 7")
	assert.Equal(t, 7, f.ExitCode)
	assert.Equal(t, 1, f.Attempts, "a user's fault is not tried again")
	require.GreaterOrEqual(t, len(f.Excerpt), 30)
	require.LessOrEqual(t, len(f.Excerpt), build.ExcerptLines)
	assert.Contains(t, strings.Join(f.Excerpt, "\n"), "line 60")
	assert.NotContains(t, strings.Join(f.Excerpt, "\n"), "before")
	assert.NotEmpty(t, f.Next)
	log, err := os.ReadFile(f.Log)
	require.NoError(t, err)
	assert.Contains(t, string(log), "line 1\n", "the log has all of it")
	info, err := os.Stat(f.Log)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	b.clean()
}

func TestFailuresOfContainerfiles(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	missing := b.reg.Addr + "/os/none@sha256:" + strings.Repeat("0", 64)
	for _, c := range []struct {
		name     string
		text     string
		class    build.Class
		line     int
		attempts int
	}{
		{"a program that is not there", "FROM configs\nRUN nosuchprogram\n", build.ClassUser, 2, 1},
		{"COPY of a file that is not there", "FROM base AS a\nFROM configs\nCOPY --from=a /none /usr/none\n", build.ClassUser,
			3, 1},
		{"an image that is not there", "FROM configs\nRUN true\nCOPY --from=" + missing + " /a /usr/a\n",
			build.ClassUser, 3, 1},
		{"a server that does not answer", "FROM configs\nRUN wget http://127.0.0.1:9/x\n", build.ClassTransient, 2, 2},
		{"a registry that does not answer", "FROM configs\nCOPY --from=127.0.0.1:9/a/b@sha256:" + strings.Repeat("0", 64) +
			" /a /usr/a\n", build.ClassTransient, 2, 2},
		{"a kernel without its initramfs", "FROM configs\nRUN mv /usr/lib/modules/6.1.0 /usr/lib/modules/6.2.0; rm " +
			"/usr/lib/modules/6.2.0/initramfs.img\n", build.ClassUser, 0, 1},
		{"two kernels", "FROM configs\nRUN cp -r /usr/lib/modules/6.1.0 /usr/lib/modules/6.2.0\n",
			build.ClassUser, 0, 1},
		{"the kernel is removed", "FROM configs\nRUN rm -r /usr/lib/modules/6.1.0\n", build.ClassUser, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := b.request(c.text)
			r.Options.Attempts = 2
			f := b.fails(r)
			assert.Equal(t, c.class, f.Class, "%s\n%s", f.Error(), strings.Join(f.Excerpt, "\n"))
			assert.Equal(t, c.line, f.Line, f.Error())
			assert.Equal(t, c.attempts, f.Attempts)
			assert.NotEmpty(t, f.Next)
		})
	}
	b.clean()
}

func TestTimeLimit(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	b.build("FROM configs\nRUN true\n") // the base is unpacked: what is timed next comes to its RUN soon
	r := b.request("FROM configs\nRUN echo start; sleep 300 & sleep 300\n")
	var f *build.Failure
	// a busy machine comes to its RUN later
	for r.Options.Timeout = 6 * time.Second; f == nil || !slices.Contains(f.Excerpt, "start"); r.Options.Timeout *= 2 {
		require.Less(t, r.Options.Timeout, 5*time.Minute, "%v", f)
		f = b.fails(r)
	}
	assert.Equal(t, build.ClassPolicy, f.Class, f.Error())
	assert.Equal(t, 2, f.Line)
	assert.Contains(t, f.Message, "timed out")
	b.clean()
}

func TestDiskLimit(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	r := b.request("FROM configs\nRUN dd if=/dev/zero of=/usr/lib/big bs=1M count=10240\n")
	r.Options.DiskLimit = 32 << 20
	f := b.fails(r)
	assert.Equal(t, build.ClassPolicy, f.Class, f.Error())
	assert.Contains(t, f.Message, "limit 32 MiB")
	assert.Equal(t, 2, f.Line)
	b.clean()
	var left int64
	require.NoError(t, filepath.Walk(b.root, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			left += info.Size()
		}
		return err
	}))
	assert.Less(t, left, int64(32<<20), "what it wrote is gone")
}

func TestDiskFull(t *testing.T) {
	buildtest.Need(t, true)
	small := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", small, "tmpfs", 0, "size=24m"))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(small, unix.MNT_DETACH)) })
	b := newBench(t, buildahengine.Options{Root: filepath.Join(small, "engine")})
	f := b.fails(b.request("FROM configs\nRUN dd if=/dev/zero of=/usr/lib/big bs=1M count=100\n"))
	assert.Equal(t, build.ClassInfrastructure, f.Class, f.Error())
	assert.Contains(t, f.Next, "free disk space")
	assert.Equal(t, 2, f.Line)
	b.build("FROM configs\nRUN echo small >/usr/lib/small\n")
}

// TestInodesUsedUp has a file system with room for files of any size, but not for many. The RUN waits after its
// message: what it has written goes away with it.
func TestInodesUsedUp(t *testing.T) {
	buildtest.Need(t, true)
	small := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", small, "tmpfs", 0, "size=1g,nr_inodes=4000"))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(small, unix.MNT_DETACH)) })
	b := newBench(t, buildahengine.Options{Root: filepath.Join(small, "engine")})
	f := b.fails(b.request("FROM configs\nRUN i=0; while echo >/usr/lib/$i; do i=$((i+1)); done; sleep 3; exit 1\n"))
	assert.Equal(t, build.ClassInfrastructure, f.Class, f.Error())
	assert.Contains(t, f.Next, "no inode left")
	assert.NotContains(t, f.Next, "free disk space")
	assert.Equal(t, 2, f.Line)
	b.build("FROM configs\nRUN echo small >/usr/lib/small\n")
}

func TestRegistryGoesAwayInThePush(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	through := newRelay(t, b.reg.Addr)
	auth := filepath.Join(t.TempDir(), "auth.json")
	registrytest.WriteAuthFile(t, auth, through.addr, b.reg.Push)
	r := b.request("FROM configs\nRUN echo x >/usr/lib/x\n")
	r.Registry.AuthFile = auth
	r.Target = strings.Replace(r.Target, b.reg.Addr, through.addr, 1)
	r.Base.Reference = strings.Replace(r.Base.Reference, b.reg.Addr, through.addr, 1)
	r.Options.Attempts = 1
	b.on = func(e build.Event) {
		if e.Phase == "push" && b.pushing() {
			through.cut()
		}
	}
	f := b.fails(r)
	assert.Equal(t, build.ClassTransient, f.Class, f.Error())
	assert.Equal(t, "push", f.Step)
	assert.Zero(t, f.Line, "the Containerfile is not to blame")
	b.on = nil
	through.listen()
	result, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, 1, result.CacheHits, "what was built is not built again")
	b.clean()
}

// relay passes connections on to a registry until it is cut.
type relay struct {
	t        *testing.T
	addr, to string
	mu       sync.Mutex
	listener net.Listener
	open     []net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	// it is listened on a second time
	r := &relay{t: t, to: to, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(t)))}
	r.listen()
	t.Cleanup(r.cut)
	return r
}

func (r *relay) listen() {
	listener, err := net.Listen("tcp", r.addr)
	require.NoError(r.t, err)
	r.listener, r.addr = listener, listener.Addr().String()
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return // cut
			}
			out, err := net.Dial("tcp", r.to)
			if err != nil {
				in.Close()
				continue
			}
			r.mu.Lock()
			r.open = append(r.open, in, out)
			r.mu.Unlock()
			go func() { _, _ = io.Copy(out, in); out.Close() }()
			go func() { _, _ = io.Copy(in, out); in.Close() }()
		}
	}()
}

// cut drops every connection and takes no more.
func (r *relay) cut() {
	r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		c.Close()
	}
	r.open = nil
}

// pushing tells whether the engine's own push has begun: the phase follows an instruction.
func (b *bench) pushing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if strings.HasPrefix(e.Text, "RUN ") {
			return true
		}
	}
	return false
}

// needPids skips where no build can be bounded: the controller is the kernel's and the container's matter.
func needPids(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/pids"); err != nil {
		if raw, err := os.ReadFile("/sys/fs/cgroup/cgroup.subtree_control"); err != nil ||
			!strings.Contains(string(raw), "pids") {
			t.Skip("this kernel or container gives no pids controller: the number of processes cannot be bounded here")
		}
	}
}

const forkBomb = "FROM configs\nRUN i=0; while [ $i -lt 300 ]; do sleep 100 & i=$((i+1)); done; echo all started\n"

func TestForkBombIsBounded(t *testing.T) {
	needPids(t)
	b := newBench(t, buildahengine.Options{MaxProcesses: 60})
	r := b.request(forkBomb)
	r.Options.Timeout = 20 * time.Second
	f := b.fails(r)
	assert.NotContains(t, strings.Join(f.Excerpt, "\n"), "all started")
	b.clean()
	b.noGroups()
}

func TestLogIsCutAtItsLimit(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	r := b.request("FROM configs\nRUN seq 1 20000; exit 3\n")
	r.Options.LogLimit = 4096
	f := b.fails(r)
	info, err := os.Stat(f.Log)
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(5000))
	assert.Contains(t, f.Excerpt, "20000", "the excerpt is the end all the same")
}

func TestOfflineNeedsARuntime(t *testing.T) {
	b := newBench(t, buildahengine.Options{Runtime: "no-such-runtime"})
	r := b.request("FROM configs\nRUN true\n")
	r.Options.Offline = true
	f := b.fails(r)
	assert.Equal(t, build.ClassPolicy, f.Class)
	assert.Contains(t, f.Message, "no-such-runtime")
}

func TestCheck(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	result := b.build(
		"FROM configs\nRUN echo changed >/etc/from-config; mkdir -p /var/lib/x; echo x >/var/lib/x/y; echo " +
			"svc:x:9:9::/:/bin/sh >>/etc/passwd; rm /etc/stock.conf; mkdir /etc/stock.conf\n")
	rules := map[string]string{}
	for _, w := range result.Warnings {
		rules[w.Rule] = w.Message
	}
	for rule, path := range map[string]string{"config-overridden": "/etc/from-config", "var-content": "/var/lib/x/y",
		"accounts": "/etc/passwd", "file-and-directory": "/etc/stock.conf"} {
		assert.Contains(t, rules[rule], path, rule)
	}
}
