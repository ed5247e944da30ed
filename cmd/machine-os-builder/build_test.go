package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/buildlog"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

func client(t *testing.T, reg *registrytest.Registry) *appendengine.Client {
	t.Helper()
	c, err := appendengine.NewClient(appendengine.Access{CAFile: reg.CAFile, AuthFile: reg.PullAuthFile})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// files reads the image's tree.
func files(t *testing.T, reg *registrytest.Registry, reference string) *basetree.Tree {
	t.Helper()
	image, err := client(t, reg).Read(t.Context(), reference, "linux/amd64")
	require.NoError(t, err)
	layers, err := image.Layers(0)
	require.NoError(t, err)
	tree, err := basetree.Read(t.Context(), layers)
	require.NoError(t, err)
	return tree
}

const everything = `FROM configs
RUN echo canary-in-output && cat /etc/from-config && cat /proc/self/uid_map && grep -e CapBnd -e NoNewPrivs /proc/self/status
RUN mkdir -p /usr/lib/mine && echo hello >/usr/lib/mine/file && chown -R 33:33 /usr/lib/mine && chmod 4755 /usr/lib/mine/file
RUN test -s /etc/pki/entitlement/key.pem && cp /etc/pki/entitlement/key.pem /usr/lib/entitled && test ! -e /etc/yum.repos.d
`

func TestLeastPrivilege(t *testing.T) {
	reg := registrytest.Start(t)
	in := podInput(t, reg, everything)
	in.Mounts = job.EntitlementMounts("worker")
	objects, err := job.New(in)
	require.NoError(t, err)
	p := newPod(t, reg, in)
	p.objects.Secrets = append(objects.Secrets, secretOf("etc-pki-entitlement-worker",
		map[string]string{"key.pem": "entitlement\n"}))
	require.NoError(t, os.RemoveAll(p.path("build")))
	p.mountAll()
	result, code := p.run()
	require.Zero(t, code, p.out.String())
	require.NotEmpty(t, result.Digest)
	assert.Equal(t, build.EngineBuildah, result.Engine)

	log := p.out.String()
	assert.Regexp(t, `\b0 +1000000 +65536\b`, log, "root in RUN is no user of the node")
	assert.Regexp(t, `NoNewPrivs:\s+1`, log)
	tree := files(t, reg, in.Request.Target+"@"+result.Digest)
	file, ok := tree.Lookup("/usr/lib/mine/file")
	require.True(t, ok)
	assert.Equal(t, []any{33, 33, uint32(0o4755)}, []any{int(file.UID), int(file.GID), uint32(file.Mode)},
		"owners and modes are those of the namespace inside")
	assert.Contains(t, tree.Entries, "/usr/lib/entitled", "RUN sees the entitlement")
	assert.NotContains(t, tree.Entries, "/etc/pki/entitlement/key.pem", "which is in no layer")

	kept, err := buildlog.Read(t.Context(), client(t, reg), in.Request.Target, "worker-0123", result.Digest)
	require.NoError(t, err)
	assert.Equal(t, result.Digest, kept.Image)
	assert.Contains(t, string(kept.Text), "canary-in-output")
	assert.Contains(t, string(kept.Text), "DONE after")
	assert.Contains(t, result.Log, in.Request.Target+"@sha256:")
	for name, secret := range map[string]string{"push": reg.Push.Password, "pull": reg.Pull.Password} {
		assert.NotContains(t, log, secret, name)
		assert.NotContains(t, string(kept.Text), secret, name)
	}
	boms, err := transfer.Documents(t.Context(), transfer.Endpoint{Reference: in.Request.Target + "@" + result.Digest,
		CAFile: reg.CAFile, AuthFile: reg.PullAuthFile}, build.SPDXType)
	require.NoError(t, err)
	assert.Len(t, boms, 1, "the pod attaches the bill of materials")
	o := p.observed(code)
	assert.Equal(t, machineosbuild.Succeeded, o.State)
	assert.Equal(t, result.Digest, o.Digest)

	again := newPod(t, reg, podAgain(in))
	second, code := again.run()
	require.Zero(t, code, again.out.String())
	assert.True(t, second.Reused, "the same content is found by its address")
	assert.Equal(t, result.Digest, second.Digest)
}

// podAgain is the same build under another name.
func podAgain(in job.Input) job.Input {
	b := *in.Build
	b.Name = "infra-4567"
	in.Build, in.Mounts = &b, nil
	return in
}

func secretOf(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{Data: map[string][]byte{}}
	s.Name = name
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

func TestPrivileged(t *testing.T) {
	reg := registrytest.Start(t)
	in := podInput(t, reg, "FROM configs\nRUN cat /proc/self/uid_map && echo hello >/usr/lib/file\n")
	in.Options.Privileged = true
	p := newPod(t, reg, in)
	p.environment = []string{podEnvironment + "=" + program} // with all of root's capabilities
	result, code := p.run()
	require.Zero(t, code, p.out.String())
	assert.Contains(t, files(t, reg, in.Request.Target+"@"+result.Digest).Entries, "/usr/lib/file")
	assert.NotRegexp(t, `\b0 +1000000 +65536\b`, p.out.String())
}

func TestBuildWithoutRUN(t *testing.T) {
	reg := registrytest.Start(t)
	p := newPod(t, reg, podInput(t, reg, "FROM configs\nLABEL a=b\n"))
	result, code := p.run()
	require.Zero(t, code, p.out.String())
	assert.Equal(t, build.EngineAppend, result.Engine)
}

func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name          string
		containerfile string
		change        func(*job.Input)
		code          int
		class         build.Class
		line          int
		message       string
		exit          int
	}{
		{name: "a failing RUN", containerfile: "FROM configs\nRUN true\nRUN echo the reason is here; exit 7\n",
			code: 42, class: build.ClassUser, line: 3, exit: 7},
		{name: "a failing command before a pipe", containerfile: "FROM configs\nRUN set -o pipefail; false | cat\n", code: 42,
			class: build.ClassUser, line: 2, exit: 1},
		{name: "a wrong instruction", containerfile: "FROM configs\nRUM true\n", code: 42, class: build.ClassUser,
			line: 2},
		{name: "a base that is not there", containerfile: "FROM configs\n", code: 42, class: build.ClassInfrastructure,
			change: func(in *job.Input) {
				in.Request.Base.Reference = in.Request.Base.Reference[:len(in.Request.Base.Reference)-4] + "0000"
			}},
		{name: "a push that is refused", containerfile: "FROM configs\n", code: 42, class: build.ClassInfrastructure,
			change: func(in *job.Input) {
				in.PushSecret = in.PullSecret
			}},
		{name: "a time limit", containerfile: "FROM configs\nRUN sleep 600\n", code: 42, class: build.ClassPolicy, line: 2,
			change: func(in *job.Input) {
				in.Options.BuilderDeadline = 10 * time.Second
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			reg := registrytest.Start(t)
			in := podInput(t, reg, c.containerfile)
			if c.change != nil {
				c.change(&in)
			}
			p := newPod(t, reg, in)
			result, code := p.run()
			// A busy machine may need more than the shortest limit to come to the line.
			for c.class == build.ClassPolicy && result.Failure != nil && result.Failure.Line < c.line &&
				in.Options.BuilderDeadline < 5*time.Minute {
				in.Options.BuilderDeadline *= 2
				p = newPod(t, reg, in)
				result, code = p.run()
			}
			assert.Equal(t, c.code, code, p.out.String())
			require.NotNil(t, result.Failure)
			assert.Empty(t, result.Digest)
			assert.Equal(t, c.class, result.Failure.Class, result.Failure.Error())
			assert.Equal(t, c.line, result.Failure.Line)
			assert.Equal(t, c.exit, result.Failure.ExitCode)
			o := p.observed(code)
			assert.Equal(t, machineosbuild.Failed, o.State)
			assert.Equal(t, c.class, o.Cause.Class)
			assert.Equal(t, c.line, o.Cause.Line)
			assert.NotEmpty(t, o.Cause.Next+o.Cause.Message)
			if c.exit == 7 {
				assert.Contains(t, strings.Join(o.Cause.Excerpt, "\n"), "the reason is here")
				kept, err := buildlog.Read(t.Context(), client(t, reg), in.Request.Target, "worker-0123", "")
				require.NoError(t, err, "the log of a failed build is kept, too")
				assert.Contains(t, string(kept.Text), "the reason is here")
				assert.Equal(t, "Failed", kept.Outcome)
			}
		})
	}
}

func TestRegistryDown(t *testing.T) {
	reg := registrytest.Start(t)
	p := newPod(t, reg, podInput(t, reg, "FROM configs\nRUN true\n"))
	reg.Stop(t)
	result, code := p.run()
	assert.Equal(t, 75, code, p.out.String())
	require.NotNil(t, result.Failure)
	assert.Equal(t, build.ClassTransient, result.Failure.Class)
	assert.Equal(t, build.ClassTransient, p.observed(code).Cause.Class)
	assert.Contains(t, p.out.String(), "the log of this build is not kept")
}

func TestStoppedDuringRun(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"a Job that is deleted": syscall.SIGTERM,
		"a pod that is killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			reg := registrytest.Start(t)
			p := newPod(t, reg, podInput(t, reg, "FROM configs\nRUN touch /usr/marker; (sleep 300 &) ; sleep 300\n"))
			cmd := p.command()
			require.NoError(t, cmd.Start())
			require.Eventually(t, func() bool { return inRUN(p.dir) }, 60*time.Second, 20*time.Millisecond,
				"the build comes to its RUN")
			began := time.Now()
			require.NoError(t, cmd.Process.Signal(signal))
			_ = cmd.Wait() // its exit code is looked at below
			t.Log("ended after", time.Since(began))
			p.leavesNothing()
			if signal == syscall.SIGTERM {
				assert.Equal(t, 75, cmd.ProcessState.ExitCode(), p.out.String())
				assert.Contains(t, p.result().Failure.Message, "stopped from outside")
			}
		})
	}
}

// inRUN tells whether the Containerfile's RUN has begun: its file is in the layer that is being written.
func inRUN(dir string) bool {
	found, _ := filepath.Glob(filepath.Join(dir, "work/state/engine/storage-*/overlay/*/diff/usr/marker"))
	vfs, _ := filepath.Glob(filepath.Join(dir, "work/state/engine/storage-*/vfs/dir/*/usr/marker"))
	return len(found)+len(vfs) > 0
}

func TestNoUserNamespace(t *testing.T) {
	reg := registrytest.Start(t)
	p := newPod(t, reg, podInput(t, reg, "FROM configs\nRUN true\n"))
	p.environment = []string{"DAYONE_TEST_NO_CAPABILITIES=1"}
	result, code := p.run()
	assert.Equal(t, 42, code, p.out.String())
	require.NotNil(t, result.Failure)
	assert.Contains(t, result.Failure.Next, "user namespace")
}

func TestMissingInput(t *testing.T) {
	reg := registrytest.Start(t)
	p := newPod(t, reg, podInput(t, reg, ""))
	require.NoError(t, os.RemoveAll(p.path("build/push")))
	result, code := p.run()
	assert.Equal(t, 42, code)
	assert.Contains(t, result.Failure.Message, "push/.dockerconfigjson")
}

func TestCommandLine(t *testing.T) {
	assert.Equal(t, cli.ExitUsage, run(t.Context(), []string{"build", "--user-namespace=mine"}, os.Stdout, os.Stderr))
	assert.Equal(t, cli.ExitUsage, run(t.Context(), []string{"build", "--nothing"}, os.Stdout, os.Stderr))
}
