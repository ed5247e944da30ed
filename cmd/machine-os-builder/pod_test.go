package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/registrytest"
)

// pod is a build pod without a cluster: the same objects, mounted as the kubelet does, the same privileges, the same
// program.
type pod struct {
	t           *testing.T
	reg         *registrytest.Registry
	objects     job.Objects
	dir         string
	environment []string
	out         bytes.Buffer
}

// podInput is a build of that Containerfile in the registry.
func podInput(t *testing.T, reg *registrytest.Registry, containerfile string) job.Input {
	t.Helper()
	buildtest.Need(t, true)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}), containerfile)
	r.Pool, r.Options.Attempts = "worker", 1
	ca, err := os.ReadFile(reg.CAFile)
	require.NoError(t, err)
	secret := func(file string) []byte {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		canonical, err := credentials.Canonical(map[string][]byte{corev1.DockerConfigJsonKey: raw})
		require.NoError(t, err)
		return canonical
	}
	return job.Input{
		Build:   &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "worker-0123", UID: "uid"}},
		Config:  &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
		Request: r, PullSecret: secret(reg.PullAuthFile), PushSecret: secret(reg.PushAuthFile), CA: ca,
		Options: job.Options{BuilderImage: "r.example/b@sha256:00"},
	}
}

func newPod(t *testing.T, reg *registrytest.Registry, in job.Input) *pod {
	t.Helper()
	objects, err := job.New(in)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "dayone-pod-") // not the test's own: the worker's user must be able to come here
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	p := &pod{t: t, reg: reg, objects: objects, dir: dir}
	for _, d := range []string{"", "work", "tmp"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
		require.NoError(t, os.Chmod(filepath.Join(dir, d), 0o777), "as an emptyDir")
	}
	p.mountAll()
	return p
}

// mountAll writes every volume of the Job as the kubelet does: files in a directory of their own that links lead to.
func (p *pod) mountAll() {
	spec := p.objects.Job.Spec.Template.Spec
	for _, m := range spec.Containers[0].VolumeMounts {
		at, ok := strings.CutPrefix(m.MountPath, job.DirInput+"/")
		if !ok {
			continue
		}
		for _, v := range spec.Volumes {
			if v.Name == m.Name {
				files, mode := p.content(v.VolumeSource)
				mountVolume(p.t, filepath.Join(p.dir, "build", at), files, mode)
			}
		}
	}
}

func (p *pod) content(v corev1.VolumeSource) (map[string][]byte, os.FileMode) {
	files, mode := map[string][]byte{}, os.FileMode(0o644)
	take := func(name string, optional *bool) {
		for _, s := range p.objects.Secrets {
			if s.Name == name {
				maps.Copy(files, s.Data)
				return
			}
		}
		require.NotNil(p.t, optional, "Secret %s is there", name)
	}
	switch {
	case v.Projected != nil:
		mode = os.FileMode(*v.Projected.DefaultMode)
		for _, s := range v.Projected.Sources {
			take(s.Secret.Name, s.Secret.Optional)
		}
	case v.Secret != nil:
		mode = os.FileMode(*v.Secret.DefaultMode)
		take(v.Secret.SecretName, v.Secret.Optional)
	case v.ConfigMap != nil:
		for _, c := range p.objects.ConfigMaps {
			if c.Name == v.ConfigMap.Name {
				for k, text := range c.Data {
					files[k] = []byte(text)
				}
			}
		}
	}
	return files, mode
}

func mountVolume(t *testing.T, dir string, files map[string][]byte, mode os.FileMode) {
	t.Helper()
	data := filepath.Join(dir, "..2026_01_02")
	require.NoError(t, os.MkdirAll(data, 0o755))
	require.NoError(t, os.Symlink("..2026_01_02", filepath.Join(dir, "..data")))
	for name, raw := range files {
		require.NoError(t, os.WriteFile(filepath.Join(data, name), raw, mode))
		require.NoError(t, os.Symlink("..data/"+name, filepath.Join(dir, name)))
	}
}

// command is the container's, with its paths moved to the test's directory.
func (p *pod) command() *exec.Cmd {
	self, err := os.Executable()
	require.NoError(p.t, err)
	args := append([]string{}, p.objects.Job.Spec.Template.Spec.Containers[0].Args...)
	args = append(args, "--input", filepath.Join(p.dir, "build"), "--work", filepath.Join(p.dir, "work"),
		"--termination-log", p.path("termination-log"))
	cmd := exec.Command(self, args...)
	cmd.Env = append([]string{podEnvironment + "=" + launch, "PATH=/usr/bin:/bin", "TMPDIR=" +
		filepath.Join(p.dir, "tmp")}, p.environment...)
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	return cmd
}

func (p *pod) path(name string) string { return filepath.Join(p.dir, name) }

// run runs the pod to its end.
func (p *pod) run() (job.Result, int) {
	p.t.Helper()
	cmd := p.command()
	err := cmd.Run()
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(p.t, err, &exit)
	}
	p.leavesNothing()
	return p.result(), cmd.ProcessState.ExitCode()
}

func (p *pod) result() job.Result {
	p.t.Helper()
	raw, err := os.ReadFile(p.path("termination-log"))
	require.NoError(p.t, err, p.out.String())
	assert.LessOrEqual(p.t, len(raw), job.MaxMessage)
	r, err := job.ParseResult(string(raw))
	require.NoError(p.t, err)
	return r
}

// observed is what a controller would see of this pod.
func (p *pod) observed(code int) job.Observation {
	raw, err := os.ReadFile(p.path("termination-log"))
	require.NoError(p.t, err)
	phase, state := corev1.PodSucceeded, batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}
	if code != 0 {
		phase, state.Type, state.Reason = corev1.PodFailed, batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy
	}
	return job.Observe(&batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{state}}},
		[]corev1.Pod{{Status: corev1.PodStatus{
			Phase: phase,
			ContainerStatuses: []corev1.ContainerStatus{{Name: job.Container, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code), Message: string(raw)}}}},
		}}})
}

// leavesNothing waits until no process of the pod and no mount of it is left.
func (p *pod) leavesNothing() {
	p.t.Helper()
	assert.Eventually(p.t, func() bool { return len(processesBelow(p.dir)) == 0 }, 60*time.Second, 10*time.Millisecond,
		"no process outlives the pod: %v", processesBelow(p.dir))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(p.t, err)
	assert.NotContains(p.t, string(mounts), p.dir)
}

// processesBelow finds processes whose environment or arguments name the directory, and those whose user is the
// worker's.
func processesBelow(dir string) []string {
	var out []string
	found, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range found {
		environment, _ := os.ReadFile(filepath.Join(proc, "environ"))
		arguments, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		if bytes.Contains(environment, []byte(dir)) || bytes.Contains(arguments, []byte(dir)) {
			out = append(out, string(arguments))
		}
	}
	return out
}
