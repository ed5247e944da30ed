package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/nodestate"
)

// Versions of dayone that replace each other, one minor apart.
const (
	older = "v0.0.0-test"
	newer = "v0.1.0-test"
)

// systemctl stands in for the host's: it writes down what it was asked for, refuses to end the node, and a restart
// takes until the test lets it go.
const systemctl = `#!/bin/sh
echo "$*" >>/run/asked
case "$*" in
*reboot*|*poweroff*|*halt*) exit 1;;
restart*) while [ ! -e /run/go ]; do sleep 0.1; done;;
esac
`

// rollout is a cluster in which dayone's own controllers, as pods, bring a pool's config to the node.
type rollout struct {
	*world
	images map[string]cluster.Images // by version
}

// TestDayoneIsReplacedInTheMiddleOfARollout upgrades dayone's controllers and agents on a real kubelet's node and takes
// them back, each time while the node is on its way to another config: the new pods take up what the old ones began, no
// config is rendered anew, and no reboot is asked for.
func TestDayoneIsReplacedInTheMiddleOfARollout(t *testing.T) {
	w := &rollout{world: newWorld(t), images: map[string]cluster.Images{}}
	for _, v := range []string{older, newer} {
		w.images[v] = cluster.Images{Controller: w.image(cluster.Controller, v), Builder: "r.example/b:1",
			Daemon: w.image(cluster.Daemon, v)}
	}
	w.pool()
	w.apply(older, false)
	first := w.renderedFor("")
	w.host(first)
	w.onHostSystemctl()
	w.apply(older, true)
	w.until("the node says what it has", func() bool { return w.at(first.Name) })
	require.Empty(t, w.record().Reason)

	to := w.onItsWay("two", first.Name)
	w.replacedBy(newer)
	w.arrives(to, "two")
	to = w.onItsWay("three", to)
	w.replacedBy(older)
	w.arrives(to, "three")
	assert.Len(t, kubetest.RenderedConfigs(w.t, w.client), 3, "nothing is rendered but for what the pool was given")
	assert.NotContains(t, w.read("/run/asked"), "reboot")
}

// pool makes the node's pool, with one MachineConfig, and what dayone's hand-over leaves of the installation.
func (w *rollout) pool() {
	w.t.Helper()
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}})
	for _, name := range []string{cluster.PullSecretNamespace, cluster.EntitlementNamespace} {
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	secret, err := w.cluster.PullSecret(namespace, pull)
	require.NoError(w.t, err)
	w.create(secret)
	w.create(&mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName,
		Annotations: map[string]string{manifests.AnnotationStandalone: ""}}, Spec: w.controllerConfig()})
	role := map[string]string{"node-role.kubernetes.io/worker": ""}
	n := w.node()
	maps.Copy(n.Labels, role)
	require.NoError(w.t, w.client.Update(w.t.Context(), n))
	mc := w.config("50-app", "one")
	mc.Labels = map[string]string{manifests.LabelRole: "worker"}
	w.create(mc)
	w.create(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Spec: mcfgv1.MachineConfigPoolSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: role},
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: mc.Labels}}})
}

// apply applies what `dayone cluster install` and `upgrade` do for controllers and agents, with the tree in place of
// the node's root.
func (w *rollout) apply(version string, agent bool) {
	w.t.Helper()
	objects, err := cluster.Objects(cluster.Options{NodeAgent: true, ImagePullSecret: pull, Replicas: 1,
		Images: w.images[version]})
	require.NoError(w.t, err)
	for _, o := range objects {
		switch {
		case o.GetKind() == "Namespace", o.GetKind() == "DaemonSet" && (o.GetName() != cluster.Daemon || !agent):
			continue
		case o.GetKind() == "DaemonSet":
			require.NoError(w.t, unstructured.SetNestedField(hostPath(w.t, o), w.root, "path"))
		case o.GetKind() == "MachineConfiguration":
			restart := map[string]any{"type": "Restart", "restart": map[string]any{"serviceName": "app.service"}}
			require.NoError(w.t, unstructured.SetNestedMap(o.Object, map[string]any{"files": []any{map[string]any{
				"path": "/etc/app", "actions": []any{restart}}}}, "spec", "nodeDisruptionPolicy"))
		}
		w.until("applied "+o.GetKind()+" "+o.GetName(), func() bool {
			err := w.client.Apply(w.t.Context(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()),
				client.FieldOwner("dayone"), client.ForceOwnership)
			if err != nil {
				w.t.Log(err)
			}
			return err == nil
		})
	}
}

// onHostSystemctl puts the stand-in into the tree.
func (w *rollout) onHostSystemctl() {
	w.t.Helper()
	file := filepath.Join(w.dir, "systemctl")
	require.NoError(w.t, os.WriteFile(file, []byte(systemctl), 0o755))
	w.onNode("sh", "-ec", fmt.Sprintf(`[ -e %[1]s ] || touch %[1]s; mount --bind %[2]s %[1]s`,
		w.root+"/usr/bin/systemctl", file))
}

// renderedFor waits until the pool has another rendered config than before.
func (w *rollout) renderedFor(before string) *mcfgv1.MachineConfig {
	w.t.Helper()
	m := &mcfgv1.MachineConfig{}
	w.until("the pool has a rendered config", func() bool {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKey{Name: "worker"}, p))
		name := p.Spec.Configuration.Name
		return name != "" && name != before && w.client.Get(w.t.Context(), client.ObjectKey{Name: name}, m) == nil
	})
	return m
}

func (w *rollout) at(config string) bool {
	r := w.record()
	return r.State == nodestate.StateDone && r.CurrentConfig == config
}

// onItsWay gives the pool another text and waits until the agent is in the middle of it: the service that reads the
// file is being restarted.
func (w *rollout) onItsWay(text, before string) (to string) {
	w.t.Helper()
	w.onNode("sh", "-ec", fmt.Sprintf("rm -f %[1]s/go; : >>%[1]s/asked; echo next >>%[1]s/asked", w.root+"/run"))
	mc := &mcfgv1.MachineConfig{}
	require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKey{Name: "50-app"}, mc))
	mc.Spec.Config = w.config("50-app", text).Spec.Config
	require.NoError(w.t, w.client.Update(w.t.Context(), mc))
	to = w.renderedFor(before).Name
	w.until("app is being restarted for "+text, func() bool {
		asked := w.read("/run/asked")
		return strings.Contains(asked[strings.LastIndex(asked, "next"):], "restart app.service")
	})
	return to
}

// replacedBy lets a version take the place of what runs, and waits until nothing of another one does. The node is still
// on its way then.
func (w *rollout) replacedBy(version string) {
	w.t.Helper()
	w.apply(version, true)
	want := w.images[version]
	w.until("all pods are of "+version, func() bool {
		var d appsv1.Deployment
		var pods corev1.PodList
		if w.client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: cluster.Controller}, &d) != nil ||
			d.Status.ObservedGeneration < d.Generation || d.Status.AvailableReplicas != 1 ||
			w.client.List(w.t.Context(), &pods, client.InNamespace(namespace)) != nil {
			return false
		}
		images := make([]string, 0, len(pods.Items))
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning && len(p.Status.ContainerStatuses) > 0 &&
				p.Status.ContainerStatuses[0].Ready && p.DeletionTimestamp == nil {
				images = append(images, p.Spec.Containers[0].Image)
			}
		}
		slices.Sort(images)
		return len(pods.Items) == 2 && slices.Equal(images, slices.Sorted(slices.Values([]string{want.Controller,
			want.Daemon})))
	})
	assert.NotEqual(w.t, nodestate.StateDone, w.record().State)
}

// arrives lets the restart end, and looks at the node.
func (w *rollout) arrives(to, text string) {
	w.t.Helper()
	w.onNode("touch", w.root+"/run/go")
	w.until("the node has "+to, func() bool { return w.at(to) })
	assert.Equal(w.t, text, w.read("/etc/app/text"))
	assert.Empty(w.t, w.record().Reason)
	p := &mcfgv1.MachineConfigPool{}
	w.until("its pool says so", func() bool {
		require.NoError(w.t, w.client.Get(context.Background(), client.ObjectKey{Name: "worker"}, p))
		return p.Status.UpdatedMachineCount == 1 && p.Status.Configuration.Name == to
	})
	assert.Equal(w.t, to, p.Spec.Configuration.Name, "the pool was rendered for nothing else")
	assert.Zero(w.t, p.Status.DegradedMachineCount)
}
