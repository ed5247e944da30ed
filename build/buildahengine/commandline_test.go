package buildahengine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
)

// peerText does what an administrator's Containerfile does: some files, some work, metadata. Each build has a number of
// its own, so that no cache of an earlier one serves it.
const peerText = `FROM configs
ENV ROLE=master
RUN mkdir -p /usr/share/agent && for i in $(seq 1 400); do echo $i >/usr/share/agent/$i; done
RUN dd if=/dev/urandom of=/usr/lib/agent bs=1M count=32 && echo build %d >/usr/lib/build
COPY --from=base /etc/stock.conf /etc/agent.conf
LABEL agent=%d
`

// commandLine is the buildah program with a storage of its own, set up as the engine is: same driver, same isolation,
// same time.
type commandLine struct {
	b                      *bench
	root, setup, isolation string
}

func newCommandLine(b *bench, isolation string) *commandLine {
	b.t.Helper()
	buildtest.Need(b.t, true, "buildah")
	c := &commandLine{b: b, root: b.t.TempDir(), setup: b.t.TempDir(), isolation: isolation}
	require.NoError(b.t, os.MkdirAll(filepath.Join(c.setup, "certs"), 0o700))
	ca, err := os.ReadFile(b.reg.CAFile)
	require.NoError(b.t, err)
	for name, text := range map[string]string{
		"certs/ca.crt": string(ca), "policy.json": `{"default":[{"type":"insecureAcceptAnything"}]}`,
		"registries.conf": "unqualified-search-registries = []\n",
		"containers.conf": "[engine]\n", "storage.conf": "[storage]\ndriver=\"overlay\"\n",
	} {
		require.NoError(b.t, os.WriteFile(filepath.Join(c.setup, name), []byte(text), 0o600))
	}
	return c
}

func (c *commandLine) run(arguments ...string) {
	c.b.t.Helper()
	global := []string{"--root", filepath.Join(c.root, "storage"), "--runroot", filepath.Join(c.root, "run"),
		"--storage-driver", c.b.engine.Driver()}
	cmd := exec.CommandContext(c.b.t.Context(), "buildah", slices.Concat(global, arguments)...)
	cmd.Env = append(os.Environ(), "HOME="+c.root, "CONTAINERS_CONF="+c.setup+"/containers.conf",
		"CONTAINERS_REGISTRIES_CONF="+c.setup+"/registries.conf", "CONTAINERS_STORAGE_CONF="+c.setup+"/storage.conf")
	out, err := cmd.CombinedOutput()
	if err != nil { // a build that fails leaves a container with its mount
		_ = exec.Command("buildah", slices.Concat(global, []string{"rm", "--all"})...).Run()
	}
	require.NoError(c.b.t, err, "buildah %v: %s", arguments, out)
}

// build builds and pushes, as a person or a script does.
func (c *commandLine) build(text, target string) {
	c.b.t.Helper()
	context := c.b.t.TempDir()
	file := filepath.Join(c.setup, "Containerfile")
	require.NoError(c.b.t, os.WriteFile(file, []byte(text), 0o600))
	registry := []string{"--authfile", c.b.reg.PushAuthFile, "--cert-dir", c.setup + "/certs", "--signature-policy",
		c.setup + "/policy.json"}
	limit := "1024:1024" // its own default is above what root without CAP_SYS_RESOURCE may set
	c.run(append(append([]string{"build"}, registry...), "--isolation", c.isolation, "--runtime", "runc", "--layers",
		"--timestamp", "1767323045", "--network", "host",
		"--ulimit", "nofile="+limit, "--build-context", "configs=docker://"+c.b.base.Reference, "--build-context",
		"base=docker://"+c.b.base.Reference, "-f", file, "-t", "localhost/peer", context)...)
	c.run(append(append([]string{"push"}, registry...), "localhost/peer", "docker://"+target)...)
}

// engineBuild is the same on the engine alone: what the builder does around it for every engine is not its overhead.
func (b *bench) engineBuild(text string) {
	b.t.Helper()
	r := b.request(text)
	_, err := b.engine.BuildContainer(b.t.Context(), build.ContainerJob{
		Address: "0123456789abcdef", Contexts: map[string]build.Image{"configs": b.base, "base": b.base}, Containerfile: text,
		Target:   r.Target,
		Platform: "linux/amd64", Created: 1767323045, Registry: r.Registry, Options: r.Options,
	})
	require.NoError(b.t, err)
}

// BenchmarkAgainstCommandLine builds and pushes the same Containerfile on the same base with the engine, the whole
// builder and the buildah program, in turn, and reports the medians of each in seconds.
func BenchmarkAgainstCommandLine(b *testing.B) {
	buildtest.Need(b, true, "buildah")
	w := newBench(b, buildahengine.Options{})
	w.base = buildtest.Push(b, w.reg, buildtest.Base{Layers: 10, LayerSize: 20 << 20, Repository: "os/medium"})
	isolation := buildahengine.IsolationOCI // what the engine chooses on a host that has a runtime
	if w.mustBuild(w.request("FROM configs\nRUN true\n")).Isolation == buildahengine.IsolationChroot {
		isolation = buildahengine.IsolationChroot
	}
	peer, number := newCommandLine(w, isolation), 0
	text := func() string { number++; return fmt.Sprintf(peerText, number, number) }
	sides := []struct {
		metric string
		build  func()
	}{
		{"engine-s", func() { w.engineBuild(text()) }},
		{"command-line-s", func() { peer.build(text(), fmt.Sprintf("%s/peer/os:%d", w.reg.Addr, number)) }},
		{"builder-s", func() { w.mustBuild(w.request(text())) }},
	}
	measure := func(b *testing.B, rounds int, before func()) {
		times := make([][]float64, len(sides))
		for b.Loop() {
			for range rounds {
				for i, side := range sides {
					before()
					began := time.Now()
					side.build()
					times[i] = append(times[i], time.Since(began).Seconds())
				}
			}
		}
		for i, side := range sides {
			slices.Sort(times[i])
			b.ReportMetric(times[i][len(times[i])/2], side.metric)
		}
	}
	w.mustBuild(w.request("")) // reads the base's file tree, once per base
	b.Run("cold", func(b *testing.B) {
		measure(b, 1, func() {
			w.root, peer.root = b.TempDir(), b.TempDir()
			w.open(buildahengine.Options{})
		})
	})
	w.root, peer.root = b.TempDir(), b.TempDir()
	w.open(buildahengine.Options{})
	for _, side := range sides {
		side.build()
	}
	b.Run("warm", func(b *testing.B) { measure(b, 3, func() {}) }) // short: one of three rounds may be disturbed
}
