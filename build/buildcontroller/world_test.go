package buildcontroller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

const (
	namespace  = defaultNamespace
	registry   = "registry.example.test:5000"
	base       = registry + "/os/base@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	plainText  = "FROM configs\nRUN true\n"
	brokenText = "FROM configs\nRUNN true\n"
)

// world is a cluster with the controller at work in it. Two make one: fakeWorld, whose API is controller-runtime's
// in-memory client, and realWorld with a real API server. Job pods are ended by runner in both, as a kubelet would.
type world struct {
	t      testing.TB
	client client.Client
	images *standInRegistry
	signer Signer
	runner *runner
	clock  *clock
	// step lets everybody do something once; restart ends the controller and starts another.
	step    func()
	restart func()
	// halt ends the controller of a realWorld.
	halt func()
	// patience is how many steps a state may take to come, idle how many show that nothing comes.
	patience, idle int
	lines          lines
	// beside lets MCO make the builds; it counts from the next restart on.
	beside bool
	// inCluster says that the control plane's own registries hold the images; it counts from the next restart on.
	inCluster bool
	// as is who the controller is beside MCO, in the real world.
	as *rest.Config
	// metrics are the controller's; they count from the next restart on. Nil: nobody reads them.
	metrics *prometheus.Registry
}

// clock can be set forward and back.
type clock struct {
	mu     sync.Mutex
	offset time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *clock) jump(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += by
}

func (w *world) ctx() context.Context { return context.Background() }

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		require.NoError(w.t, w.client.Create(w.ctx(), o))
	}
}

// basics are what every cluster has.
func (w *world) basics() {
	w.create(
		&mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName},
			Spec: controllerConfigSpec()},
		pushSecret("push"), pushSecret(DefaultPullSecret),
	)
}

func controllerConfigSpec() mcfgv1.ControllerConfigSpec {
	return mcfgv1.ControllerConfigSpec{BaseOSContainerImage: base, ImageRegistryBundleData: []mcfgv1.ImageRegistryBundle{},
		ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{}, Images: map[string]string{},
		KubeAPIServerServingCAData: []byte("ca"),
		RootCAData:                 []byte("ca"), ReleaseImage: "release", IPFamilies: mcfgv1.IPFamiliesIPv4}
}

func pushSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"` + registry + `":{"auth":"dTpw"}}}`)}}
}

// addPool makes a pool with a rendered config and opts it in.
func (w *world) addPool(name, file, text string) {
	w.t.Helper()
	w.create(newPool(name, ""))
	w.render(name, "a", file)
	w.create(newConfig(name, text))
}

func newPool(name, rendered string) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigPoolSpec{
		MachineConfigSelector: &metav1.LabelSelector{}, NodeSelector: &metav1.LabelSelector{}}}
	p.Spec.Configuration.Name = rendered
	return p
}

func newConfig(pool, text string) *mcfgv1.MachineOSConfig {
	c := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: pool},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
		RenderedImagePushSpec:   registry + "/os/custom:latest",
	}}
	setText(c, text)
	return c
}

func setText(c *mcfgv1.MachineOSConfig, text string) {
	c.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{}
	if text != "" {
		c.Spec.Containerfile = append(c.Spec.Containerfile, mcfgv1.MachineOSContainerfile{ContainerfileArch: mcfgv1.NoArch,
			Content: text})
	}
}

// render gives the pool another rendered config: one file with this content, under a name that the suffix tells apart.
func (w *world) render(pool, suffix, file string) string {
	w.t.Helper()
	name := "rendered-" + pool + "-" + suffix
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigSpec{Config: k8sruntime.RawExtension{Raw: ignition(file)}}}
	require.NoError(w.t, client.IgnoreAlreadyExists(w.client.Create(w.ctx(), mc)))
	w.editPool(pool, func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = name })
	return name
}

func ignition(file string) []byte {
	return []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"contents":{"source":"data:,` + file +
		`"},"mode":420,"path":"/etc/file"}]}}`)
}

// edit changes an object until nobody else writes at the same time.
func edit[T client.Object](w *world, key client.ObjectKey, into T, change func(T)) {
	w.t.Helper()
	for {
		require.NoError(w.t, w.client.Get(w.ctx(), key, into))
		before, ok := into.DeepCopyObject().(T)
		require.True(w.t, ok)
		change(into)
		bump(before, into)
		err := w.client.Update(w.ctx(), into)
		if isConflict(err) {
			continue
		}
		require.NoError(w.t, err)
		return
	}
}

func (w *world) editConfig(name string, change func(*mcfgv1.MachineOSConfig)) {
	w.t.Helper()
	edit(w, client.ObjectKey{Name: name}, &mcfgv1.MachineOSConfig{}, change)
}

func (w *world) editPool(name string, change func(*mcfgv1.MachineConfigPool)) {
	w.t.Helper()
	edit(w, client.ObjectKey{Name: name}, &mcfgv1.MachineConfigPool{}, change)
}

func (w *world) editText(name, text string) {
	w.t.Helper()
	w.editConfig(name, func(c *mcfgv1.MachineOSConfig) { setText(c, text) })
}

func (w *world) askRebuild(name string) {
	w.t.Helper()
	w.editConfig(name, func(c *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, manifests.AnnotationRebuild, "")
	})
}

func (w *world) config(name string) *mcfgv1.MachineOSConfig {
	w.t.Helper()
	c := &mcfgv1.MachineOSConfig{}
	require.NoError(w.t, w.client.Get(w.ctx(), client.ObjectKey{Name: name}, c))
	return c
}

func (w *world) pool(name string) *mcfgv1.MachineConfigPool {
	w.t.Helper()
	p := &mcfgv1.MachineConfigPool{}
	require.NoError(w.t, w.client.Get(w.ctx(), client.ObjectKey{Name: name}, p))
	return p
}

// builds are a pool's, by name.
func (w *world) builds(pool string) map[string]mcfgv1.MachineOSBuild {
	w.t.Helper()
	var list mcfgv1.MachineOSBuildList
	require.NoError(w.t, w.client.List(w.ctx(), &list))
	out := map[string]mcfgv1.MachineOSBuild{}
	for _, b := range list.Items {
		if b.Spec.MachineOSConfig.Name == pool {
			out[b.Name] = b
		}
	}
	return out
}

func (w *world) build(name string) mcfgv1.MachineOSBuild {
	w.t.Helper()
	b := mcfgv1.MachineOSBuild{}
	require.NoError(w.t, w.client.Get(w.ctx(), client.ObjectKey{Name: name}, &b))
	return b
}

func (w *world) inState(pool string, s machineosbuild.State) []mcfgv1.MachineOSBuild {
	w.t.Helper()
	var out []mcfgv1.MachineOSBuild
	for _, b := range w.builds(pool) {
		if machineosbuild.StateOf(&b) == s {
			out = append(out, b)
		}
	}
	return out
}

// until waits for a state.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for range w.patience {
		if is() {
			return
		}
		w.step()
	}
	require.FailNow(w.t, "it did not come to this: "+what, "%s", w.describe())
}

// rest lets everybody do what they want to do.
func (w *world) rest() {
	for range w.idle {
		w.step()
	}
}

func condition(c *mcfgv1.MachineOSConfig, kind string) metav1.Condition {
	for _, x := range c.Status.Conditions {
		if x.Type == kind {
			return x
		}
	}
	return metav1.Condition{}
}

func (w *world) available(pool string) bool {
	c := w.config(pool)
	return c.Status.ObservedGeneration == c.Generation && condition(c, ConditionAvailable).Status == metav1.ConditionTrue
}

func (w *world) degraded(pool string) bool {
	c := w.config(pool)
	return c.Status.ObservedGeneration == c.Generation && condition(c, ConditionDegraded).Status == metav1.ConditionTrue
}

func (w *world) buildDegraded(pool string) *mcfgv1.MachineConfigPoolCondition {
	for _, c := range w.pool(pool).Status.Conditions {
		if c.Type == mcfgv1.MachineConfigPoolImageBuildDegraded {
			return &c
		}
	}
	return nil
}

func (w *world) untilAvailable(pool string) {
	w.t.Helper()
	w.until(pool+" is available", func() bool { return w.available(pool) })
}
func (w *world) untilDegraded(pool string) {
	w.t.Helper()
	w.until(pool+" is degraded", func() bool { return w.degraded(pool) })
}

// made is what the image that a pool uses was made of, by what the Job was given.
func (w *world) made(pool string) made {
	return w.runner.made[digestOf(string(w.config(pool).Status.CurrentImagePullSpec))]
}

func (w *world) describe() string {
	var out strings.Builder
	var configs mcfgv1.MachineOSConfigList
	_ = w.client.List(w.ctx(), &configs)
	for _, c := range configs.Items {
		fmt.Fprintf(&out, "MachineOSConfig %s generation %d annotations %v image %s\n", c.Name, c.Generation, c.Annotations,
			c.Status.CurrentImagePullSpec)
		for _, x := range c.Status.Conditions {
			fmt.Fprintf(&out, "  %s=%s %s: %s\n", x.Type, x.Status, x.Reason, x.Message)
		}
		for _, b := range w.builds(c.Name) {
			fmt.Fprintf(&out, "  build %s %s deleting %v: %s\n", b.Name, machineosbuild.StateOf(&b), b.DeletionTimestamp != nil,
				machineosbuild.CauseOf(&b).Message)
		}
	}
	out.WriteString(w.lines.tail())
	return out.String()
}

// made is what went into an image.
type made struct{ base, file, text string }

func repositoryOf(reference string) string {
	repository, _, _ := strings.Cut(reference, "@")
	return repository
}

// lines keep the end of the controllers' log for failures.
type lines struct {
	mu   sync.Mutex
	last []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append(l.last, string(p))
	if len(l.last) > 60 {
		l.last = l.last[1:]
	}
	return len(p), nil
}

func (l *lines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "")
}

// options are the controller's in every world.
func (w *world) options() Options {
	log := logrus.New()
	log.SetOutput(&w.lines)
	log.SetLevel(logrus.DebugLevel)
	own := ""
	if w.inCluster {
		own = registry
	}
	o := Options{Registry: own, Log: logrus.NewEntry(log), Images: w.images, Finder: w.images, Sizes: w.images,
		Signer: w.signer,
		Job:    job.Options{BuilderImage: registry + "/builder:1"},
		Now:    w.clock.now, Platform: "linux/amd64", Poll: time.Second}
	if w.metrics != nil {
		o.Metrics = w.metrics
	}
	return o
}
