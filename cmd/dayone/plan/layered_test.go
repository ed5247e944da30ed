package plan_test

import (
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/poolrequest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/rendercontroller/inputs"
	"dayone.dev/dayone/rebase/fleet/snapshot"
)

const (
	// layeredApp has a file with a rule and one without.
	layeredApp = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-app, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  config: {ignition: {version: 3.5.0}, storage: {files: [
    {path: /etc/containers/policy.json, contents: {source: "data:,old"}},
    {path: /etc/app.conf, contents: {source: "data:,app"}}]}}
`
	layeredImage = "r.example.com/os/worker@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	otherDigest  = "@sha256:3333333333333333333333333333333333333333333333333333333333333333"
)

func layeredController() *mcfgv1.ControllerConfig {
	return &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName,
		Annotations: map[string]string{manifests.AnnotationStandalone: ""}}, Spec: mcfgv1.ControllerConfigSpec{
		Images: map[string]string{}, KubeAPIServerServingCAData: []byte("CA"), RootCAData: []byte("CA"),
		BaseOSContainerImage:           "r.example.com/base/os@sha256:" + strings.Repeat("2", 64),
		BaseOSExtensionsContainerImage: "r.example.com/base/extensions@sha256:" + strings.Repeat("4", 64)}}
}

func layeredConfig() *mcfgv1.MachineOSConfig {
	return &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: "worker"},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
		RenderedImagePushSpec:   "r.example.com/os/worker:x",
		Containerfile: []mcfgv1.MachineOSContainerfile{
			{ContainerfileArch: mcfgv1.NoArch, Content: "FROM configs AS final\n"}}}}
}

// layeredWorld is two workers that have the image which dayone's builder has made of their pool's config.
func layeredWorld(t testing.TB, more ...client.Object) []client.Object {
	t.Helper()
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}},
		MachineConfigSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{manifests.LabelRole: "worker"}}}}
	set, err := manifests.Read([]byte(layeredApp), "app.yaml", manifests.ReadOptions{})
	require.NoError(t, err)
	cc, mosc := layeredController(), layeredConfig()
	objects := append([]client.Object{pool, cc, mosc, set.MachineConfigs[0].Object}, more...)
	d, err := snapshot.ReadDump(writeDump(t, objects))
	require.NoError(t, err)
	config, err := inputs.Preview(t.Context(), d, pool,
		inputs.Options{Versions: render.VersionsOf("v0")})
	require.NoError(t, err)
	pool.Spec.Configuration.Name = config.Name
	request, err := poolrequest.Of(mosc, config, cc, cc.Spec.BaseOSContainerImage, "linux/amd64")
	require.NoError(t, err)
	address, err := request.Address()
	require.NoError(t, err)
	ground, err := request.Ground()
	require.NoError(t, err)
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: machineosbuild.Name("worker", address),
		Labels:      machineosbuild.Labels("worker", "worker", config.Name),
		Annotations: machineosbuild.Annotations(address, "push")}}
	b.Annotations[manifests.AnnotationBuildGround] = ground
	b.Spec = mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: config.Name},
		MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: "worker"},
		RenderedImagePushSpec: "r.example.com/os/worker:x"}
	require.NoError(t, machineosbuild.Move(b, machineosbuild.Succeeded, machineosbuild.Cause{Reason: "Built"}, time.Now()))
	b.Status.DigestedImagePushSpec = layeredImage
	mosc.Annotations = map[string]string{manifests.AnnotationCurrentBuild: b.Name}
	mosc.Status = mcfgv1.MachineOSConfigStatus{CurrentImagePullSpec: layeredImage,
		MachineOSBuild: &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds", Name: b.Name}}
	objects = append(objects, config, b)
	for _, name := range []string{"w0", "w1"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{"node-role.kubernetes.io/worker": ""}, Annotations: map[string]string{
				manifests.AnnotationCurrentConfig: config.Name, manifests.AnnotationDesiredConfig: config.Name,
				manifests.AnnotationCurrentImage: layeredImage, manifests.AnnotationDesiredImage: layeredImage,
				manifests.AnnotationState: "Done"}}}
		n.Status.NodeInfo.Architecture = "amd64"
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		objects = append(objects, n)
	}
	return objects
}

// TestANextImageIsWaitedFor has every node at the pool's present image while another is on its way.
func TestANextImageIsWaitedFor(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	for _, c := range []struct {
		name, want string
		code       int
		change     func(*mcfgv1.MachineOSConfig, *mcfgv1.MachineOSBuild) []client.Object
	}{
		{"nothing is on its way", "", 0,
			func(*mcfgv1.MachineOSConfig, *mcfgv1.MachineOSBuild) []client.Object { return nil }},
		{"it is being built", "MachineOSBuild worker-next", 4,
			func(c *mcfgv1.MachineOSConfig, b *mcfgv1.MachineOSBuild) []client.Object {
				next := b.DeepCopy()
				next.Name, next.Status = "worker-next", mcfgv1.MachineOSBuildStatus{}
				require.NoError(t, machineosbuild.Move(next, machineosbuild.Building, machineosbuild.Cause{}, time.Now()))
				c.Annotations[manifests.AnnotationCurrentBuild] = next.Name
				return []client.Object{next}
			}},
		{"it is asked for", "a build that is asked for and has not begun", 4,
			func(c *mcfgv1.MachineOSConfig, _ *mcfgv1.MachineOSBuild) []client.Object {
				c.Annotations[manifests.AnnotationRebuild] = ""
				return nil
			}},
		{"nobody has seen the change", "what the builder makes of the latest change", 4,
			func(c *mcfgv1.MachineOSConfig, _ *mcfgv1.MachineOSBuild) []client.Object {
				c.Generation, c.Status.ObservedGeneration = 2, 1
				return nil
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects := layeredWorld(t)
			var mosc *mcfgv1.MachineOSConfig
			var built *mcfgv1.MachineOSBuild
			for _, o := range objects {
				switch o := o.(type) {
				case *mcfgv1.MachineOSConfig:
					mosc = o
				case *mcfgv1.MachineOSBuild:
					built = o
				}
			}
			dir := writeDump(t, append(objects, c.change(mosc, built)...))
			for _, ask := range []string{"plan", "why worker", "why w0"} {
				args := append([]string{"cluster"}, strings.Fields(ask)...)
				code, out, errs := dayone(t, append(args, "--from", dir, "--exit-code")...)
				assert.Equal(t, c.code, code, "%s: %s%s", ask, out, errs)
				if ask != "why w0" {
					assert.Equal(t, c.want != "", strings.Contains(out, "  next image: "+c.want+"\n"), out)
				}
			}
		})
	}
}

// text writes an object that a change was made to as a user would.
func text[T client.Object](t *testing.T, kind string, o T, change func(T)) string {
	t.Helper()
	change(o)
	o.GetObjectKind().SetGroupVersionKind(mcfgv1.GroupVersion.WithKind(kind))
	raw, err := yaml.Marshal(o)
	require.NoError(t, err)
	return string(raw)
}

// TestPlanOfLayeredPools changes everything that an image is made of: what no rule can bring to a running node reboots
// it, and nothing of that is called quiet.
func TestPlanOfLayeredPools(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	objects := layeredWorld(t)
	dir := writeDump(t, objects)
	spec := func(line string) string { return strings.Replace(layeredApp, "spec:\n", "spec:\n  "+line+"\n", 1) }
	mosc := func(change func(*mcfgv1.MachineOSConfig)) string {
		return text(t, "MachineOSConfig", layeredConfig(), change)
	}
	const reboot = "Reboot for 2 nodes: Drain on 2, Reboot on 2"
	for _, c := range []struct {
		name string
		file string
		code int
		want []string
	}{
		{"nothing new", layeredApp, 0, []string{"nothing happens to its nodes"}},
		{"the MachineOSConfig as it is", mosc(func(*mcfgv1.MachineOSConfig) {}), 0, []string{"nothing happens"}},
		{"another label of it", mosc(func(m *mcfgv1.MachineOSConfig) { m.Labels = map[string]string{"a": "b"} }), 0,
			[]string{"nothing happens"}},
		{"a file with a rule", strings.Replace(layeredApp, "old", "new", 1), 2,
			[]string{"Reload for 2 nodes: Reload crio.service on 2", "it differs in the config only"}},
		{"a file without a rule", strings.Replace(layeredApp, "data:,app", "data:,new", 1), 4, []string{reboot}},
		{"another osImageURL", spec("osImageURL: r.example.com/own/os" + otherDigest), 4,
			[]string{reboot, "with other content", "its base, its Containerfile or its extensions differ"}},
		{"another osImageURL and a file with a rule", strings.Replace(spec("osImageURL: r.example.com/own/os"+otherDigest),
			"old", "new", 1), 4, []string{reboot}},
		{"the base by another name", spec("osImageURL: mirror.example.com/base/os@sha256:" + strings.Repeat("2", 64)), 0,
			[]string{}},
		{"another base in the ControllerConfig", text(t, "ControllerConfig", layeredController(),
			func(c *mcfgv1.ControllerConfig) { c.Spec.BaseOSContainerImage = "r.example.com/base/os" + otherDigest }), 4,
			[]string{reboot, "with other content"}},
		{"another trust bundle", text(t, "ControllerConfig", layeredController(),
			func(c *mcfgv1.ControllerConfig) { c.Spec.AdditionalTrustBundle = []byte("PEM") }), 4, []string{reboot}},
		{"extensions that no image uses", text(t, "ControllerConfig", layeredController(),
			func(c *mcfgv1.ControllerConfig) {
				c.Spec.BaseOSExtensionsContainerImage = "r.example.com/e" + otherDigest
			}), 0,
			[]string{}},
		{"a rebuild", mosc(func(m *mcfgv1.MachineOSConfig) {
			m.Annotations = map[string]string{manifests.AnnotationRebuild: ""}
		}), 4, []string{reboot}},
		{"a rebuild by the pool", text(t, "MachineConfigPool", objects[0].DeepCopyObject().(*mcfgv1.MachineConfigPool),
			func(p *mcfgv1.MachineConfigPool) {
				p.Annotations = map[string]string{manifests.AnnotationRebuildImage: ""}
			}), 4, []string{reboot}},
		{"another Containerfile", mosc(func(m *mcfgv1.MachineOSConfig) {
			m.Spec.Containerfile[0].Content += "RUN true\n"
		}), 4, []string{reboot, "with other content"}},
		{"another Containerfile for another architecture", mosc(func(m *mcfgv1.MachineOSConfig) {
			m.Spec.Containerfile = append(m.Spec.Containerfile,
				mcfgv1.MachineOSContainerfile{ContainerfileArch: mcfgv1.Arm64, Content: "FROM configs\n"})
		}), 0, []string{"nothing happens"}},
		{"another repository", mosc(func(m *mcfgv1.MachineOSConfig) {
			m.Spec.RenderedImagePushSpec = "r.example.com/os/others:x"
		}), 4, []string{reboot}},
		{"another tag", mosc(func(m *mcfgv1.MachineOSConfig) { m.Spec.RenderedImagePushSpec = "r.example.com/os/worker:y" }),
			0, []string{"nothing happens"}},
		{"an extension", spec("extensions: [usbguard]"), 4, []string{reboot, "other packages of the OS"}},
		{"a kernel type", spec("kernelType: realtime"), 4, []string{reboot, "another kernel"}},
		{"kernel arguments", spec("kernelArguments: [quiet]"), 4, []string{reboot, "the kernel reads them"}},
		{"FIPS", spec("fips: true"), 4, []string{reboot, "fips"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := dayone(t, "cluster", "plan", "--from", dir, "-f", write(t, "new.yaml", c.file), "--exit-code")
			t.Log(out)
			assert.Equal(t, c.code, code, "%s%s", out, errs)
			for _, want := range c.want {
				assert.Contains(t, out, want)
			}
		})
	}
	code, out, errs := dayone(t, "cluster", "plan", "--from", dir, "--delete", "machineosconfig/worker", "--exit-code")
	assert.Equal(t, 4, code, "%s%s", out, errs)
	assert.Contains(t, out, reboot, "opting out")
}
