package buildahengine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
)

// script is a program that stands for an OCI runtime.
func script(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "runtime")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o700))
	return file
}

func TestWorkingRuntimeIsChosen(t *testing.T) {
	buildtest.Need(t, true, "runc")
	b := newBench(t, buildahengine.Options{})
	result := b.build("FROM configs\nRUN echo one\n")
	assert.Equal(t, "oci (runc)", result.Isolation)
	assert.Equal(t, "runc runs containers on this host", result.IsolationReason)
	b.clean()
	b.noGroups()
	again := b.build("FROM configs\nRUN echo one\n")
	assert.Empty(t, again.Isolation, "nothing was run")
}

func TestChrootWithoutRuntime(t *testing.T) {
	for _, c := range []struct {
		name    string
		runtime string
		reason  []string
	}{
		{"none is installed", "no-such-runtime", []string{"no-such-runtime is not installed"}},
		{"it fails and says why", script(t, "echo first; echo cannot do it on a Sunday >&2; exit 1\n"),
			[]string{"does not work here", "cannot do it on a Sunday"}},
		{"it says nothing", "/bin/false", []string{"/bin/false does not work here", "exit status 1"}},
		{"it is no runtime", "/bin/true", []string{"/bin/true does not work here"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, buildahengine.Options{Runtime: c.runtime})
			result := b.build("FROM configs\nRUN echo one\n")
			assert.Equal(t, buildahengine.IsolationChroot, result.Isolation)
			for _, text := range c.reason {
				assert.Contains(t, result.IsolationReason, text)
			}
			b.clean()
			b.noGroups()
		})
	}
}

// TestDistributionRuntime uses crun as the distribution ships it: whether it works depends on its version,
// and the build succeeds with either outcome.
func TestDistributionRuntime(t *testing.T) {
	buildtest.Need(t, true, "crun")
	b := newBench(t, buildahengine.Options{Runtime: "crun"})
	result := b.build("FROM configs\nRUN echo one >/usr/lib/one\n")
	t.Logf("%s: %s", result.Isolation, result.IsolationReason)
	if result.Isolation == buildahengine.IsolationChroot {
		assert.Regexp(t, `^crun does not work here: .+`, result.IsolationReason)
	} else {
		assert.Equal(t, "oci (crun)", result.Isolation)
	}
	b.clean()
	b.noGroups()
}

func TestRequestedRuntimeFails(t *testing.T) {
	broken := script(t, "echo out of order >&2; exit 1\n")
	b := newBench(t, buildahengine.Options{Runtime: broken, Isolation: buildahengine.IsolationOCI})
	f := b.fails(b.request("FROM configs\nRUN true\n"))
	assert.Equal(t, build.ClassPolicy, f.Class, f.Error())
	assert.Contains(t, f.Message, "out of order")
	assert.Contains(t, f.Next, "install runc or crun")
	b.clean()
	b.open(buildahengine.Options{Runtime: broken})
	offline := b.request("FROM configs\nRUN true\n")
	offline.Options.Offline = true
	f = b.fails(offline)
	assert.Equal(t, build.ClassPolicy, f.Class, f.Error())
	assert.Contains(t, f.Message, "RUN without network")
	b.clean()
}

func TestRuntimeBreaksLater(t *testing.T) {
	buildtest.Need(t, true, "runc")
	broken := filepath.Join(t.TempDir(), "broken")
	b := newBench(t, buildahengine.Options{Runtime: script(t,
		`if test -e `+broken+`; then case "$*" in *create*) echo "lost its mind" >&2; exit 1;; esac; fi; exec runc "$@"`+"\n")})
	assert.Equal(t, "oci (runtime)", b.build("FROM configs\nRUN echo one\n").Isolation)
	require.NoError(t, os.WriteFile(broken, nil, 0o600))
	r := b.request("FROM configs\nRUN echo two\n")
	f := b.fails(r)
	assert.Equal(t, build.ClassInfrastructure, f.Class, "the instruction is not to blame: %s %v", f.Error(), f.Excerpt)
	assert.Contains(t, strings.Join(f.Excerpt, "\n"), "lost its mind")
	result, err := b.builder.Build(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, buildahengine.IsolationChroot, result.Isolation)
	assert.Contains(t, result.IsolationReason, "lost its mind")
	b.clean()

	b.open(buildahengine.Options{Isolation: buildahengine.IsolationOCI})
	f = b.fails(b.request("FROM configs\nRUN [\"/nosuchprogram\"]\n"))
	assert.Equal(t, build.ClassUser, f.Class, "a program that is not there is the Containerfile's: %v", f.Excerpt)
}

// TestControlGroupsV2 shows the builder a host that has only version 2. This kernel keeps the
// controllers in version 1, so limits cannot be seen here, only that builds and their clearing up go through.
func TestControlGroupsV2(t *testing.T) {
	buildtest.Need(t, true, "unshare", "runc")
	b := newBench(t, buildahengine.Options{})
	builder := b.builderProcess(b.request("FROM configs\nRUN cat /proc/self/cgroup\n"), buildahengine.IsolationAuto)
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c",
		`umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$0"`, builder.Path)
	cmd.Env = builder.Env
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "isolation oci (runc)")
	b.clean()
	b.noGroups()
}
