package optin

import (
	"encoding/json"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

func TestBuilderStartsAndStops(t *testing.T) {
	w := newWorld(t)
	w.builderIs(phaseIdle, "0 of 0")
	w.create(secret(cluster.PullSecretNamespace, cluster.PullSecretName, "global"), secret(ns, "push", "p"),
		pool("worker"), machineOSConfig("worker", "worker"))
	w.optedIn("worker", reasonOptedIn)
	w.builderIs(phaseStarting, "1 of 1 MachineOSConfigs opted in")
	w.podsRun()
	w.builderIs(phaseRunning, "1 of 1")
	var d appsv1.Deployment
	require.NoError(t, w.Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: cluster.Builder}, &d))
	assert.Equal(t, "registry.test:5000/builder:v1", d.Spec.Template.Spec.Containers[0].Image)
	w.eventually(func(c *assert.CollectT) {
		var copied corev1.Secret
		w.get(c, &copied, ns, cluster.PullSecretCopy)
		assert.Equal(c, secret("", "", "global").Data, copied.Data)
	})

	build, work, input := machineOSBuild("worker-1", "worker"), buildJob("build-worker-1", "worker"),
		&corev1.Secret{ObjectMeta: buildMeta("input", "worker")}
	w.create(build, work, input, builderLease())
	w.delete(machineOSConfig("worker", "worker"))
	w.builderIs(phaseStopping, "waits for Job build-worker-1, MachineOSBuild worker-1 (Initial), Secret input")
	w.delete(build)
	w.builderIs(phaseStopping, "waits for Job build-worker-1, Secret input")
	w.delete(work)
	w.builderIs(phaseStopping, "waits for Secret input")
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(&d), &d),
		"it is not stopped as long as something is left")
	assert.Nil(t, d.DeletionTimestamp)
	w.delete(input)
	w.podsEnd()
	w.absent(&d, ns, cluster.Builder)
	w.absent(&corev1.Secret{}, ns, cluster.PullSecretCopy)
	w.absent(builderLease(), ns, cluster.Builder)
	w.builderIs(phaseIdle, "0 of 0")
	require.NoError(t, w.Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "push"}, &corev1.Secret{}),
		"the user's Secret stays")
	w.eventually(func(c *assert.CollectT) {
		var list eventsv1.EventList
		assert.NoError(c, w.Client.List(t.Context(), &list, client.InNamespace("default")))
		reasons := map[string]bool{}
		for _, e := range list.Items {
			reasons[e.Reason] = true
		}
		for _, want := range []string{reasonOptedIn, "MachineOSBuilderStarting", "MachineOSBuilderRunning",
			"MachineOSBuilderStopping", "MachineOSBuilderNoPoolOptedIn"} {
			assert.True(c, reasons[want], want)
		}
	})
}

func TestInvalidConfig(t *testing.T) {
	w := newWorld(t)
	bad := machineOSConfig("infra", "infra")
	w.create(bad)
	w.optedIn("infra", reasonPoolMissing)
	w.builderIs(phaseIdle, "0 of 1")

	w.create(pool("infra"))
	w.optedIn("infra", reasonSecretMissing)
	push := secret(ns, "push", "p")
	push.Data = map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}
	w.create(push)
	w.optedIn("infra", reasonSecretUnusable)

	good := machineOSConfig("worker", "worker")
	good.Spec.RenderedImagePushSecret.Name = "other"
	w.create(secret(ns, "other", "p"), pool("worker"), good)
	w.optedIn("worker", reasonOptedIn)
	w.optedIn("infra", reasonSecretUnusable)
	w.builderIs(phaseStarting, "1 of 2")

	push.Data = secret("", "", "p").Data
	require.NoError(t, w.Client.Update(t.Context(), push))
	w.optedIn("infra", reasonOptedIn)
	w.builderIs(phaseStarting, "2 of 2")

	// Turned bad again, it is said, and the builder goes on.
	w.delete(push)
	w.optedIn("infra", reasonSecretMissing)
	w.optedIn("worker", reasonOptedIn)
	w.delete(good)
	w.builderIs(phaseStarting, "0 of 1")
}

func TestConditionsOfOthers(t *testing.T) {
	w := newWorld(t)
	config := machineOSConfig("worker", "worker")
	w.create(secret(ns, "push", "p"), config)
	w.optedIn("worker", reasonPoolMissing)
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(config), config))
	old := config.DeepCopy()
	meta.SetStatusCondition(&config.Status.Conditions, metav1.Condition{Type: "Degraded", Status: metav1.ConditionFalse,
		Reason: "Fine", Message: "m"})
	config.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat("registry.example.test/os/image@sha256:" + digest)
	require.NoError(t, w.Client.Status().Patch(t.Context(), config, client.MergeFrom(old)))
	w.create(pool("worker"))
	w.optedIn("worker", reasonOptedIn)
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(config), config))
	assert.NotNil(t, meta.FindStatusCondition(config.Status.Conditions, "Degraded"))
	assert.Contains(t, config.Status.CurrentImagePullSpec, digest)
}

const digest = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func TestEntitlementCopies(t *testing.T) {
	w := newWorld(t)
	source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.EntitlementNamespace,
		Name: cluster.EntitlementName},
		Data: map[string][]byte{"entitlement.pem": []byte("one")}}
	config := machineOSConfig("worker", "worker")
	w.create(secret(ns, "push", "p"), pool("worker"), config)
	w.optedIn("worker", reasonOptedIn)
	w.create(source)
	copied := func(want string) {
		t.Helper()
		w.eventually(func(c *assert.CollectT) {
			var have corev1.Secret
			w.get(c, &have, ns, "etc-pki-entitlement-worker")
			assert.Equal(c, want, string(have.Data["entitlement.pem"]))
		})
	}
	copied("one")
	source.Data["entitlement.pem"] = []byte("two")
	require.NoError(t, w.Client.Update(t.Context(), source))
	copied("two")

	// A build still uses it.
	work := buildJob("build-worker-1", "worker")
	w.create(work)
	w.delete(config)
	w.builderIs(phaseStopping, "waits for Job build-worker-1")
	copied("two")
	w.delete(work)
	w.absent(&corev1.Secret{}, ns, "etc-pki-entitlement-worker")

	// What was deleted while nobody looked is found after a restart.
	w.create(machineOSConfig("worker", "worker"))
	copied("two")
	w.stop()
	w.delete(machineOSConfig("worker", "worker"))
	w.start()
	w.absent(&corev1.Secret{}, ns, "etc-pki-entitlement-worker")
	w.delete(source)
}

func TestDeploymentRestored(t *testing.T) {
	w := newWorld(t)
	w.create(secret(ns, "push", "p"), pool("worker"), machineOSConfig("worker", "worker"))
	w.builderIs(phaseStarting, "1 of 1")
	var d appsv1.Deployment
	require.NoError(t, w.Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: cluster.Builder}, &d))
	was := d.DeepCopy()
	d.Spec.Template.Spec.Containers[0].Image = "registry.test:5000/other:v1"
	require.NoError(t, w.Client.Patch(t.Context(), &d, client.MergeFrom(was))) // whatever the controller writes meanwhile
	w.eventually(func(c *assert.CollectT) {
		w.get(c, &d, ns, cluster.Builder)
		assert.Equal(c, "registry.test:5000/builder:v1", d.Spec.Template.Spec.Containers[0].Image)
	})
	w.delete(&d)
	w.eventually(func(c *assert.CollectT) {
		var again appsv1.Deployment
		w.get(c, &again, ns, cluster.Builder)
		assert.NotEqual(c, d.UID, again.UID)
	})
}

func TestNoWrites(t *testing.T) {
	w := newWorld(t)
	w.create(secret(cluster.PullSecretNamespace, cluster.PullSecretName, "global"), secret(ns, "push", "p"),
		pool("worker"), machineOSConfig("worker", "worker"))
	w.podsRun()
	w.builderIs(phaseRunning, "1 of 1")
	versions := func() map[string]string {
		var d appsv1.Deployment
		var m mcfgv1.MachineOSConfig
		var s corev1.Secret
		require.NoError(t, w.Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: cluster.Builder}, &d))
		require.NoError(t, w.Client.Get(t.Context(), types.NamespacedName{Name: "worker"}, &m))
		require.NoError(t, w.Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: cluster.PullSecretCopy}, &s))
		// Kubernetes' own controllers write a Deployment's status whenever they like.
		d.Status, d.ResourceVersion, d.ManagedFields = appsv1.DeploymentStatus{}, "", nil
		raw, err := json.Marshal(d)
		require.NoError(t, err)
		return map[string]string{"deployment": string(raw), "config": m.ResourceVersion, "secret": s.ResourceVersion}
	}
	// It is there before the restart: a MachineOSConfig that is seen before its pool is written about twice.
	w.create(pool("infra"))
	before := versions()
	w.stop()
	w.writes.Store(0)
	w.start()
	// A change that matters to nobody, seen by both controllers, proves that they have been through everything.
	marker := secret(ns, "push", "p")
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(marker), marker))
	w.create(machineOSConfig("infra", "infra"))
	w.optedIn("infra", reasonOptedIn)
	w.builderIs(phaseRunning, "2 of 2")
	after := versions()
	assert.Equal(t, before, after)
	// The new MachineOSConfig's condition, the builder's message, and one apply of the Deployment that changes nothing;
	// events apart.
	assert.LessOrEqual(t, w.writes.Load(), int64(5))
}

func TestForeignObjects(t *testing.T) {
	w := newWorld(t)
	foreign := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: cluster.Builder},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "r.test/c:1"}}}}}}
	w.create(foreign, secret(ns, cluster.EntitlementCopy("worker"), "mine"),
		secret(cluster.EntitlementNamespace, cluster.EntitlementName, "theirs"))
	w.create(secret(ns, "push", "p"), pool("worker"), machineOSConfig("worker", "worker"))
	w.optedIn("worker", reasonOptedIn)
	w.builderIs(phaseBlocked, "was not made by dayone")
	w.delete(machineOSConfig("worker", "worker"))
	w.builderIs(phaseBlocked, "was not made by dayone")
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	var kept corev1.Secret
	require.NoError(t, w.Client.Get(t.Context(),
		types.NamespacedName{Namespace: ns, Name: cluster.EntitlementCopy("worker")}, &kept))
	assert.Equal(t, secret("", "", "mine").Data, kept.Data)
	w.delete(foreign)
	w.builderIs(phaseIdle, "0 of 0")
}

func TestConfigOfAnotherName(t *testing.T) {
	w := newWorld(t)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	name := types.NamespacedName{Name: "machineosconfigs.machineconfiguration.openshift.io"}
	require.NoError(t, w.Client.Get(t.Context(), name, crd))
	rules := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations
	setRules := func(rules apiextensionsv1.ValidationRules) {
		w.eventually(func(c *assert.CollectT) { // the API server itself writes the definition's status
			assert.NoError(c, w.Client.Get(t.Context(), name, crd))
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations = rules
			assert.NoError(c, w.Client.Update(t.Context(), crd))
		})
	}
	setRules(nil)
	// Such an object was there before the policy that refuses it.
	w.delete(&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "dayone-machineosconfig"}})
	w.create(secret(ns, "push", "p"), pool("worker"), secret(cluster.EntitlementNamespace, cluster.EntitlementName, "e"))
	old := machineOSConfig("old", "worker")
	w.eventually(func(c *assert.CollectT) { assert.NoError(c, w.Client.Create(t.Context(), old)) })
	setRules(rules)
	w.optedIn("old", reasonOptedIn)
	copied := &corev1.Secret{}
	w.eventually(func(c *assert.CollectT) { w.get(c, copied, ns, cluster.EntitlementCopy("worker")) })

	// The rightful one takes the pool over; when it goes, the old one has it again.
	w.create(machineOSConfig("worker", "worker"))
	w.optedIn("worker", reasonOptedIn)
	w.optedIn("old", reasonPoolTaken)
	w.delete(machineOSConfig("worker", "worker"))
	w.optedIn("old", reasonOptedIn)
	uid := copied.UID
	w.eventually(func(c *assert.CollectT) { w.get(c, copied, ns, cluster.EntitlementCopy("worker")) })
	assert.Equal(t, uid, copied.UID, "the copy stayed")
	w.delete(old)
	w.absent(copied, ns, cluster.EntitlementCopy("worker"))
}
