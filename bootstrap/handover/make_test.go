package handover_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// outcome is of a bootstrap host with the pools master, whose image was built there, and worker.
func outcome() handover.Outcome {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	filled := func(name string) *mcfgv1.MachineConfigPool {
		p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.Configuration.Name = "rendered-" + name + "-1"
		return p
	}
	config := func(pool string, pull *mcfgv1.ImageSecretObjectReference) manifests.Item[*mcfgv1.MachineOSConfig] {
		return manifests.NewItem(&mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool},
			Spec: mcfgv1.MachineOSConfigSpec{MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: pool},
				BaseImagePullSecret:     pull,
				RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: pool + "-push"}}})
	}
	secret := func(namespace, name, host string) manifests.Item[*corev1.Secret] {
		return manifests.NewItem(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			StringData: map[string]string{corev1.DockerConfigJsonKey: `{"auths":{"` + host + `":{"auth":"YTpi"}}}`}})
	}
	const builder = "openshift-machine-config-operator"
	set := &manifests.Set{
		MachineOSConfigs: []manifests.Item[*mcfgv1.MachineOSConfig]{config("worker", nil),
			config("master", &mcfgv1.ImageSecretObjectReference{Name: "base-pull"})},
		Secrets: []manifests.Item[*corev1.Secret]{secret(builder, "worker-push", "other.example.com"),
			secret(builder, "master-push", "quay.example.com"), secret(builder, "master-push", "second.example.com"),
			secret("", "base-pull", "base.example.com"), secret(builder, "etc-pki-entitlement", "none"),
			secret("kube-system", "cloud-credentials", "none")},
		ConfigMaps: []manifests.Item[*corev1.ConfigMap]{
			manifests.NewItem(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: builder, Name: "repos"}}),
			manifests.NewItem(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}})},
	}
	owned := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-master-1",
		OwnerReferences: []metav1.OwnerReference{{Name: "master"}}}}
	return handover.Outcome{Registry: "192.0.2.1:5000", Platform: platform, Set: set,
		Base: "quay.example.com/ocp/base-os@" + digest,
		Result: &render.Result{Pools: []*mcfgv1.MachineConfigPool{filled("master"), filled("worker")},
			Configs: []*mcfgv1.MachineConfig{owned}, Components: []manifests.Item[*mcfgv1.MachineConfig]{
				manifests.NewItem(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{
					Name: manifests.PreBuiltComponentPrefix + "master"}}),
				manifests.NewItem(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "97-master-generated-kubelet"}})}},
		Built: map[string]handover.Built{"master": {Repository: "quay.example.com/ocp/master-os",
			Ground: strings.Repeat("b", 64), Result: &build.Result{Digest: digest, Address: strings.Repeat("a", 64),
				Kernels: []string{"6.1.0"}}}}}
}

func secretNames(p *handover.Plan) []string {
	var out []string
	for _, s := range p.Set.Secrets {
		out = append(out, s.Object.Name)
	}
	return out
}

func TestMake(t *testing.T) {
	o := outcome()
	p, err := handover.Make(o)
	require.NoError(t, err)
	assert.Equal(t, []string{"worker-push", "master-push", "base-pull", "etc-pki-entitlement"}, secretNames(p),
		"those that MachineOSConfigs name, the first of a name, and those of builds")
	for _, s := range p.Set.Secrets {
		assert.Empty(t, s.Object.StringData)
		assert.NotEmpty(t, s.Object.Data[corev1.DockerConfigJsonKey], "in the form that the API gives back")
	}
	assert.Empty(t, o.Set.Secrets[0].Object.Data, "the set that was rendered from stays")
	require.Len(t, p.Set.ConfigMaps, 1)
	assert.Equal(t, "repos", p.Set.ConfigMaps[0].Object.Name)
	require.Len(t, p.Components, 1, "what every renderer makes anew is not handed over")
	require.Len(t, p.Rendered, 1)
	assert.Empty(t, p.Rendered[0].OwnerReferences)
	assert.NotEmpty(t, o.Result.Configs[0].OwnerReferences)

	require.Len(t, p.Pools, 2)
	master, worker := p.Pools[0], p.Pools[1]
	assert.Equal(t, handover.Pool{Name: "master", Config: "rendered-master-1", Nodes: 1,
		Image: "quay.example.com/ocp/master-os@" + o.Built["master"].Digest, Address: strings.Repeat("a", 64),
		Ground: strings.Repeat("b", 64), Kernels: "6.1.0"}, master)
	assert.Equal(t, handover.Pool{Name: "worker", Config: "rendered-worker-1"}, worker)
	require.Len(t, p.Images, 2)
	assert.Equal(t, handover.Image{Repository: "quay.example.com/ocp/base-os", Digest: o.Built["master"].Digest,
		Tags: []string{"dayone-base-0123456789ab"}, Secret: "master-push"}, p.Images[0],
		"by the push Secret that has an account for it")
	assert.Equal(t, "master-push", p.Images[1].Secret)
	require.Len(t, p.Images[1].Tags, 2)
	assert.True(t, strings.HasSuffix(p.Images[1].Tags[1], "-day1"))
}

func TestMakeWithOtherWords(t *testing.T) {
	o := outcome()
	o.Nodes, o.OSImageURL = map[string]int{"master": 0, "worker": 2}, true
	o.Base = "oci:/no/registry"
	p, err := handover.Make(o)
	require.NoError(t, err)
	assert.Zero(t, p.Pools[0].Nodes, "the user's word")
	assert.True(t, p.Pools[0].OSImageURL)
	assert.Equal(t, 2, p.Pools[1].Nodes)
	assert.False(t, p.Pools[1].OSImageURL)
	require.Len(t, p.Images, 1, "a base without a registry is not copied")

	o = outcome()
	o.Base = "nobody.example.com/base@sha256:01"
	o.Built["master"] = handover.Built{Result: o.Built["master"].Result, Repository: "nobody.example.com/master"}
	o.Set.MachineOSConfigs = o.Set.MachineOSConfigs[:1]
	p, err = handover.Make(o)
	require.NoError(t, err)
	assert.Empty(t, p.Images[0].Secret, "anonymous")
	assert.Equal(t, []string{"dayone-base-01"}, p.Images[0].Tags)
	assert.Empty(t, p.Images[1].Secret)
}

// The cluster's pull secret is dayone's to hand over only where it names an account of the cluster's own registries.
func TestMakeKeepsThePullSecret(t *testing.T) {
	for _, c := range []struct {
		name, registry, namespace, secret string
		kept                              bool
	}{
		{"own registries", "registry.cluster.test:5000", "openshift-config", "pull-secret", true},
		{"registries elsewhere", "", "openshift-config", "pull-secret", false},
		{"another Secret beside it", "registry.cluster.test:5000", "openshift-config", "other", false},
		{"its name in another namespace", "registry.cluster.test:5000", "default", "pull-secret", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := outcome()
			before, err := handover.Make(o)
			require.NoError(t, err)
			o.ClusterRegistry = c.registry
			o.Set.Secrets = append(o.Set.Secrets, manifests.NewItem(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
				Namespace: c.namespace, Name: c.secret}}))
			p, err := handover.Make(o)
			require.NoError(t, err)
			want := secretNames(before)
			if c.kept {
				want = append(want, c.secret)
			}
			assert.Equal(t, want, secretNames(p))
		})
	}
}

func TestMakeRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*handover.Outcome)
		says  string
	}{
		{"Secrets that are not there", func(o *handover.Outcome) { o.Set.Secrets = o.Set.Secrets[:1] },
			"not in the install directory: base-pull, master-push: put them into the layering directory"},
		{"no registry", func(o *handover.Outcome) { o.Registry = "" }, "the bootstrap registry is missing"},
		{"unknown controllers", func(o *handover.Outcome) { o.Controllers = "others" }, `controllers "others" are not known`},
		{"an image without a digest", func(o *handover.Outcome) { o.Built["master"].Digest = "latest" },
			"image quay.example.com/ocp/master-os has no digest"},
		{"a pool that was not rendered", func(o *handover.Outcome) { o.Result.Pools[1].Spec.Configuration.Name = "" },
			"pool worker was not rendered"},
		{"an image without an address", func(o *handover.Outcome) { o.Built["master"].Address = "" },
			"the image of pool master has no content address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := outcome()
			c.spoil(&o)
			_, err := handover.Make(o)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// A plan that lost a file, or has a broken one, is none; bootstrap writes it anew.
func TestReadRefusesDamage(t *testing.T) {
	p, err := handover.Make(outcome())
	require.NoError(t, err)
	for _, c := range []struct {
		name, file, content, says string
	}{
		{"no objects", "objects.yaml", "", "read hand-over plan: open"},
		{"no rendered configs", "rendered.yaml", "", "read hand-over plan: open"},
		{"objects that are none", "objects.yaml", "\t- {", "read hand-over plan: "},
		{"rendered configs that are none", "rendered.yaml", "\t- {", "read hand-over plan: "},
		{"a plan that is none", "plan.json", "{", "dayone bootstrap writes it anew"},
		{"an empty plan", "plan.json", "{}", "the bootstrap registry is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, p.Write(dir))
			file := filepath.Join(dir, c.file)
			require.NoError(t, os.Remove(file))
			if c.content != "" {
				require.NoError(t, os.WriteFile(file, []byte(c.content), 0o600))
			}
			_, err := handover.Read(dir)
			require.ErrorContains(t, err, c.says)
			require.NoError(t, p.Write(dir))
			read, err := handover.Read(dir)
			require.NoError(t, err)
			assert.Equal(t, steps(p), steps(read))
			assert.Len(t, read.Components, 1)
			assert.Len(t, read.Rendered, 1)
		})
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "plan.json"), 0o700))
	_, err = handover.Read(dir)
	require.ErrorContains(t, err, "read hand-over plan: ")
	require.NotErrorIs(t, err, handover.ErrNoPlan)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plan.json", "x"), nil, 0o600))
	require.ErrorContains(t, p.Write(dir), "replace hand-over plan")
	require.ErrorContains(t, p.Write(filepath.Join(dir, "plan.json", "x", "y")), "make directory of the hand-over plan")
}

// A Secret without a namespace is for the builder, and a namespace that is not there yet comes before what is in it.
func TestStepsPlaceSecrets(t *testing.T) {
	secret := func(namespace, name string) manifests.Item[*corev1.Secret] {
		return manifests.NewItem(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	p := handover.Plan{Set: &manifests.Set{Secrets: []manifests.Item[*corev1.Secret]{secret("", "a"),
		secret("other", "b"), secret("other", "c")}}}
	var places []string
	for _, s := range p.Steps() {
		places = append(places, s.Object.GetNamespace()+"/"+s.Object.GetName())
	}
	const builder = "openshift-machine-config-operator"
	assert.Equal(t, []string{"/" + builder, "/other", builder + "/a", "other/b", "other/c"}, places)
}
