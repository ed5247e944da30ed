package buildahengine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
)

const usual = `FROM configs
ARG WHO=nobody
RUN cat /etc/from-config && test -L /etc/systemd/system/multi-user.target.wants/mine.service && echo built by $WHO >/usr/lib/built
COPY <<EOF /etc/copied
inline
EOF
LABEL mine=1
`

func TestRunsTheContainerfileOnTheConfig(t *testing.T) {
	for _, driver := range []string{"overlay", "vfs"} {
		t.Run(driver, func(t *testing.T) {
			b := newBench(t, buildahengine.Options{Driver: driver})
			r := b.request(usual)
			r.Options.BuildArgs = map[string]string{"WHO": "tests"}
			result, err := b.builder.Build(t.Context(), r)
			require.NoError(t, err)
			assert.Equal(t, build.EngineBuildah, result.Engine)
			assert.Contains(t, result.Reason, "ARG")
			tree := b.tree(result.Reference)
			text, _ := tree.Content("/etc/copied")
			assert.Equal(t, "inline\n", string(text))
			assert.Contains(t, tree.Entries, "/usr/lib/built")
			assert.Equal(t, "1", result.Labels["mine"])
			assert.Equal(t, result.Inputs.ConfigHash, result.Labels[build.LabelConfigHash])
			assert.Equal(t, "true", result.Labels["ostree.bootable"])
			assert.NotContains(t, result.Labels, "io.buildah.version")
			from := map[string]int{}
			for _, l := range result.Layers {
				from[l.From]++
			}
			assert.Equal(t, 1, from["base"])
			assert.Equal(t, 1, from["config"])
			var steps []string
			for _, s := range result.Steps {
				if s.Line > 0 {
					steps = append(steps, fmt.Sprintf("%d %.4s", s.Line, s.Name))
				}
			}
			assert.Equal(t, []string{"1 FROM", "2 ARG ", "3 RUN ", "4 COPY", "7 LABE"}, steps)
			again, err := b.builder.Build(t.Context(), r)
			require.NoError(t, err)
			assert.True(t, again.Reused)
			assert.Equal(t, build.EngineBuildah, again.Engine)
			assert.Equal(t, result.Layers, again.Layers, "a reused image says where its layers come from")
			log, err := os.ReadFile(result.Log)
			require.NoError(t, err)
			assert.Contains(t, string(log), "config\n", "the log has the output of RUN")
			last := build.Event{}
			for _, e := range b.events {
				if e.Bytes > 0 {
					last = e
				}
			}
			assert.Equal(t, "push", last.Phase)
			assert.Equal(t, last.Total, last.Bytes, "progress counts bytes to the end")
			b.clean()
		})
	}
}

const manyMounts = `FROM base AS unused
RUN false
FROM base AS tools
RUN echo tool >/usr/tool && test ! -e /etc/from-config
FROM configs
RUN --mount=type=secret,id=token cat /run/secrets/token
RUN --mount=type=cache,target=/var/cache/mine echo kept >/var/cache/mine/file
RUN --mount=type=bind,from=tools,target=/mnt cat /mnt/usr/tool >/usr/lib/bound
COPY --from=tools /usr/tool /usr/lib/tool
COPY --from=base /etc/stock.conf /usr/lib/stock.conf
RUN <<EOF
cat /etc/yum.repos.d/x.repo >/usr/lib/repo
EOF
`

func TestStagesMountsAndHeredocs(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte("s3cr3t-canary\n"), 0o600))
	repos := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(repos, "x.repo"), []byte("[x]\n"), 0o644))
	r := b.request(manyMounts)
	r.Options.Secrets = []build.Secret{{ID: "token", File: secret}}
	r.Options.Mounts = []build.Mount{{Source: repos, Target: "/etc/yum.repos.d"}}
	result, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	tree := b.tree(result.Reference)
	for _, p := range []string{"/usr/lib/bound", "/usr/lib/tool", "/usr/lib/stock.conf", "/usr/lib/repo"} {
		assert.Contains(t, tree.Entries, p)
	}
	for _, p := range []string{"/run/secrets/token", "/var/cache/mine/file", "/etc/yum.repos.d/x.repo", "/mnt/usr"} {
		assert.NotContains(t, tree.Entries, p, "mounts leave nothing in a layer")
	}
	log, err := os.ReadFile(result.Log)
	require.NoError(t, err)
	assert.NotContains(t, string(log), "s3cr3t-canary", "a secret that RUN prints is not in the log")
	assert.Contains(t, string(log), "*****")
	for _, e := range b.events {
		assert.NotContains(t, e.Text, "s3cr3t-canary")
	}
	raw, err := json.Marshal(result)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "s3cr3t-canary")
}

func TestLayerCache(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	const text = "FROM configs\nRUN echo one >/usr/lib/one\nRUN echo %s >/usr/lib/two\n"
	first := b.build(fmt.Sprintf(text, "two"))
	assert.Zero(t, first.CacheHits)
	second := b.build(fmt.Sprintf(text, "three"))
	assert.Equal(t, 1, second.CacheHits)
	var cached []string
	for _, s := range second.Steps {
		if s.Cached {
			cached = append(cached, s.Name)
		}
	}
	assert.Equal(t, []string{"RUN echo one >/usr/lib/one"}, cached)
	assert.Equal(t, first.Layers[:3], second.Layers[:3], "a cached layer has the same blob")
}

func TestSameRequestSameDigest(t *testing.T) {
	const text = "FROM base AS b\nRUN echo x >/usr/lib/x\nFROM configs\n" +
		"RUN mkdir -p /usr/share/many && for i in 1 2 3; do echo $i >/usr/share/many/$i; done; rm /etc/stock.conf\n" +
		"COPY --from=b /usr/lib/x /usr/lib/x\nENV A=1\n"
	digests := map[string]bool{}
	for _, driver := range []string{"overlay", "vfs"} {
		b := newBench(t, buildahengine.Options{Driver: driver}) // another registry on another port, another root
		digests[b.build(text).Digest] = true
		if driver == "vfs" {
			continue
		}
		r := b.request(text)
		r.Options.Rebuild, r.Options.NoCache = true, true
		again, err := b.builder.Build(t.Context(), r)
		require.NoError(t, err)
		digests[again.Digest] = true
	}
	assert.Len(t, digests, 1, "two roots, two registries, two drivers, with and without cache")
}

const inlineOnly = `FROM configs
ENV MODE=day1
LABEL team="edge $MODE"
COPY <<EOF /etc/inline.conf
mode=$MODE
EOF
COPY --chmod=0750 --chown=3:4 <<'EOF' <<B /usr/lib/new/
$1
EOF
b
B
COPY --chown=7 <<C /usr/lib/deep/er/than/base
c
C
`

func TestBothEnginesMakeTheSameFiles(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	r := b.request(inlineOnly)
	appended, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, build.EngineAppend, appended.Engine)
	r.Options.Engine = build.EngineBuildah
	run, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, build.EngineBuildah, run.Engine)
	assert.Equal(t, b.tree(appended.Reference), b.tree(run.Reference))
	delete(appended.Labels, build.LabelAddress)
	delete(run.Labels, build.LabelAddress)
	assert.Equal(t, appended.Labels, run.Labels)
}

func TestDockerBaseStaysDocker(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	b.base = buildtest.Push(t, b.reg, buildtest.Base{Docker: true, Repository: "os/docker"})
	result := b.build("FROM configs\nRUN echo x >/usr/lib/x\n")
	assert.Equal(t, "application/vnd.docker.distribution.manifest.v2+json", result.MediaType)
}

func TestTwoPoolsBuildAtOnce(t *testing.T) {
	b := newBench(t, buildahengine.Options{Parallel: 2})
	var wait sync.WaitGroup
	for _, pool := range []string{"master", "worker"} {
		wait.Go(func() {
			r := b.request("FROM configs\nRUN echo " + pool + " >/usr/lib/pool\n")
			r.Pool = pool
			_, err := b.builder.Build(t.Context(), r)
			assert.NoError(t, err)
		})
	}
	wait.Wait()
	b.clean()
}

func TestEqualRequestsBuildOnce(t *testing.T) {
	b := newBench(t, buildahengine.Options{Parallel: 2})
	r := b.request("FROM configs\nRUN echo once >/usr/lib/once\n")
	results := make([]*build.Result, 2)
	var wait sync.WaitGroup
	for i := range results {
		wait.Go(func() {
			var err error
			results[i], err = b.builder.Build(t.Context(), r)
			assert.NoError(t, err)
		})
	}
	wait.Wait()
	require.NotNil(t, results[0])
	require.NotNil(t, results[1])
	assert.Equal(t, results[0].Digest, results[1].Digest)
	assert.NotEqual(t, results[0].Reused, results[1].Reused, "one builds, the other gets its image")
	b.clean()
}

func TestCancelledBuildLeavesNothing(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.on = func(e build.Event) {
		if e.Output && strings.Contains(e.Text, "started") {
			cancel()
		}
	}
	_, err := b.builder.Build(ctx, b.request("FROM configs\nRUN echo started; sleep 300 & sleep 300\n"))
	f := build.AsFailure(err)
	require.NotNil(t, f)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 2, f.Line)
	b.clean()
	b.on = nil
	b.build("FROM configs\nRUN echo after\n")
}

func TestCompare(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	r := b.request("FROM configs\nRUN echo same >/usr/lib/same; cat /proc/sys/kernel/random/uuid >/usr/lib/now\n")
	first, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	r.Options.Rebuild, r.Options.NoCache = true, true
	second, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	require.NotEqual(t, first.Digest, second.Digest)
	differences, err := build.Compare(t.Context(), r.Registry, "linux/amd64", first.Reference, second.Reference)
	require.NoError(t, err)
	require.Len(t, differences, 1, "%+v", differences)
	assert.Equal(t, "/usr/lib/now", differences[0].Path)
	assert.Equal(t, "content", differences[0].What)
	assert.Contains(t, differences[0].CreatedBy, "random/uuid")
	none, err := build.Compare(t.Context(), r.Registry, "linux/amd64", first.Reference, first.Reference)
	require.NoError(t, err)
	assert.Empty(t, none)
}
