package failurecontroller_test

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/failurecontroller"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// own makes a build that MCO asks for and dayone builds, with the Job of one attempt, as the build controller does.
func (w *world) own(c *mcfgv1.MachineOSConfig, name string) *mcfgv1.MachineOSBuild {
	w.t.Helper()
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels:      machineosbuild.Labels(c.Name, c.Name, "rendered-"+c.Name+"-1"),
		Annotations: map[string]string{manifests.AnnotationClaimed: "true"}}, Spec: mcfgv1.MachineOSBuildSpec{
		MachineConfig:         mcfgv1.MachineConfigReference{Name: "rendered-" + c.Name + "-1"},
		MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: c.Name},
		RenderedImagePushSpec: "registry.example.com/os/image:" + mcfgv1.ImageTagFormat(name)}}
	b.Labels[manifests.AnnotationPreBuiltImage] = "true"
	w.make(b)
	w.ownJob(b)
	w.annotate(c, map[string]any{manifests.AnnotationCurrentBuild: name})
	return b
}

// ofBuild is what dayone's Jobs and pods say of their build.
func ofBuild(b *mcfgv1.MachineOSBuild, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: failurecontroller.MCONamespace, Name: name,
		Labels: map[string]string{manifests.LabelEphemeralBuildObject: ""},
		Annotations: map[string]string{manifests.LabelMachineOSBuild: b.Name,
			manifests.LabelMachineOSConfig: b.Spec.MachineOSConfig.Name}}
}

func (w *world) ownJob(b *mcfgv1.MachineOSBuild) {
	w.t.Helper()
	j := &batchv1.Job{ObjectMeta: ofBuild(b, job.JobName(b.Name)), Spec: batchv1.JobSpec{
		Template: corev1.PodTemplateSpec{Spec: ownPod("")}}}
	j.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b,
		mcfgv1.SchemeGroupVersion.WithKind("MachineOSBuild"))}
	w.make(j)
}

func ownPod(node string) corev1.PodSpec {
	return corev1.PodSpec{NodeName: node, RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: job.Container, Image: "dayone"}}}
}

// ended lets a pod of the build's Job run and end with a result.
func (w *world) ended(b *mcfgv1.MachineOSBuild, name, log string, r job.Result) *corev1.Pod {
	w.t.Helper()
	j := &batchv1.Job{}
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKey{Namespace: failurecontroller.MCONamespace,
		Name: job.JobName(b.Name)}, j))
	w.kubelet.mu.Lock()
	w.kubelet.logs[name+"/"+job.Container] = log
	// One attempt begins after the other, though all are created within a second here.
	began := metav1.NewTime(time.Now().Add(time.Duration(len(w.kubelet.logs)) * time.Second))
	w.kubelet.mu.Unlock()
	p := &corev1.Pod{ObjectMeta: ofBuild(b, name), Spec: ownPod(w.node())}
	p.Labels[batchv1.JobNameLabel] = j.Name
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}
	w.make(p)
	p.Status.Phase = corev1.PodSucceeded
	if r.ExitCode() != job.ExitOK {
		p.Status.Phase = corev1.PodFailed
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: job.Container, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(r.ExitCode()), Message: string(r.Message()),
			StartedAt: began, FinishedAt: began}}}}
	require.NoError(w.t, w.env.Client.Status().Update(w.t.Context(), p))
	return p
}

// settle writes the end of a build as the build controller does.
func (w *world) settle(b *mcfgv1.MachineOSBuild, f *build.Failure) {
	w.t.Helper()
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKeyFromObject(b), b))
	require.NoError(w.t, machineosbuild.Move(b, machineosbuild.Failed, machineosbuild.FromFailure(f),
		time.Now().Add(time.Second)))
	require.NoError(w.t, w.env.Client.Status().Update(w.t.Context(), b))
}

// TestBuildsOfDayoneItself keeps in mode builder what is kept in mode advisor, with the rights of its role and each of
// them used; nobody is asked for a rebuild.
func TestBuildsOfDayoneItself(t *testing.T) {
	w := newWorldIn(t, kubetest.Start(t, kubetest.Options{}), cluster.Building)
	reg := prometheus.NewRegistry()
	_, calls := w.start(failurecontroller.Options{Own: true, Metrics: reg, Backoff: []time.Duration{0}, History: 1})
	c := w.opt("alpha", userText)
	foreign := w.build(c, "alpha-0") // begun by MCO before dayone was installed
	w.pod("alpha-0", "build-alpha-0-a", running)

	b := w.own(c, "alpha-1")
	w.move(b, machineosbuild.Building)
	offline := &build.Failure{Class: build.ClassTransient, Step: "push", Message: "the registry does not answer"}
	w.ended(b, "alpha-1-a", "pushing\n", job.Result{Failure: offline})
	w.record("alpha-1", func(c *assert.CollectT, r mcobuild.Record, log string) {
		assert.Equal(c, "Building", r.Outcome, "another attempt comes")
		assert.Contains(c, log, "pushing")
		if assert.NotNil(c, r.Cause) {
			assert.Contains(c, r.Cause.Message, "does not answer")
		}
	})
	fault := &build.Failure{Class: build.ClassUser, Step: "containerfile", Message: "exit status 1", Line: 2,
		Instruction: "RUN false", ExitCode: 1, Excerpt: []string{"no such package"}, Next: "correct this instruction"}
	w.ended(b, "alpha-1-b", "STEP 2/2: RUN false\nno such package\n", job.Result{Failure: fault})
	// The build controller, which has the same cache, writes a build's end when it has seen the pod's.
	w.record("alpha-1", func(c *assert.CollectT, r mcobuild.Record, log string) {
		assert.Contains(c, log, "no such package")
		assert.Len(c, r.Pods, 2)
	})
	w.settle(b, fault)
	r := w.record("alpha-1", func(c *assert.CollectT, r mcobuild.Record, log string) {
		assert.Equal(c, "Failed", r.Outcome)
		assert.Contains(c, log, "no such package")
		assert.Len(c, r.Pods, 2)
	})
	assert.Equal(t, *fault, r.Cause.Failure)
	assert.Contains(t, r.Summary, "line 2 of the Containerfile: RUN false")
	assert.Contains(t, r.Summary, "request a rebuild with annotation")
	w.announced(c, "alpha-1")
	assert.Equal(t, map[string]float64{"dayone_build_failures_total alpha user": 1}, counted(t, reg))
	require.NoError(t, w.env.Client.Get(t.Context(), client.ObjectKeyFromObject(c), c))
	assert.NotContains(t, c.Annotations, manifests.AnnotationRebuild)

	// The builds go, as MCO deletes them when it makes another one; the record of the newer one stays.
	next := w.own(c, "alpha-2")
	w.settle(next, fault)
	w.record("alpha-2", func(c *assert.CollectT, r mcobuild.Record, _ string) { assert.Equal(c, "Failed", r.Outcome) })
	for _, gone := range []*mcfgv1.MachineOSBuild{foreign, b, next} {
		require.NoError(t, w.env.Client.Delete(t.Context(), gone))
	}
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		var list corev1.ConfigMapList
		assert.NoError(ct, w.env.Client.List(t.Context(), &list, client.MatchingLabels(mcobuild.Records("alpha"))))
		if assert.Len(ct, list.Items, 1) {
			assert.Equal(ct, mcobuild.RecordName("alpha-2"), list.Items[0].Name)
		}
	}, limit, every)
	require.NoError(t, w.env.Client.Delete(t.Context(), c))
	w.nothingLeft("alpha")
	calls.JustThese(t, failureObjects(w), cluster.DefaultNamespace, "dayone-controller")
}
