package wholesystem

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/target"
)

// objects are an installation's rights, with the policy that binds an agent to its own node; what a release brings;
// pools; the admin's rules.
func (w *world) objects() {
	w.env.InstallRights(w.t)
	image := "r.example.com/x/y:1"
	all, err := cluster.Objects(cluster.Options{NodeAgent: true, Images: cluster.Images{Controller: image, Builder: image,
		Daemon: image}})
	require.NoError(w.t, err)
	bound := 0
	for _, o := range all {
		if o.GetName() == "dayone-own-node" {
			require.NoError(w.t, w.env.Client.Create(w.t.Context(), o))
			bound++
		}
	}
	require.Equal(w.t, 2, bound, "policy and binding")
	w.create(w.controllerConfig())
	for _, name := range []string{master, worker, edge} {
		p := pool(name)
		p.Spec = mcfgv1.MachineConfigPoolSpec{
			MachineConfigSelector: metav1.SetAsLabelSelector(labels.Set{manifests.LabelRole: name}),
			NodeSelector:          metav1.SetAsLabelSelector(labels.Set{fleet.RoleLabel + name: ""})}
		w.create(p)
	}
	w.create(rules())
}

// controllerConfig names the base OS, and what controllers need to look at the registry's images as nodes do.
func (w *world) controllerConfig() *mcfgv1.ControllerConfig {
	auth, err := os.ReadFile(w.registry.AuthFile)
	require.NoError(w.t, err)
	return &mcfgv1.ControllerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName,
			Annotations: map[string]string{manifests.AnnotationStandalone: "true"}},
		Spec: mcfgv1.ControllerConfigSpec{BaseOSContainerImage: w.stock, IPFamilies: mcfgv1.IPFamiliesIPv4,
			InternalRegistryPullSecret: auth,
			ImageRegistryBundleData: []mcfgv1.ImageRegistryBundle{{File: strings.ReplaceAll(w.registry.Addr, ":", ".."),
				Data: w.registry.Authority.PEM}},
			ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{}, Images: map[string]string{},
			KubeAPIServerServingCAData: []byte("ca"), RootCAData: []byte("ca"), ReleaseImage: "release"},
	}
}

// rules are the admin's: what is below /etc/quiet concerns nobody, and two services are restarted for what they read.
func rules() *opv1.MachineConfiguration {
	type action = opv1.NodeDisruptionPolicySpecAction
	restart := func(unit opv1.NodeDisruptionPolicyServiceName) action {
		return action{Type: opv1.RestartSpecAction, Restart: &opv1.RestartService{ServiceName: unit}}
	}
	none, reload := action{Type: opv1.NoneSpecAction}, action{Type: opv1.DaemonReloadSpecAction}
	return &opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: opv1.MachineConfigurationSpec{
		StaticPodOperatorSpec: opv1.StaticPodOperatorSpec{OperatorSpec: opv1.OperatorSpec{ManagementState: opv1.Managed}},
		NodeDisruptionPolicy: opv1.NodeDisruptionPolicyConfig{
			SSHKey: opv1.NodeDisruptionPolicySpecSSHKey{Actions: []action{none}},
			Files: []opv1.NodeDisruptionPolicySpecFile{{Path: "/etc/app", Actions: []action{restart("app.service")}},
				{Path: "/etc/quiet", Actions: []action{none}}},
			Units: []opv1.NodeDisruptionPolicySpecUnit{{Name: "app.service", Actions: []action{reload, restart("app.service")}},
				{Name: "late.service", Actions: []action{reload, restart("late.service")}}}}}}
}

// configure gives a pool a MachineConfig, or changes it, and waits for what the render controller makes of it.
func (w *world) configure(pool, name string, c fleet.Content) (rendered string) {
	w.t.Helper()
	before := w.configOf(pool)
	mc, err := c.MachineConfig(name+"-"+pool, pool)
	require.NoError(w.t, err)
	if err := w.env.Client.Create(w.t.Context(), mc.DeepCopy()); apierrors.IsAlreadyExists(err) {
		change(w, &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: mc.Name}},
			func(o *mcfgv1.MachineConfig) { o.Spec.Config.Raw = mc.Spec.Config.Raw })
	} else {
		require.NoError(w.t, err)
	}
	return w.renderedAfter(pool, before)
}

func (w *world) configOf(name string) string {
	p := pool(name)
	_ = w.env.Client.Get(w.t.Context(), client.ObjectKeyFromObject(p), p) // it is asked again
	return p.Spec.Configuration.Name
}

// renderedAfter waits until a pool has another rendered config than before.
func (w *world) renderedAfter(pool, before string) (name string) {
	w.t.Helper()
	w.until("rendered for "+pool, func() bool {
		name = w.configOf(pool)
		return name != "" && name != before
	})
	return name
}

func (w *world) config(name string) *mcfgv1.MachineConfig {
	w.t.Helper()
	mc := &mcfgv1.MachineConfig{}
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKey{Name: name}, mc))
	return mc
}

// recipe is what else than the config makes an image: a Containerfile's part.
type recipe struct {
	mark  string
	noise int // bytes that take time to fetch
	// kernelless leaves out what no check but a node's own notices.
	kernelless bool
	// kernel is another one; empty: the base's.
	kernel string
	// agentless keeps the agent from starting.
	agentless bool
}

// image builds what a layered build of a pool's rendered config would be, and pushes it.
func (w *world) image(pool, config string, r recipe) string {
	w.t.Helper()
	mc := w.config(config)
	parsed, err := machineconfig.ParseRendered(mc.Spec.Config.Raw)
	require.NoError(w.t, err)
	layer, _, err := configlayer.Compile(parsed, configlayer.Options{})
	require.NoError(w.t, err)
	files, err := tarball.LayerFromOpener(func() (io.ReadCloser,
		error) {
		return io.NopCloser(bytes.NewReader(layer.Gzip())), nil
	}, tarball.WithMediaType(types.OCILayer))
	require.NoError(w.t, err)
	entries := []deploytest.Entry{{Name: "etc/os-mark", Body: r.mark + "\n"}, {Name: "usr/share/mark", Body: r.mark +
		"\n"}}
	if r.noise > 0 {
		random := make([]byte, r.noise)
		_, _ = rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%32s", r.mark)))).Read(random) // never fails
		entries = append(entries, deploytest.Entry{Name: "usr/share/noise", Body: string(random)})
	}
	if r.kernelless {
		entries = append(entries, deploytest.Entry{Name: "usr/lib/.wh.modules"})
	}
	if r.kernel != "" {
		entries = append(entries, deploytest.Entry{Name: "usr/lib/modules/" + baseimage.KernelVersion + "/vmlinuz",
			Body: r.kernel})
	}
	if r.agentless {
		entries = append(entries, deploytest.Entry{Name: "usr/lib/systemd/system/" + assets.AgentUnitName +
			".d/never.conf", Body: "[Unit]\nConditionPathExists=/never\n"})
	}
	base := w.base
	if pool == edge {
		base = w.tiny
	}
	img, err := mutate.AppendLayers(base, files, deploytest.Layer(w.t, entries...))
	require.NoError(w.t, err)
	hash, err := machineconfig.ContentHash(mc.Spec)
	require.NoError(w.t, err)
	return w.registry.Push(w.t, w.labelled(img, map[string]string{build.LabelConfigHash: hash,
		build.LabelRenderedConfig: config}), "os/"+pool)
}

func (w *world) labelled(img v1.Image, labels map[string]string) v1.Image {
	config, err := img.ConfigFile()
	require.NoError(w.t, err)
	config = config.DeepCopy()
	maps.Copy(config.Config.Labels, labels)
	img, err = mutate.ConfigFile(img, config)
	require.NoError(w.t, err)
	return img
}

// build is what machine-os-builder leaves when it has built a pool's config by a recipe: an image, the build that made
// it, and the pool's MachineOSConfig that names both. The recipe's mark is the build's ground: images of one differ in
// their config only.
func (w *world) build(pool, config string, r recipe) target.Target {
	t, c := w.t, w.env.Client
	t.Helper()
	image := w.image(pool, config, r)
	spec, _, _ := strings.Cut(image, "@")
	w.builds++
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", pool, w.builds),
		Labels: map[string]string{manifests.LabelRenderedMachineConfig: config},
		Annotations: map[string]string{manifests.AnnotationBuildGround: r.mark,
			manifests.AnnotationBuildAddress: fmt.Sprintf("%s-%s-%d", r.mark, config, w.builds)}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: config},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: pool},
			RenderedImagePushSpec: mcfgv1.ImageTagFormat(spec + ":x")}}
	w.create(b)
	start, end := metav1.NewTime(time.Now().Add(-time.Minute)), metav1.Now()
	was := b.DeepCopy()
	b.Status = mcfgv1.MachineOSBuildStatus{BuildStart: &start, BuildEnd: &end,
		DigestedImagePushSpec: mcfgv1.ImageDigestFormat(image),
		Builder: &mcfgv1.MachineOSBuilderReference{ImageBuilderType: mcfgv1.JobBuilder,
			Job: &mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: "x", Name: "y"}},
		Conditions: []metav1.Condition{{Type: string(mcfgv1.MachineOSBuildSucceeded), Status: metav1.ConditionTrue,
			Reason: "Ready", LastTransitionTime: end}}}
	require.NoError(t, c.Status().Patch(t.Context(), b, client.MergeFrom(was)))
	m := &mcfgv1.MachineOSConfig{}
	err := c.Get(t.Context(), client.ObjectKey{Name: pool}, m)
	if apierrors.IsNotFound(err) {
		m = &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool},
			Spec: mcfgv1.MachineOSConfigSpec{MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: pool},
				ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
				RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
				RenderedImagePushSpec:   mcfgv1.ImageTagFormat(spec + ":x")}}
		w.create(m)
	} else {
		require.NoError(t, err)
	}
	before := m.DeepCopy()
	m.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(image)
	m.Status.MachineOSBuild = &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds", Name: b.Name}
	require.NoError(t, c.Status().Patch(t.Context(), m, client.MergeFrom(before)))
	return target.Target{Config: config, Image: image}
}

// pods puts a pod onto every node of a pool that takes pods; it would have to leave before a reboot, and ends at once.
func (w *world) pods(pool, round string) {
	w.t.Helper()
	for _, h := range w.fleet.Of(pool) {
		if h.Object(w.t.Context()).Spec.Unschedulable {
			continue
		}
		p := podOf(h, round)
		p.Labels = map[string]string{"pool": pool}
		p.Spec = corev1.PodSpec{NodeName: h.Name, TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{Name: "c", Image: "r.example.com/x"}}}
		w.create(p)
	}
}

// podOf names a host's pod of a round.
func podOf(h *fleet.Host, round string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: h.Name + "-" + round}}
}

func (w *world) podsLeft(pool string) int {
	var pods corev1.PodList
	require.NoError(w.t, w.env.Client.List(w.t.Context(), &pods, client.InNamespace("default"),
		client.MatchingLabels{"pool": pool}))
	return len(pods.Items)
}
