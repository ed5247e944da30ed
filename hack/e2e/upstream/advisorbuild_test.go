package upstream_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// logServer is what of a kubelet gives logs. Like the real one it knows nothing of other pods.
type logServer struct {
	mu      sync.Mutex
	address string
	text    map[string]string
	// lines is what a build prints that fails; empty: builds succeed.
	lines string
}

func (s *logServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/containerLogs/"), "/")
	s.mu.Lock()
	text, found := s.text[key]
	s.mu.Unlock()
	if !found {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write([]byte(text))
}

func (s *logServer) put(pod, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text[pod+"/"+mcobuild.BuildContainer] = text
}

// placeIn says on a node where its kubelet answers.
func (s *logServer) placeIn(n *corev1.Node) {
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		return
	}
	number, _ := strconv.Atoi(port)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
}

// offline is what MCO's build script prints when a mirror does not answer in the middle of the user's RUN.
const offline = "+ buildah bud --log-level=DEBUG\n[3/3] STEP 1/2: FROM configs AS final\n" +
	"[3/3] STEP 2/2: RUN dnf install x\nCould not resolve host: mirror.test\n" +
	"Error: building at STEP \"RUN dnf install x\": while running runtime: exit status 1\n"

// buildTakes is how long a build goes on that succeeds; a real one takes minutes. When MCO makes a build again under
// its name, it cleans up after the one before seconds later, and takes away the digest that it finds under that name.
const buildTakes = 30 * time.Second

// prints lets builds print these lines and fail; empty: they succeed.
func (s *logServer) prints(lines string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = lines
}

// endBuilds does a kubelet's part of MCO's build pods: each is placed, runs, prints what builds print and ends.
func (w *advised) endBuilds(ctx context.Context) {
	var pods corev1.PodList
	_ = w.env.Client.List(ctx, &pods, client.InNamespace(cluster.DefaultNamespace), client.HasLabels{batchv1.JobNameLabel})
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil {
			_ = w.endBuild(ctx, p) // the next round tries again
		}
	}
}

func (w *advised) endBuild(ctx context.Context, p *corev1.Pod) error {
	w.logs.mu.Lock()
	lines := w.logs.lines
	w.logs.mu.Unlock()
	w.logs.put(p.Name, lines)
	if p.Spec.NodeName == "" {
		bind := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "worker-0"}}
		if err := w.env.Client.SubResource("binding").Create(ctx, p, bind); err != nil {
			return err
		}
		if err := w.env.Client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
	}
	if len(p.Status.InitContainerStatuses) == 0 {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: mcobuild.BuildContainer,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
		return w.env.Client.Status().Update(ctx, p)
	}
	began := p.Status.InitContainerStatuses[0].State.Running.StartedAt
	if lines == "" && time.Since(began.Time) < buildTakes {
		return nil
	}
	ended := &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}
	p.Status.Phase = corev1.PodSucceeded
	if lines != "" {
		p.Status.Phase, ended.ExitCode, ended.Message = corev1.PodFailed, 1, lines
	} else if err := w.digest(ctx, p.Labels[batchv1.JobNameLabel]); err != nil {
		return err
	}
	p.Status.InitContainerStatuses[0].State = corev1.ContainerState{Terminated: ended}
	return w.env.Client.Status().Update(ctx, p)
}

// digest does what MCO's build does at its end: it pushes the image and tells its digest.
func (w *advised) digest(ctx context.Context, job string) error {
	build := strings.TrimPrefix(job, "build-")
	b := &mcfgv1.MachineOSBuild{}
	if err := w.env.Client.Get(ctx, client.ObjectKey{Name: build}, b); err != nil {
		return err
	}
	made, err := random.Image(1024, 1)
	if err != nil {
		return err
	}
	digest, err := w.pushed(ctx, made, string(b.Spec.RenderedImagePushSpec))
	if err != nil {
		return err
	}
	return client.IgnoreAlreadyExists(w.env.Client.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: "digest-" + build},
		Data:       map[string]string{"digest": digest}}))
}

// kept is what the advisor keeps of the build that the MachineOSConfig names.
func kept(ctx context.Context, w *advised) (mcobuild.Record, *mcfgv1.MachineOSBuild, error) {
	b := &mcfgv1.MachineOSBuild{}
	c := &mcfgv1.MachineOSConfig{}
	if err := w.env.Client.Get(ctx, client.ObjectKey{Name: "worker"}, c); err != nil {
		return mcobuild.Record{}, nil, err
	}
	name := c.Annotations[manifests.AnnotationCurrentBuild]
	if err := w.env.Client.Get(ctx, client.ObjectKey{Name: name}, b); err != nil {
		return mcobuild.Record{}, nil, err
	}
	m := &corev1.ConfigMap{}
	if err := w.env.Client.Get(ctx, client.ObjectKey{Namespace: cluster.AdvisorNamespace,
		Name: mcobuild.RecordName(name)}, m); err != nil {
		return mcobuild.Record{}, nil, err
	}
	r, err := mcobuild.Parse(m)
	return r, b, err
}

// failedBuild opts the workers in. Their first build fails for a reason that may pass: the advisor says why, asks by
// MCO's annotation and counts; MCO makes the build again under its name, and it succeeds.
func (w *advised) failedBuild() {
	w.t.Helper()
	w.logs.prints(offline)
	w.optIn()
	var failed mcobuild.Record
	require.Eventually(w.t, func() bool { // MCO deletes the build soon after
		r, _, err := kept(w.t.Context(), w)
		failed = r
		return err == nil && r.Outcome == string(machineosbuild.Failed)
	}, adopted, 20*time.Millisecond, "the failed build is explained")
	w.logs.prints("")
	assert.Equal(w.t, build.ClassTransient, failed.Cause.Class)
	assert.Equal(w.t, "RUN dnf install x", failed.Cause.Instruction)
	assert.Contains(w.t, failed.Summary, "retry 1 of 5")
	assert.Len(w.t, failed.Pods, 4, "MCO's Job makes four")
	log, err := mcobuild.Unpack(failed.Log)
	require.NoError(w.t, err)
	assert.Contains(w.t, log, "Could not resolve host")
	w.eventually("MCO makes the build again, which is counted", func(ctx context.Context) error {
		r, _, err := kept(ctx, w)
		if err == nil && (r.UID == failed.UID || r.Retries != 1) {
			return fmt.Errorf("%s", r.Summary)
		}
		return err
	})
	w.eventually("MCO has made the build again, and it succeeded", func(ctx context.Context) error {
		r, b, err := kept(ctx, w)
		if err != nil {
			return err
		}
		if r.UID == failed.UID || r.Build != failed.Build || r.Outcome != string(machineosbuild.Succeeded) {
			return fmt.Errorf("MachineOSBuild %s (UID %s, formerly %s) is %s; kept: %s", b.Name, b.UID, failed.UID,
				machineosbuild.StateOf(b), r.Summary)
		}
		assert.Zero(w.t, r.Retries, "a success clears the count")
		assert.Nil(w.t, r.Cause)
		return nil
	})
	assert.NotContains(w.t, w.mosc().Annotations, manifests.AnnotationRebuild, "MCO has taken the request down")
	w.eventually("MCO sends the first node to the image", func(context.Context) error {
		if len(w.sentOf("worker")) == 0 {
			return fmt.Errorf("image %s", w.mosc().Status.CurrentImagePullSpec)
		}
		return nil
	})
	w.rollsOutAsForeseen("worker")
}
