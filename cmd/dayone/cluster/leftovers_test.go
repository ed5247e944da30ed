package cluster

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// changing are kinds that Kubernetes' own controllers write all the time.
var changing = []string{"Event", "Lease", "EndpointSlice", "Endpoints", "Pod", "ControllerRevision", "APIService",
	"ComponentStatus"}

// serviceNetworkFinalizer is what Kubernetes' controller of service networks puts upon one that it has seen.
const serviceNetworkFinalizer = "networking.k8s.io/service-cidr-finalizer"

// everythingIn gives every object of a cluster, without what its server and its controllers write into it.
func everythingIn(t *testing.T, e *kubetest.Env) map[string]string {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(e.Config)
	require.NoError(t, err)
	lists, err := d.ServerPreferredResources()
	require.NoError(t, err)
	all := map[string]string{}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, kind := range list.APIResources {
			if !slices.Contains(kind.Verbs, "list") || slices.Contains(changing, kind.Kind) {
				continue
			}
			var objects unstructured.UnstructuredList
			objects.SetGroupVersionKind(group.WithKind(kind.Kind + "List"))
			require.NoError(t, e.Client.List(t.Context(), &objects), kind.Kind)
			for _, o := range objects.Items {
				for _, field := range [][]string{{"status"}, {"metadata", "managedFields"}, {"metadata", "resourceVersion"},
					{"metadata", "generation"}, {"spec", "taints"},
					{"metadata", "annotations", appsv1.DeprecatedTemplateGeneration}} {
					unstructured.RemoveNestedField(o.Object, field...)
				}
				raw, err := json.Marshal(o.Object)
				require.NoError(t, err)
				all[kind.Kind+" "+o.GetNamespace()+"/"+o.GetName()] = string(raw)
			}
		}
	}
	return all
}

// made is what the programs make in the course of their work, as they make it.
func made(t *testing.T, e *kubetest.Env) {
	t.Helper()
	ours := map[string]string{cluster.LabelManagedBy: cluster.ManagedBy, cluster.LabelPartOf: cluster.ManagedBy}
	formerly := map[string]string{cluster.LabelPartOf: cluster.ManagedBy}
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.ConfigServer,
			Labels: formerly}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.PullSecretCopy,
			Labels: ours}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.ReleaseName,
			Labels: ours}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.RegistryName,
			Labels: ours}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
			Name: cluster.RegistryPeersName, Labels: ours}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
			Name: cluster.ReleaseName + "-1", Labels: ours}},
		releaseJob(ours),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.Controller}},
		&mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: ours},
			Spec: mcfgv1.MachineConfigNodeSpec{Node: mcfgv1.MCOObjectReference{Name: "n"},
				Pool:          mcfgv1.MCOObjectReference{Name: "worker"},
				ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: "rendered-worker-1"}}},
	} {
		require.NoError(t, e.Client.Create(t.Context(), o))
	}
	var patch strings.Builder
	for i, key := range []string{manifests.AnnotationPlan, manifests.AnnotationUpdateTimes, manifests.AnnotationPrefetch,
		manifests.AnnotationPrefetched, manifests.AnnotationPrefetchError, manifests.AnnotationForced,
		manifests.AnnotationSoftReboot, manifests.AnnotationLastBoot,
		manifests.AnnotationPinnedImageSets, manifests.AnnotationPinnedImageSetsDone,
		manifests.AnnotationPinnedImageSetsError, manifests.AnnotationRegistry, manifests.AnnotationRegistryKey,
		manifests.AnnotationRegistryAccount, manifests.AnnotationRegistryShared, manifests.AnnotationAgentProgress} {
		patch.WriteString(map[bool]string{true: "", false: ","}[i == 0] + `"` + key + `":"x"`)
	}
	for _, o := range []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}} {
		require.NoError(t, e.Client.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"annotations":{`+patch.String()+`}}}`))))
	}
	require.NoError(t, e.Client.Patch(t.Context(), &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "00-worker"}},
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+
			manifests.AnnotationRelease+`":"x","`+manifests.AnnotationReleaseBefore+`":"x"}}}`))))
	n := &corev1.Node{}
	require.NoError(t, e.Client.Get(t.Context(), client.ObjectKey{Name: "n"}, n))
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: manifests.TaintUpdateInProgress,
		Effect: corev1.TaintEffectPreferNoSchedule})
	require.NoError(t, e.Client.Update(t.Context(), n))
	// The node agent writes keys of MCO's, too; who wrote one is in the object's managed fields.
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		manifests.AnnotationSyncedControllerConfig: "7", manifests.AnnotationObservedServerCA: "false",
		manifests.AnnotationFinalizeFailure: "error: x"}}})
	require.NoError(t, err)
	require.NoError(t, e.Client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		client.RawPatch("application/merge-patch+json", raw), client.FieldOwner(cluster.Daemon)))
}

// reports writes on its node as an agent does that looks at it again and again, until it may no longer.
func reports(t *testing.T, e *kubetest.Env) <-chan error {
	t.Helper()
	c := rest.CopyConfig(e.Config)
	c.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + cluster.DefaultNamespace + ":" + cluster.Daemon,
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {"n"}}}
	agent, err := client.New(c, client.Options{Scheme: e.Client.Scheme()})
	require.NoError(t, err)
	report := func() error {
		return agent.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+
				manifests.AnnotationRegistry+`":"x"}}}`)))
	}
	require.NoError(t, report(), "it may while it is installed")
	ended := make(chan error, 1)
	go func() {
		for {
			if err := report(); err != nil {
				ended <- err
				return
			}
		}
	}()
	return ended
}

// noted: an older version that is installed over this one removes what is noted and not its own. The Deployment that
// the opt-in controller makes must be among it, or it would stay without its account.
func noted(t *testing.T, e *kubetest.Env) {
	t.Helper()
	var inventory corev1.ConfigMap
	require.NoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace,
		Name: "dayone-inventory"}, &inventory))
	var objects []struct{ Kind, Namespace, Name string }
	require.NoError(t, json.Unmarshal([]byte(inventory.Data["objects"]), &objects))
	type entry = struct{ Kind, Namespace, Name string }
	assert.Contains(t, objects, entry{"Deployment", cluster.DefaultNamespace, cluster.Builder})
	assert.Contains(t, objects, entry{"ServiceAccount", cluster.DefaultNamespace, cluster.Builder})
	builder, err := cluster.BuilderDeployment(cluster.Options{Images: cluster.Images{Builder: "b"}})
	require.NoError(t, err)
	require.NoError(t, e.Client.Create(t.Context(), builder))
}

// releaseJob is one that renders a release, and waits for a node.
func releaseJob(labels map[string]string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
		Name: cluster.ReleaseName + "-1", Labels: labels}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: cluster.ReleaseName,
			Containers: []corev1.Container{{Name: "c", Image: "r.test/mco:1"}}}}}}
}

// settled is what the cluster has once Kubernetes' own controllers have written all that they write into new objects:
// each namespace's service account and authority, each node's time to live of secrets, the service network's finalizer.
// Whatever else they do has stopped for a while.
func settled(t *testing.T, e *kubetest.Env) (now map[string]string) {
	t.Helper()
	const quiet = 2 * time.Second
	var since time.Time
	require.Eventually(t, func() bool {
		was := now
		now = everythingIn(t, e)
		if !maps.Equal(was, now) {
			since = time.Now()
		}
		count := 0
		for key, object := range now {
			kind, _, _ := strings.Cut(key, " ")
			switch {
			case kind == "Node" && !strings.Contains(object, corev1.ObjectTTLAnnotationKey),
				kind == "ServiceCIDR" && !strings.Contains(object, serviceNetworkFinalizer):
				return false
			case strings.HasSuffix(key, "/kube-root-ca.crt"), kind == "ServiceAccount" && strings.HasSuffix(key, "/default"):
				count++
			}
		}
		var namespaces corev1.NamespaceList
		require.NoError(t, e.Client.List(t.Context(), &namespaces))
		return count == 2*len(namespaces.Items) && time.Since(since) > quiet
	}, clusterWait, clusterEvery)
	return now
}

func TestUninstallLeavesTheClusterAsItWas(t *testing.T) {
	e := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	podsRun(t, e)
	// What stays is made beforehand: namespaces and what Kubernetes puts into them, the users' own, and an object that is
	// the cluster's as soon as it is there.
	objects, err := cluster.Objects(cluster.Options{NodeAgent: true, Images: cluster.Images{Controller: "a", Builder: "b",
		Daemon: "c"}})
	require.NoError(t, err)
	own := []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n",
			Annotations: map[string]string{manifests.AnnotationCurrentConfig: "rendered-worker-1",
				manifests.AnnotationSSH: manifests.SSHAccessed}}}, // by MCO's own agent
		&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker",
			Annotations: map[string]string{manifests.AnnotationMaintenanceWindows: "Sun 00:00-24:00"}}},
		machineOSConfig("worker"),
		&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "00-worker",
			Annotations: map[string]string{manifests.AnnotationGeneratedByController: "h"}}},
	}
	for _, o := range objects {
		if o.GetKind() == "Namespace" || o.GetAnnotations()[cluster.AnnotationCreateOnly] != "" {
			own = append(own, o)
		}
	}
	own = append(own, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: "push"}})
	for _, o := range own {
		require.NoError(t, e.Client.Create(t.Context(), o), o.GetName())
	}
	before := settled(t, e)
	kubeconfig := e.Kubeconfig(t)
	var agent <-chan error
	for _, args := range [][]string{{"install", "--image", "r.test/all:1", "--node-agent", "--approve-nodes",
		"--api-server", "https://api.example.com:6443", "--replicas", "1"}, {"uninstall", "--yes"}} {
		code, _, errs := dayone(t, append([]string{"cluster", "--kubeconfig", kubeconfig}, args...)...)
		require.Equal(t, cli.ExitOK, code, errs)
		if args[0] == "install" {
			made(t, e)
			noted(t, e)
			agent = reports(t, e)
		}
	}
	select {
	case err := <-agent:
		assert.True(t, apierrors.IsForbidden(err), "%v", err)
	case <-time.After(clusterWait):
		assert.Fail(t, "the agent may still write")
	}
	var after map[string]string
	assert.EventuallyWithT(t, func(c *assert.CollectT) { // what belonged to a Deployment goes after it
		after = everythingIn(t, e)
		assert.ElementsMatch(c, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
		for key := range before {
			if !strings.HasPrefix(key, "Namespace ") { // labelled by the installation; they stay with their labels
				assert.Equal(c, before[key], after[key], key)
			}
		}
	}, clusterWait, clusterEvery)
}
