package pages

import (
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/forecast"
)

// images fills in the images of dayone's programs.
func images(w *world) []string {
	ref := registryName + "/dayone/all@" + w.digest("os/worker:v1")
	return []string{"=REF", "=" + ref, "=NEW", "=" + ref, `"$CONTROLLER"`, ref, `"$BUILDER"`, ref, `"$DAEMON"`, ref}
}

// installs and upgrades are lines in which images are filled in; removes asks.
var (
	installs = how{begins: "dayone cluster install", fill: images}
	upgrades = how{begins: "dayone cluster upgrade", fill: images}
	removes  = how{begins: "dayone cluster uninstall", terminal: true}
)

// modesChapter installs dayone as each page says, and removes it.
func modesChapter() chapter {
	takes := how{begins: "dayone cluster install --take-over", fill: images, terminal: true}
	uninstalled := func(w *world) { w.must("dayone cluster uninstall --yes") }
	return chapter{name: "modes", goesOn: true, acts: []act{
		{page: "docs/operators/install.md", begins: "dayone cluster install", hows: []how{installs, upgrades, removes}},
		{page: "docs/users/kubeadm.md", begins: "dayone cluster install", hows: []how{installs}},
		{page: "docs/users/kubeadm.md", begins: "dayone cluster status", after: uninstalled},
		{page: "docs/operators/mode-builder.md", begins: "dayone cluster uninstall", before: machineConfigOperator,
			hows: []how{installs, removes}},
		{page: "docs/operators/mode-builder.md", begins: "dayone cluster install --mode builder --image " +
			"controller=REF --image builder=REF --image daemon=REF", hows: []how{installs}, after: uninstalled},
		{page: "docs/operators/mode-advisor.md", begins: "dayone cluster install", hows: []how{installs, upgrades, removes}},
		{page: "docs/operators/modes.md", begins: "dayone cluster install", hows: []how{installs}},
		{page: "docs/operators/modes.md", begins: "oc get clusteroperator", before: advised, after: uninstalled},
		{page: "docs/operators/advisor-builds.md", begins: "dayone cluster logs", before: advised, hows: []how{
			{begins: "oc get configmap -n dayone dayone-build-NAME", fill: func(*world) []string {
				return []string{"NAME", "name"}
			}}}},
		{page: "docs/operators/advisor-builds.md", begins: "oc annotate"},
		{page: "docs/operators/advisor-forecast.md", begins: "oc -n dayone"},
		{page: "docs/operators/mode-full.md", begins: "dayone cluster install", hows: []how{takes}},
		{page: "docs/operators/mode-full.md", begins: "kubectl -n openshift", before: released, after: uninstalled},
	}}
}

// machineConfigOperator makes its objects, as far as dayone looks for them.
func machineConfigOperator(w *world) {
	w.must("kubectl create deployment machine-config-operator -n " + cluster.DefaultNamespace + " --image r.test/mco:1")
}

// advised are the objects that controllers beside the Machine Config Operator write about builds and pools.
func advised(w *world) {
	w.Helper()
	w.written(
		&configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: "dayone"}},
		configMap(cluster.AdvisorNamespace, mcobuild.RecordName("name"), "summary", mcobuild.Records("worker")),
		configMap(cluster.AdvisorNamespace, forecast.ConfigMapPrefix+"worker", forecast.KeySummary, nil),
		configMap(cluster.AdvisorNamespace, cluster.StatusName, cluster.StatusConditions, nil),
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "explained"},
			InvolvedObject: corev1.ObjectReference{Namespace: "default"}, Reason: "BuildFailureExplained"})
}

// released is what the controllers write about a release, which the cluster has none of.
func released(w *world) {
	w.Helper()
	w.written(configMap(cluster.DefaultNamespace, cluster.ReleaseName, cluster.StatusConditions, nil))
}

func configMap(namespace, name, key string, labels map[string]string) client.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Data: map[string]string{key: "it is so"}}
}

// written makes objects that are not there.
func (w *world) written(objects ...client.Object) {
	w.Helper()
	for _, o := range objects {
		err := w.plane.env.Client.Create(w.Context(), o)
		require.NoError(w, client.IgnoreAlreadyExists(err), "%T %s", o, o.GetName())
	}
}

// streams is the object that lists a release's OS images.
func streams(w *world) {
	w.Helper()
	require.NoError(w, w.plane.env.Client.Create(w.Context(), &mcfgv1.OSImageStream{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "rhel-9"}}))
}

// pagesOfTheCluster are blocks about a cluster in mode full that has had its Day 1.
func pagesOfTheCluster() []act {
	one := func(word, name string) func(*world) []string {
		return func(*world) []string { return []string{word, name} }
	}
	file := func(*world) []string { return []string{"FILE", "admin.kubeconfig"} }
	return []act{
		{page: "docs/operators/builds.md", begins: "kubectl get", hows: []how{
			{begins: "kubectl describe machineosbuild", fill: buildOfWorkers},
			{begins: "dayone cluster logs", fill: one("POOL", "worker")}}},
		{page: "docs/operators/builds-in-cluster.md", begins: "kubectl annotate"},
		{page: "docs/operators/soft-reboot.md", begins: "kubectl annotate"},
		{page: "docs/operators/soft-reboot.md", begins: "dayone cluster why", hows: []how{
			{fill: one("worker-3", "worker-0")}}},
		{page: "docs/operators/rollout.md", begins: "dayone cluster why", hows: []how{
			{begins: "dayone cluster why NODE", fill: one("NODE", "worker-0")},
			{begins: "dayone cluster why POOL", fill: one("POOL", "worker")}}},
		{page: "docs/operators/rollout.md", begins: "kubectl get nodes", before: has("mkdir DIR")},
		{page: "docs/operators/rollout.md", begins: "kubectl get machineconfigs"},
		{page: "docs/operators/rollout.md", begins: "kubectl dayone", hows: []how{{serves: prints("dayone-controller")}}},
		{page: "docs/operators/disruption-policies.md", begins: "dayone cluster plan", before: func(w *world) {
			w.must("cp 50-app.yaml new.yaml; kubectl apply -f 50-app.yaml; cp -r installed D; cp -r installed EARLIER")
		}},
		{page: "docs/operators/opt-in.md", begins: "kubectl apply", before: has("cp cluster/.dayone/layering/worker.yaml " +
			"worker-machineosconfig.yaml || cp cluster/layering/worker.yaml worker-machineosconfig.yaml")},
		{page: "docs/operators/handover.md", begins: "dayone handover", hows: []how{{fill: file}}},
		{page: "docs/users/day1-standalone.md", begins: "dayone handover"},
		{page: "docs/users/kubeadm.md", begins: "dayone handover", before: has("cp admin.kubeconfig admin.conf")},
		{page: "docs/users/rendering.md", begins: "oc get osimagestream", before: all(streams, has("mkdir IN"))},
	}
}

// pagesOfRegistries are blocks about the control plane's own registries.
func pagesOfRegistries() []act {
	const page = "docs/operators/registry-in-cluster.md"
	return []act{
		{page: page, begins: "dayone cluster registry status"},
		{page: page, begins: "dayone cluster registry rotate --"},
		{page: page, begins: "dayone cluster registry rotate-ca", hows: []how{rotatesCA,
			{says: "Trusting: nodes get to trust the next CA"}}},
		{page: page, begins: "dayone cluster registry add"},
		{page: page, begins: "kubectl create secret"},
		{page: page, begins: "dayone cluster registry export"},
		{page: page, begins: "dayone registry node-config --registry " + planeRegistry +
			":22626 --to registry-files --rotate"},
	}
}

// buildOfWorkers fills in its name.
func buildOfWorkers(w *world) []string {
	name := w.must("kubectl get machineosbuilds -l " + manifests.LabelMachineOSConfig +
		"=worker -o jsonpath='{.items[0].metadata.name}'")
	return []string{"worker-HASH", name, "NAME", name}
}
