package buildahengine_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
)

func TestRunsInContainersOfARuntime(t *testing.T) {
	buildtest.Need(t, true, "runc")
	b := newBench(t, buildahengine.Options{Isolation: buildahengine.IsolationOCI})
	const text = "FROM configs\nRUN --mount=type=cache,target=/var/cache/x cat /etc/from-config >/usr/lib/read; echo " +
		"processes $(ls -d /proc/[0-9]* | grep -c .)\n"
	result, err := b.builder.Build(t.Context(), b.request(text))
	require.NoError(t, err)
	content, err := os.ReadFile(result.Log)
	require.NoError(t, err)
	assert.Regexp(t, `processes [1-4]\n`, string(content), "RUN has its own process namespace")
	f := b.fails(b.request("FROM configs\nRUN echo before; exit 9\n"))
	assert.Equal(t, build.ClassUser, f.Class, f.Error())
	assert.Equal(t, 9, f.ExitCode)
	assert.Contains(t, f.Excerpt, "before")
	b.clean()

	b.open(buildahengine.Options{})
	r := b.request(text)
	r.Options.Rebuild, r.Options.NoCache = true, true
	chroot, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, result.Digest, chroot.Digest, "isolation does not reach the image")
}

func TestOfflineRunSeesNoNetwork(t *testing.T) {
	buildtest.Need(t, true, "runc")
	b := newBench(t, buildahengine.Options{})
	r := b.request(
		"FROM configs\nRUN echo devices $(ls /sys/class/net; cat /proc/net/dev | grep : | grep -v lo: ); wget http://" +
			b.reg.Addr + "/v2/ || echo cut off >/usr/lib/offline; test -s /usr/lib/offline\n")
	r.Options.Offline = true
	result, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	content, err := os.ReadFile(result.Log)
	require.NoError(t, err)
	assert.Contains(t, string(content), "devices lo\n", "only the loopback device")
	b.clean()

	failing := b.request("FROM configs\nRUN wget http://" + b.reg.Addr + "/v2/\n")
	failing.Options.Offline, failing.Options.Attempts = true, 3
	f := b.fails(failing)
	assert.Equal(t, build.ClassUser, f.Class,
		"without network by request, an unreachable server is the Containerfile's fault: %s", f.Error())
	assert.Contains(t, f.Next, "offline")
}

func TestCancelledRuntimeContainer(t *testing.T) {
	buildtest.Need(t, true, "runc")
	b := newBench(t, buildahengine.Options{Isolation: buildahengine.IsolationOCI})
	b.killIsolated(b.request("FROM configs\nRUN echo started; sleep 300 & sleep 300\n"), "containerfile started",
		buildahengine.IsolationOCI)
	b.build("FROM configs\nRUN echo after\n")
	b.clean()
	b.noGroups()
}

func TestForkBombInRuntimeContainer(t *testing.T) {
	needPids(t)
	buildtest.Need(t, true, "runc")
	b := newBench(t, buildahengine.Options{MaxProcesses: 60, Isolation: buildahengine.IsolationOCI})
	f := b.fails(b.request(forkBomb))
	assert.NotContains(t, strings.Join(f.Excerpt, "\n"), "all started")
	b.clean()
	b.noGroups()
}

func TestMirrors(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	_, digest, _ := strings.Cut(b.base.Reference, "@")
	text := "FROM configs\nCOPY --from=quay.example.test/vendor/tools@" + digest + " /etc/stock.conf /usr/lib/mirrored\n"
	conf := filepath.Join(t.TempDir(), "registries.conf")
	require.NoError(t,
		os.WriteFile(conf,
			[]byte("[[registry]]\nlocation = \"quay.example.test/vendor/tools\"\n"+
				"mirror-by-digest-only = true\n[[registry.mirror]]\nlocation = \""+b.reg.Addr+"/os/base\"\n"), 0o600))
	r := b.request(text)
	r.Options.RegistriesConf = conf
	result, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	assert.Contains(t, b.tree(result.Reference).Entries, "/usr/lib/mirrored")
}

// TestAnOrdinaryUserBuilds runs the builder as nobody, who gets subordinate ids in a mount namespace of the test's own.
func TestAnOrdinaryUserBuilds(t *testing.T) {
	buildtest.Need(t, true, "newuidmap", "newgidmap", "unshare", "setpriv")
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755)) // nobody comes through
	}
	if out, err := asNobody(t, dir, "unshare", "-Ur", "true").CombinedOutput(); err != nil {
		t.Skipf("this kernel or container gives ordinary users no user namespace: %v: %s", err, out)
	}
	b := newBench(t, buildahengine.Options{})
	own := func(name string) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(p, 0o700))
		require.NoError(t, os.Chown(p, nobody, nobody))
		return p
	}
	give := func(name, from string) string {
		raw, err := os.ReadFile(from)
		require.NoError(t, err)
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, raw, 0o700))
		require.NoError(t, os.Chown(p, nobody, nobody))
		return p
	}
	r := b.request(
		"FROM configs\nRUN id -u; cat /etc/from-config; echo by a user >/usr/lib/user; chown 7:8 /usr/lib/user\n")
	r.Registry = build.Access{CAFile: give("ca.crt", b.reg.CAFile), AuthFile: give("auth.json", b.reg.PushAuthFile)}
	engine, state, program := own("engine"), own("state"), give("builder", "/proc/self/exe")
	builder := func(r build.Request) *exec.Cmd {
		raw, err := json.Marshal(order{Root: engine, State: state, Request: r})
		require.NoError(t, err)
		file := filepath.Join(dir, "order")
		require.NoError(t, os.WriteFile(file, raw, 0o644))
		cmd := asNobody(t, dir, program)
		cmd.Env = append(os.Environ(), builderOrder+"="+file, "HOME="+dir)
		cmd.Dir = dir
		return cmd
	}
	hanging := r
	hanging.Containerfile = "FROM configs\nRUN echo started; sleep 300 & sleep 300\n"
	killAtLine(t, builder(hanging), engine, "containerfile started")

	out, err := builder(r).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "finished", "also after a build that was killed")
	assert.Empty(t, processes(t, engine), "no process is left")
	runs, err := os.ReadDir(filepath.Join(engine, "runs"))
	require.NoError(t, err)
	assert.Empty(t, runs, "no run directory is left")

	root, err := b.builder.Build(t.Context(), b.request(r.Containerfile))
	require.NoError(t, err)
	assert.True(t, root.Reused, "the user's image is in the registry under its address")
	entry, _ := b.tree(root.Reference).Lookup("/usr/lib/user")
	assert.Equal(t, [2]int{7, 8}, [2]int{entry.UID, entry.GID}, "owners are those of the container, not the user's")
	r = b.request(r.Containerfile)
	r.Options.Rebuild, r.Options.NoCache = true, true
	again, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, root.Digest, again.Digest, "root and an ordinary user make the same image")
}

const nobody = 65534

// asNobody runs a program as nobody, who has subordinate ids there.
func asNobody(t *testing.T, dir string, program ...string) *exec.Cmd {
	t.Helper()
	ids := filepath.Join(dir, "subids")
	require.NoError(t, os.WriteFile(ids, []byte("nobody:200000:65536\n"), 0o644))
	script := `set -e
for f in /etc/subuid /etc/subgid; do mount --bind "$0" $f; done
exec setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"`
	return exec.CommandContext(t.Context(), "unshare", append([]string{"-m", "sh", "-c", script, ids}, program...)...)
}

// TestCancelledInRuntimeContainer ends the build's context while a container runs: the program goes on
// living.
func TestCancelledInRuntimeContainer(t *testing.T) {
	buildtest.Need(t, true, "runc")
	b := newBench(t, buildahengine.Options{Isolation: buildahengine.IsolationOCI})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	marker := b.root + "/marker" // in the arguments of what RUN starts, whose environment is the image's
	var seen bool
	b.on = func(e build.Event) {
		if e.Output && strings.Contains(e.Text, "started") {
			// Not at once: a process has no arguments while it turns into another program.
			seen = assert.Eventually(t, func() bool { return len(commands(t, marker)) > 0 }, time.Minute, 5*time.Millisecond)
			cancel()
		}
	}
	_, err := b.builder.Build(ctx,
		b.request("FROM configs\nRUN echo started; sh -c 'sleep 300; : "+marker+"' & sleep 300\n"))
	require.ErrorIs(t, err, context.Canceled)
	assert.True(t, seen, "the container's processes can be seen while they run")
	assert.Empty(t, commands(t, marker), "and none is left")
	b.clean()
	b.on = nil
	b.build("FROM configs\nRUN echo after\n")
	b.clean()
	b.noGroups()
	states, err := filepath.Glob(filepath.Join(b.root, "runs", "*", "runtime", "*"))
	require.NoError(t, err)
	assert.Empty(t, states, "the runtime knows of no container")
	host, err := exec.Command("runc", "list", "-q").CombinedOutput()
	require.NoError(t, err, string(host))
	assert.NotContains(t, string(host), "buildah", "nor does the host's")
}

// commands are the command lines of processes that hold a text.
func commands(t testing.TB, text string) []string {
	t.Helper()
	var out []string
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range files {
		if raw, err := os.ReadFile(file); err == nil && strings.Contains(string(raw), text) {
			out = append(out, strings.ReplaceAll(string(raw), "\x00", " "))
		}
	}
	return out
}
