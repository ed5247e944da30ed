package mcobuild_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/manifests"
)

// own are stages in the place of those that MCO writes above the user's text.
const own = "FROM scratch AS extract\nCOPY busybox /bin/busybox\n\n" +
	"FROM scratch AS configs\nCOPY busybox /bin/busybox\nCOPY busybox /bin/sh\nRUN true\n\n"

// script is the order of commands of MCO's build script, printed as bash -x does.
const script = `set -x
export HTTP_PROXY=http://user:canary-4711@proxy.test:3128
buildah bud --log-level=DEBUG --storage-driver vfs --isolation chroot --tag "$TAG" --file=Containerfile . && \
buildah push --storage-driver vfs --tls-verify=false "$TAG"
`

// real runs buildah as MCO's script does and gives what it printed.
func real(t *testing.T, user, tag string) string {
	t.Helper()
	for _, name := range []string{"buildah", "busybox", "bash"} {
		if _, err := exec.LookPath(name); err != nil {
			require.Empty(t, os.Getenv("CI"), "%s is missing", name)
			t.Skip(name + " is missing, and with it buildah's real output")
		}
	}
	if os.Getuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "chroot isolation needs root")
		t.Skip("chroot isolation needs root")
	}
	dir := t.TempDir()
	busybox, err := exec.LookPath("busybox")
	require.NoError(t, err)
	raw, err := os.ReadFile(busybox)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "busybox"), raw, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Containerfile"), []byte(own+user), 0o600))
	conf := filepath.Join(dir, "storage.conf")
	require.NoError(t, os.WriteFile(conf, []byte("[storage]\ndriver = \"vfs\"\nrunroot = \""+dir+"/run\"\ngraphroot = \""+
		dir+"/graph\"\n"), 0o600))
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CONTAINERS_STORAGE_CONF="+conf, "BUILDAH_ISOLATION=chroot", "TAG="+tag)
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	return string(out)
}

func failedPod(container string, t corev1.ContainerStateTerminated) *corev1.Pod {
	status := []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Terminated: &t}}}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "build-worker-1-x"}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	p.Status.Phase = corev1.PodFailed
	if container == mcobuild.BuildContainer {
		p.Status.InitContainerStatuses = status
	} else {
		p.Status.ContainerStatuses = status
	}
	return p
}

func machineOSBuild() *mcfgv1.MachineOSBuild {
	start := metav1.Now()
	return &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", UID: "u1"},
		Spec:   mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-worker-1"}},
		Status: mcfgv1.MachineOSBuildStatus{BuildStart: &start}}
}

func TestRealOutputOfBuildahIsExplained(t *testing.T) {
	const nowhere = "127.0.0.1:1/x/y:z"
	for _, c := range []struct {
		name, user, tag string
		class           build.Class
		step            string
		line            int
		retry           bool
		message         string
	}{
		{name: "a command fails", user: "FROM configs AS final\nRUN echo one; \\\n  echo No such package; exit 7\n",
			class: build.ClassUser, step: "containerfile", line: 2, message: "exit status"},
		{name: "a command cannot reach a server", user: "FROM configs AS final\n\nRUN echo 'Curl error (6): Couldn'\"'\"'t " +
			"resolve host name for https://mirror.test/'; exit 1\n", class: build.ClassTransient, step: "containerfile",
			retry: true, message: "exit status 1"},
		{name: "a file to copy is missing", user: "FROM configs AS final\nLABEL a=b\nCOPY nothing /there\n",
			class: build.ClassUser, step: "containerfile", line: 3, message: "no such file"},
		{name: "a second stage of the user's", user: "FROM configs AS one\nRUN true\n\nFROM configs\n" +
			"COPY --from=one /bin/sh /x\nRUN false\n", class: build.ClassUser, step: "containerfile", line: 6,
			message: "exit status 1"},
		{name: "a base image's registry is down", user: "FROM 127.0.0.1:1/no/base:x\nRUN true\n",
			class: build.ClassTransient, step: "containerfile", retry: true, message: "connection refused"},
		{name: "the push finds no registry", user: "FROM configs\nRUN true\n", tag: nowhere, class: build.ClassTransient,
			step: "push", retry: true, message: "connection refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				t.Skip("runs buildah, which is left out with -short")
			}
			if c.tag == "" {
				c.tag = "registry.test/x/y:z"
			}
			text := real(t, c.user, c.tag)
			got := mcobuild.Explain(mcobuild.Evidence{Build: machineOSBuild(), Containerfile: c.user,
				Pod:  failedPod(mcobuild.BuildContainer, corev1.ContainerStateTerminated{ExitCode: 1}),
				Logs: map[string]string{mcobuild.BuildContainer: text}})
			assert.Equal(t, c.class, got.Class, text)
			assert.Equal(t, c.step, got.Step, text)
			assert.Equal(t, c.line, got.Line, text)
			assert.Equal(t, c.retry, got.Retry)
			assert.Contains(t, got.Message, c.message)
			assert.NotEmpty(t, got.Next)
			assert.NotEmpty(t, got.Excerpt)
			assert.LessOrEqual(t, len(got.Excerpt), build.ExcerptLines)
			assert.NotContains(t, strings.Join(got.Excerpt, "\n"), "level=debug")
			packed, err := mcobuild.Pack(text)
			require.NoError(t, err)
			kept, err := mcobuild.Unpack(packed)
			require.NoError(t, err)
			assert.Contains(t, kept, "proxy.test:3128")
			assert.NotContains(t, kept, "canary-4711")
		})
	}
}

// ends are texts in the forms that buildah 1.41 and containers/image 5.36 give to errors.
func TestEveryEndIsExplained(t *testing.T) {
	const head = "+ buildah bud\n[3/3] STEP 2/3: RUN dnf install -y x\n"
	const push = head + "+ buildah push --storage-driver vfs\nGetting image source signatures\n"
	for _, c := range []struct {
		name, log string
		t         corev1.ContainerStateTerminated
		class     build.Class
		retry     bool
	}{
		{"push without a login", push + "Error: pushing image \"x\": unauthorized: authentication required\n",
			corev1.ContainerStateTerminated{ExitCode: 125}, build.ClassInfrastructure, false},
		{"push to a registry in trouble", push + "Error: writing blob: received unexpected HTTP status: 503 Service " +
			"Unavailable\n", corev1.ContainerStateTerminated{ExitCode: 125}, build.ClassTransient, true},
		{"push with too many requests", push + "Error: pushing image: toomanyrequests: slow down\n",
			corev1.ContainerStateTerminated{ExitCode: 125}, build.ClassTransient, true},
		{"push with status 500", push + "Error: pushing image: received unexpected HTTP status: 500 Internal Server Error\n",
			corev1.ContainerStateTerminated{ExitCode: 125}, build.ClassTransient, true},
		{"the registry's certificate", push + "Error: pinging container registry r: tls: failed to verify certificate: " +
			"x509: certificate signed by unknown authority\n", corev1.ContainerStateTerminated{ExitCode: 125},
			build.ClassInfrastructure, false},
		{"the node's disk is full", head + "Error: committing container: no space left on device\n",
			corev1.ContainerStateTerminated{ExitCode: 125}, build.ClassInfrastructure, true},
		{"out of memory", head + "installing\n", corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"},
			build.ClassPolicy, false},
		{"stopped", head, corev1.ContainerStateTerminated{ExitCode: 143}, build.ClassTransient, true},
		{"no such image", "+ buildah bud\n[3/3] STEP 1/3: FROM r.test/a/b:c\nError: creating build container: reading " +
			"manifest c in r.test/a/b: manifest unknown\n", corev1.ContainerStateTerminated{ExitCode: 125},
			build.ClassUser, false},
		{"MCO's own instruction", "+ buildah bud\n[2/3] STEP 4/9: RUN --mount=type=bind bash\nerror: Packages not found: " +
			"nonsense\nError: building at STEP \"RUN --mount\": while running runtime: exit status 1\n",
			corev1.ContainerStateTerminated{ExitCode: 1}, build.ClassUser, false},
		{"nothing printed", "", corev1.ContainerStateTerminated{ExitCode: 1}, build.ClassInfrastructure, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := mcobuild.Explain(mcobuild.Evidence{Build: machineOSBuild(), Pod: failedPod(mcobuild.BuildContainer, c.t),
				Containerfile: "FROM configs\nRUN dnf install -y x\n", Logs: map[string]string{mcobuild.BuildContainer: c.log}})
			assert.Equal(t, c.class, got.Class, got.Message)
			assert.Equal(t, c.retry, got.Retry, got.Message)
			assert.NotEmpty(t, got.Message)
			assert.NotEmpty(t, got.Next)
			if c.class != build.ClassUser {
				assert.Zero(t, got.Line)
			}
		})
	}
}

func TestWhatTheKubeletSaysIsTheLogWhereThereIsNone(t *testing.T) {
	got := mcobuild.Explain(mcobuild.Evidence{Build: machineOSBuild(), Containerfile: "FROM configs\nRUN false\n",
		Pod: failedPod(mcobuild.BuildContainer, corev1.ContainerStateTerminated{ExitCode: 1, Message: "[3/3] STEP 2/2: RUN " +
			"false\nError: building at STEP \"RUN false\": while running runtime: exit status 1\n"})})
	assert.Equal(t, build.ClassUser, got.Class)
	assert.Equal(t, 2, got.Line)
}

func TestOtherEndsThanTheBuilders(t *testing.T) {
	refused := machineOSBuild()
	refused.Status.BuildStart = nil
	got := mcobuild.Explain(mcobuild.Evidence{Build: refused, Containerfile: "FROM configs\nRUM dnf\n"})
	assert.Equal(t, build.ClassUser, got.Class)
	assert.Equal(t, 2, got.Line, got.Message)
	assert.Contains(t, got.Message, "made no Job")
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	assert.Contains(t, mcobuild.Unseen(got, pool), "does not show it")
	pool.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: mcfgv1.MachineConfigPoolImageBuildDegraded,
		Status: corev1.ConditionTrue}}
	assert.Empty(t, mcobuild.Unseen(got, pool))

	lost := mcobuild.Explain(mcobuild.Evidence{Build: machineOSBuild()})
	assert.Contains(t, lost.Message, "pods were deleted")
	assert.False(t, lost.Retry)

	evicted := failedPod("none", corev1.ContainerStateTerminated{})
	evicted.Status.Reason, evicted.Status.Message = "Evicted", "The node was low on resource: memory."
	got = mcobuild.Explain(mcobuild.Evidence{Build: machineOSBuild(), Pod: evicted})
	assert.Equal(t, build.ClassTransient, got.Class)
	assert.True(t, got.Retry)

	got = mcobuild.Explain(mcobuild.Evidence{Build: machineOSBuild(), Pod: failedPod("create-digest-configmap",
		corev1.ContainerStateTerminated{ExitCode: 1, Message: "configmaps is forbidden"})})
	assert.Equal(t, "digest", got.Step)
	assert.Contains(t, got.Message, "the image is pushed")
}

func TestALongLogKeepsItsBeginningAndItsEnd(t *testing.T) {
	var log mcobuild.Log
	_, err := log.Write([]byte("the first line\n"))
	require.NoError(t, err)
	noise := make([]byte, 0, 1<<20)
	for i := uint32(1); len(noise) < 1<<20; i = i*1664525 + 1013904223 { // does not compress
		noise = append(noise, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/"[i>>26])
		if len(noise)%100 == 0 {
			noise = append(noise, '\n')
		}
	}
	for range 8 {
		_, err = log.Write(noise)
		require.NoError(t, err)
	}
	_, err = log.Write([]byte("\nthe last line\n"))
	require.NoError(t, err)
	assert.EqualValues(t, 8*len(noise)+30, log.Len())
	packed, err := mcobuild.Pack(log.Text())
	require.NoError(t, err)
	assert.LessOrEqual(t, len(packed), mcobuild.MaxKept)
	text, err := mcobuild.Unpack(packed)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(text, "the first line\n"))
	assert.True(t, strings.HasSuffix(text, "the last line\n"))
	assert.Contains(t, text, "dayone left out")
}

func TestAKeyWhoseBeginningIsCutOffIsNoLog(t *testing.T) {
	packed, err := mcobuild.Pack("canarykeyline\n-----END RSA PRIVATE KEY-----\nfine\n")
	require.NoError(t, err)
	text, err := mcobuild.Unpack(packed)
	require.NoError(t, err)
	assert.NotContains(t, text, "canary")
	assert.Contains(t, text, "fine")
}

func TestWhenARebuildIsRequested(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	cause := mcobuild.Cause{Failure: build.Failure{Class: build.ClassTransient}, Retry: true}
	for _, c := range []struct {
		name   string
		change func(s *mcobuild.Situation)
		ask    bool
		after  time.Duration
		why    string
	}{
		{name: "the pause is over", ask: true, why: "retry 1 of 5"},
		{name: "the pause is not over", change: func(s *mcobuild.Situation) {
			s.Record.Ended = &metav1.Time{Time: now.Add(-20 * time.Second)}
		}, after: 40 * time.Second, why: "at 2026-11-01 12:00 UTC"},
		{name: "the third pause is longer", change: func(s *mcobuild.Situation) { s.Record.Retries = 2 },
			after: 5 * time.Minute, why: "retry 3 of 5"},
		{name: "enough", change: func(s *mcobuild.Situation) { s.Record.Retries = 5 }, why: "asks no more"},
		{name: "counted, and killed before it was asked", change: func(s *mcobuild.Situation) {
			s.Record.Retries, s.Record.Asked = 5, "u1"
		}, ask: true, why: "retry 5 of 5"},
		{name: "the Containerfile is to blame", change: func(s *mcobuild.Situation) {
			s.Record.Cause = &mcobuild.Cause{Failure: build.Failure{Class: build.ClassUser}}
		}, why: "mended first"},
		{name: "forbidden", change: func(s *mcobuild.Situation) {
			s.Config.Annotations[manifests.AnnotationNoRetry] = "true"
		}, why: "forbids"},
		{name: "requested already", change: func(s *mcobuild.Situation) {
			s.Config.Annotations[manifests.AnnotationRebuild] = ""
		}, why: "not begun"},
		{name: "MCO would not listen", change: func(s *mcobuild.Situation) {
			s.Config.Annotations[manifests.AnnotationCurrentBuild] = "worker-0"
		}, why: "would not listen"},
		{name: "another build runs", change: func(s *mcobuild.Situation) { s.Active = true }, why: "active"},
		{name: "another rendered config", change: func(s *mcobuild.Situation) {
			s.Pool.Spec.Configuration.Name = "rendered-worker-2"
		}, why: "another rendered config"},
		{name: "a degraded pool", change: func(s *mcobuild.Situation) {
			s.Pool.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{
				{Type: mcfgv1.MachineConfigPoolNodeDegraded, Status: corev1.ConditionTrue}}
		}, why: "NodeDegraded"},
		{name: "no pool", change: func(s *mcobuild.Situation) { s.Pool = nil }, why: "gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := retriable(t, now, cause)
			if c.change != nil {
				c.change(&s)
			}
			got := s.Decide(mcobuild.Backoff())
			assert.Equal(t, c.ask, got.Ask, got.Why)
			assert.Equal(t, c.after, got.After)
			assert.Contains(t, got.Why, c.why)
		})
	}
}

// retriable is a build that failed ten minutes ago, and would be asked for again now.
func retriable(t *testing.T, now time.Time, cause mcobuild.Cause) mcobuild.Situation {
	t.Helper()
	b := machineOSBuild()
	require.NoError(t, machineosbuild.Move(b, machineosbuild.Failed, machineosbuild.Cause{}, now))
	s := mcobuild.Situation{Build: b, Now: now, Pool: &mcfgv1.MachineConfigPool{},
		Config: &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{manifests.AnnotationCurrentBuild: "worker-1"}}},
		Record: mcobuild.Record{Cause: &cause, Attempts: mcobuild.Attempts{UID: "u1",
			Ended: &metav1.Time{Time: now.Add(-10 * time.Minute)}}}}
	s.Pool.Spec.Configuration.Name = "rendered-worker-1"
	return s
}

func TestARecordIsWhatItWas(t *testing.T) {
	r := mcobuild.Record{Build: "worker-1", Config: "worker", Pool: "worker", Summary: "one\n", Log: []byte{1},
		Cause:    &mcobuild.Cause{Failure: build.Failure{Class: build.ClassUser, Message: "m", Line: 3}},
		Attempts: mcobuild.Attempts{UID: "u", Outcome: "Failed", Retries: 2}}
	m, err := r.ConfigMap("dayone")
	require.NoError(t, err)
	assert.Equal(t, "dayone-build-worker-1", m.Name)
	for _, key := range []string{"cause.json", "attempts", "summary"} {
		assert.NotEmpty(t, m.Data[key], key)
	}
	back, err := mcobuild.Parse(m)
	require.NoError(t, err)
	assert.Equal(t, r, back)
	m.Data["attempts"] = "{"
	_, err = mcobuild.Parse(m)
	require.ErrorContains(t, err, "attempts")
}

// FuzzExplain: no output makes it fail, and what it says is bounded.
func FuzzExplain(f *testing.F) {
	f.Add("+ buildah bud\n[3/3] STEP 2/3: RUN x\nError: building at STEP \"RUN x\": exit status 1\n",
		"FROM configs\nRUN x\n")
	f.Add("[99999999999999999999/1] STEP 0/0: FROM\n", "RUN")
	f.Fuzz(func(t *testing.T, log, user string) {
		got := mcobuild.Explain(mcobuild.Evidence{Build: machineOSBuild(), Containerfile: user,
			Pod:  failedPod(mcobuild.BuildContainer, corev1.ContainerStateTerminated{ExitCode: 1}),
			Logs: map[string]string{mcobuild.BuildContainer: log}})
		assert.LessOrEqual(t, len(got.Message), 1024)
		assert.LessOrEqual(t, len(got.Excerpt), build.ExcerptLines)
		assert.NotEmpty(t, got.Class)
	})
}
