package cluster_test

import (
	"os"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m, kubetest.Options{})) }

// install applies every object and waits until the policies of admission are in force.
func install(t testing.TB) *kubetest.Env {
	t.Helper()
	e := shared.Env(t)
	objects, err := cluster.Objects(cluster.Options{Images: cluster.Images{Controller: "r.test/c:1", Builder: "r.test/b:1",
		Daemon: "r.test/d:1"}, NodeAgent: true})
	require.NoError(t, err)
	for _, o := range objects {
		require.NoError(t, e.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o),
			client.FieldOwner("test"), client.ForceOwnership), "%s %s", o.GetKind(), o.GetName())
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the apiserver compiles a new policy in the background
		for _, probe := range []client.Object{
			machineOSConfig("probe", "registry.example.test/a/b/c:tag"),
			annotated(machineOSConfig("probe", "registry.example.test/os:tag"), manifests.AnnotationRebuild, "no"),
			annotated(machineConfig("probe"), manifests.AnnotationOwnPostConfigAction, "Explode"),
			annotated(pool("probe", 0), manifests.AnnotationMaxDisruption, "Much"),
			annotated(pool("probe", 0), manifests.AnnotationRebootPolicy, "Soft"),
			annotated(machineConfiguration("{}"), manifests.AnnotationMirrorPolicy, "Nonsense"),
		} {
			assert.Error(c, e.Client.Create(t.Context(), probe, client.DryRunAll))
		}
	}, waitLimit, waitEvery)
	return e
}

func machineOSConfig(pool, pushSpec string) *mcfgv1.MachineOSConfig {
	return &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: pool},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
		RenderedImagePushSpec:   mcfgv1.ImageTagFormat(pushSpec),
	}}
}

func TestPushSpecPolicy(t *testing.T) {
	e := install(t)
	for pushSpec, stored := range map[string]bool{
		"registry.example.test/os:tag":                                       true,
		"registry.example.test/ns/os:tag":                                    true,
		"registry.example.test:5000/ns/os:5000":                              true,
		"10.0.0.1:5000/os/img:t":                                             true,
		"image-registry.openshift-image-registry.svc:5000/ns/name:t":         true,
		"registry.example.test/a/b/c:tag":                                    false,
		"registry.example.test:5000/a/b/c:5000":                              false,
		"image-registry.openshift-image-registry.svc:5000/na.me/x:t":         false,
		"registry.example.test/" + strings.Repeat("n/", 3) + "os:t":          false,
		"registry.example.test/" + strings.Repeat("r", 380) + ":t":           false,
		"registry.example.test/" + strings.Repeat("r", 447-22-72) + ":t":     true,
		"registry.example.test/" + strings.Repeat("r", 447-22-72+1) + ":t":   false,
		"registry.example.test/" + strings.Repeat("n", 61) + "/os:t":         true,
		"registry.example.test/" + strings.Repeat("n", 61) + "/" + "o.s_-:t": true,
	} {
		t.Run(pushSpec, func(t *testing.T) {
			// The status is the judge: what it takes must be accepted, what it refuses must be refused at once.
			repository := pushSpec[:strings.LastIndex(pushSpec, ":")]
			judge := machineOSConfig("judge", "registry.example.test/os:tag")
			require.NoError(t, e.Client.Create(t.Context(), judge))
			defer func() { require.NoError(t, e.Client.Delete(t.Context(), judge)) }()
			judge.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(repository + "@sha256:" + strings.Repeat("a", 64))
			require.Equal(t, stored, e.Client.Status().Update(t.Context(), judge) == nil, "the case's own expectation")

			err := e.Client.Create(t.Context(), machineOSConfig("case", pushSpec), client.DryRunAll)
			if stored {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, "renderedImagePushSpec")
		})
	}
}

func TestPolicyKeepsOldObjectsEditable(t *testing.T) {
	e := install(t)
	binding := metav1.ObjectMeta{Name: "dayone-push-spec"}
	policy := policyBinding(binding.Name)
	require.NoError(t, e.Client.Delete(t.Context(), policy))
	old := machineOSConfig("old", "registry.example.test/a/b/c:tag")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, e.Client.Create(t.Context(), old))
	}, waitLimit, waitEvery)
	install(t)
	old.Annotations = map[string]string{"edited": "elsewhere"}
	require.NoError(t, e.Client.Update(t.Context(), old))
	old.Spec.RenderedImagePushSpec = "registry.example.test/a/b/d:tag"
	require.True(t, apierrors.IsInvalid(e.Client.Update(t.Context(), old)))
	require.NoError(t, e.Client.Delete(t.Context(), old))
}

func TestNodeAgentRights(t *testing.T) {
	e := install(t)
	for _, name := range []string{"own", "other"} {
		require.NoError(t, e.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	agent := rest.CopyConfig(e.Config)
	agent.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + cluster.DefaultNamespace + ":" +
		cluster.Daemon,
		Groups: []string{"system:serviceaccounts", "system:authenticated"},
		Extra:  map[string][]string{"authentication.kubernetes.io/node-name": {"own"}}}
	c, err := client.New(agent, client.Options{Scheme: e.Scheme})
	require.NoError(t, err)
	patch := func(node, body string) error {
		return c.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
			client.RawPatch("application/merge-patch+json", []byte(body)))
	}
	const annotation = `{"metadata":{"annotations":{"machineconfiguration.openshift.io/state":"Done"}}}`
	// rights and policies hold a moment after they were made
	eventually := func(node, body string, says func(*assert.CollectT, error)) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) { says(c, patch(node, body)) }, waitLimit, waitEvery)
	}
	refused := func(why string) func(*assert.CollectT, error) {
		return func(c *assert.CollectT, err error) { assert.ErrorContains(c, err, why) }
	}
	eventually("own", annotation, func(c *assert.CollectT, err error) { assert.NoError(c, err) })
	eventually("other", annotation, refused(`the agent of node "own" may not change other`))
	eventually("own", `{"spec":{"unschedulable":true}}`, refused("annotations only"))
	eventually("own", `{"metadata":{"labels":{"node-role.kubernetes.io/master":""}}}`, refused("annotations only"))
	require.NoError(t, patch("own", annotation))
	require.True(t, apierrors.IsForbidden(c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "own"}})))
	require.True(t, apierrors.IsForbidden(c.List(t.Context(), &corev1.SecretList{})))
}

func TestControllersAreRestricted(t *testing.T) {
	e := install(t)
	o := cluster.Options{Images: cluster.Images{Controller: "r.test/c:1", Builder: "r.test/b:1"}}
	objects, err := cluster.Objects(o)
	require.NoError(t, err)
	builder, err := cluster.BuilderDeployment(o)
	require.NoError(t, err)
	require.NoError(t, e.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "restricted",
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}))
	tried := 0
	for _, object := range append(objects, builder) {
		if object.GetKind() != "Deployment" {
			continue
		}
		var d appsv1.Deployment
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &d))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "restricted", Name: d.Name}, Spec: d.Spec.Template.Spec}
		require.EventuallyWithT(t, func(c *assert.CollectT) { // admission hears of a priority class by a watch
			assert.NoError(c, e.Client.Create(t.Context(), pod.DeepCopy(), client.DryRunAll), d.Name)
		}, waitLimit, waitEvery)
		pod.Spec.Containers[0].SecurityContext = nil
		require.True(t, apierrors.IsForbidden(e.Client.Create(t.Context(), pod, client.DryRunAll)), "the level is in force")
		tried++
	}
	assert.Equal(t, 2, tried)
}
