package standalone_test

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/bootstrap/gather/analyze"
	"dayone.dev/dayone/bootstrap/gather/bundle"
	"dayone.dev/dayone/registry/registrytest"
)

// verdict gathers the bench's host and analyses the bundle.
func (b *bench) verdict() *analyze.Report {
	b.t.Helper()
	var out bytes.Buffer
	require.NoError(b.t, gather.Host(b.t.Context(), gather.Options{StateDir: b.order.State, InstallDir: b.order.Dir,
		NoCommands: true}, &out))
	made, err := bundle.Read(&out)
	require.NoError(b.t, err)
	return analyze.Bundle(made)
}

// breakBuild makes the master's Containerfile fail.
func (b *bench) breakBuild() {
	b.t.Helper()
	file := filepath.Join(b.order.Dir, "layering/master.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(b.t, err)
	broken := bytes.Replace(raw, []byte("RUN GREETING"), []byte("RUN echo cannot-find-the-thing && exit 7 && GREETING"), 1)
	require.NotEqual(b.t, raw, broken)
	require.NoError(b.t, os.WriteFile(file, broken, 0o600))
}

// TestAnalyzeFailures runs the real bootstrap into every failure that the standalone pipeline can
// have, gathers a bundle and reads the verdict from the bundle alone.
func TestAnalyzeFailures(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(b *bench)
		// killPhase and killAt are the event at which the process is killed.
		killPhase, killAt string
		status            analyze.Status
		phase, cause      string
		evidence, next    string
	}{
		{name: "wrong credentials for the base image",
			harm: func(b *bench) {
				reg := registrytest.Start(b.t)
				b.order.Source, b.order.CA = reg.Addr+"/ocp/base-os:1", reg.CAFile
				b.order.Auth = filepath.Join(b.t.TempDir(), "auth.json")
				require.NoError(b.t, os.WriteFile(b.order.Auth,
					[]byte(`{"auths":{"`+reg.Addr+`":{"auth":"bm9ib2R5Om5vdGhpbmc="}}}`), 0o600))
			},
			status: analyze.StatusFailed, phase: "start", cause: "registry-credentials", evidence: "base-os",
			next: "--check-registry"},
		{name: "the base image's registry is gone",
			harm: func(b *bench) {
				reg := registrytest.Start(b.t)
				b.order.Source, b.order.CA, b.order.Auth = reg.Addr+"/ocp/base-os:1", reg.CAFile, reg.PullAuthFile
				reg.Stop(b.t)
			},
			status: analyze.StatusFailed, phase: "start", cause: "registry-unreachable", evidence: "refused",
			next: "check that the registry runs"},
		{name: "the base image's registry is not trusted",
			harm: func(b *bench) {
				reg := registrytest.Start(b.t)
				b.order.Source, b.order.Auth = reg.Addr+"/ocp/base-os:1", reg.PullAuthFile
			},
			status: analyze.StatusFailed, phase: "start", cause: "registry-certificate", evidence: "x509", next: "--base-ca"},
		{name: "there is no such base image",
			harm: func(b *bench) {
				reg := registrytest.Start(b.t)
				b.order.Source, b.order.CA, b.order.Auth = reg.Addr+"/ocp/base-os:1", reg.CAFile, reg.PullAuthFile
			},
			status: analyze.StatusFailed, phase: "start", cause: "base-image", evidence: "base-os",
			next: "name an OS image that exists"},
		{name: "the registry's port is taken",
			harm: func(b *bench) {
				taken, err := net.Listen("tcp", b.order.Registry)
				require.NoError(b.t, err)
				b.t.Cleanup(func() { _ = taken.Close() })
			},
			status: analyze.StatusRefused, phase: "start", cause: "port-taken", evidence: "cannot listen on", next: "another"},
		{name: "the disk is full",
			harm: func(b *bench) {
				require.NoError(b.t, os.MkdirAll(b.order.State, 0o700))
				require.NoError(b.t, unix.Mount("tmpfs", b.order.State, "tmpfs", 0, "size=768k,mode=0700"))
				b.t.Cleanup(func() { assert.NoError(b.t, unix.Unmount(b.order.State, unix.MNT_DETACH)) })
			},
			status: analyze.StatusFailed, phase: "base", cause: "disk-full", evidence: "Insufficient Storage", next: "room"},
		{name: "a command of the Containerfile fails",
			harm:   func(b *bench) { b.breakBuild() },
			status: analyze.StatusFailed, phase: "build-master", cause: "containerfile", evidence: "cannot-find-the-thing",
			next: "correct line 7 of the Containerfile of pool master"},
		{name: "the input is wrong",
			harm: func(b *bench) {
				require.NoError(b.t, os.Remove(filepath.Join(b.order.Dir, "layering/worker.yaml")))
			},
			status: analyze.StatusRefused, phase: "start", cause: "refused-input", evidence: "has no MachineOSConfig",
			next: "put a MachineOSConfig"},
		{name: "killed in the middle of a build",
			killPhase: "build-master", killAt: "instruction",
			status: analyze.StatusCutOff, phase: "build-master", cause: "killed", evidence: "no process is",
			next: "run dayone bootstrap again"},
		{name: "nothing is wrong", status: analyze.StatusStopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			if c.harm != nil {
				c.harm(b)
			}
			_, output, err := b.run(c.killPhase, c.killAt)
			if c.cause != "" {
				require.Error(t, err)
			} else {
				require.NoError(t, err, output)
			}
			r := b.verdict()
			var text strings.Builder
			require.NoError(t, r.WriteText(&text))
			assert.Equal(t, c.status, r.Verdict.Status, text.String())
			assert.Equal(t, c.phase, r.Verdict.Phase, text.String())
			assert.Equal(t, c.cause, r.Verdict.Cause, text.String())
			assert.Contains(t, r.Verdict.Evidence.Text, c.evidence, text.String())
			assert.Contains(t, r.Verdict.Next, c.next, text.String())
			if c.cause != "" {
				assert.NotEmpty(t, r.Verdict.Next)
				assert.Positive(t, r.Verdict.Evidence.Line)
				return
			}
			require.Len(t, r.Builds, 1)
			assert.NotEmpty(t, r.Builds[0].Steps)
			assert.NotEmpty(t, r.Differences, "the final rendering names the image")
		})
	}
}
