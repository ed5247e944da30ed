package buildcontroller

import (
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	replicas "dayone.dev/dayone/registry/wanted"
)

func TestShortOfCopies(t *testing.T) {
	for _, tc := range []struct {
		name  string
		held  []string
		lacks map[string]string
		all   int
		want  string
	}{
		{"three of three", []string{"a", "b", "c"}, nil, 3, ""},
		{"three with one down", []string{"a", "b"}, nil, 3, ""},
		{"one of three is ready", []string{"a"}, nil, 3, "too few are ready"},
		{"one node", []string{"a"}, nil, 1, ""},
		{"one lacks it", []string{"a", "b"}, map[string]string{"c": "no space"}, 3, "c: no space"},
		{"no node", nil, nil, 0, "in 0 of"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := shortOfCopies(tc.held, tc.lacks, tc.all)
			assert.Equal(t, tc.want == "", got == "", got)
			assert.Contains(t, got, tc.want)
		})
	}
}

// member makes a control-plane node; report "" is none.
func (w *world) member(name string, ready bool, report string) {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{manifests.ControlPlaneLabels()[0]: ""}}}
	require.NoError(w.t, client.IgnoreAlreadyExists(w.client.Create(w.ctx(), n)))
	require.NoError(w.t, w.client.Get(w.ctx(), client.ObjectKeyFromObject(n), n))
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, manifests.AnnotationRegistry, report)
	require.NoError(w.t, w.client.Update(w.ctx(), n))
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	require.NoError(w.t, w.client.Status().Update(w.ctx(), n))
}

// replicatedFirst: the image is noted for the registries, and the build goes on until every ready control-plane node
// has it. A node that is down does not hold it up; what lasts is said on the pool.
func replicatedFirst(t *testing.T, w *world) {
	w.inCluster = true
	w.restart()
	w.member("m0", true, "")
	w.member("m1", true, "")
	w.addPool("worker", "one", plainText)
	var image string
	var b mcfgv1.MachineOSBuild
	w.until("the image is noted", func() bool {
		for _, b = range w.builds("worker") {
			image = b.Annotations[manifests.AnnotationPushedImage]
		}
		return image != ""
	})
	w.rest()
	assert.Equal(t, machineosbuild.Building, machineosbuild.StateOf(&b))
	assert.False(t, w.available("worker"))
	assert.Empty(t, w.config("worker").Status.CurrentImagePullSpec, "no node is sent to it")

	_, path, _ := strings.Cut(image, "/")
	repository, d, _ := strings.Cut(path, "@")
	list := replicas.New(time.Now(), []replicas.Image{{Repository: repository, Digest: digest.Digest(d),
		By: []string{"b"}}})
	raw, err := list.Encode()
	require.NoError(t, err)
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster.RegistryName},
		Data: map[string]string{replicas.ListFile: string(raw)}})
	full, err := replicas.NewReport(list, nil, 0, 0).Encode()
	require.NoError(t, err)
	lacks, err := replicas.NewReport(list, []replicas.Missing{{Image: path, Why: "no space"}}, 0, 0).Encode()
	require.NoError(t, err)
	w.member("m0", true, full)
	w.member("m1", true, lacks)
	w.member("m2", false, "") // it is down
	w.clock.jump(2 * replicaPatience)
	w.until("the pool says what holds it up", func() bool {
		return w.degraded("worker") && strings.Contains(w.describe(), "m1: no space")
	})
	w.member("m1", true, full)
	w.untilAvailable("worker")
	assert.Equal(t, image, string(w.config("worker").Status.CurrentImagePullSpec))
	assert.False(t, w.degraded("worker"))
}
