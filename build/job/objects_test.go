package job_test

import (
	"encoding/json"
	"flag"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/registry/credentials"
)

// canary stands for every secret: it must be in Secrets only.
const canary = "canary-9f8e7d6c"

func update() bool { f := flag.Lookup("update"); return f != nil && f.Value.String() == "true" }

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write testdata anew")
	os.Exit(m.Run())
}

func input() job.Input {
	auth := func(host string) []byte {
		raw, err := credentials.Canonical(map[string][]byte{corev1.DockerConfigJsonKey: []byte(
			`{"auths":{"` + host + `":{"username":"u","password":"` + canary + `"}}}`)})
		if err != nil {
			panic(err)
		}
		return raw
	}
	return job.Input{
		Build: &mcfgv1.MachineOSBuild{
			ObjectMeta: metav1.ObjectMeta{Name: "worker-0123456789abcdef0123456789abcdef", UID: "0d9b5e2c"},
			Spec:       mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-worker-0123"}},
		},
		Config: &mcfgv1.MachineOSConfig{
			ObjectMeta: metav1.ObjectMeta{Name: "worker"},
			Spec: mcfgv1.MachineOSConfigSpec{
				MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: "worker"},
				BaseImagePullSecret:     &mcfgv1.ImageSecretObjectReference{Name: "pull"},
				RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
			},
		},
		Request: build.Request{
			Pool: "worker", Base: build.Image{Reference: "quay.example:5000/os/base@sha256:" + strings.Repeat("a", 64)},
			Config: &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-worker-0123"},
				Spec: mcfgv1.MachineConfigSpec{
					Config: runtime.RawExtension{Raw: []byte(
						`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/var/lib/kubelet/config.json",` +
							`"contents":{"source":"data:,` + canary + `"}}]}}`)}}},
			Containerfile: "FROM configs\nRUN true\n", Platform: "linux/arm64", Target: "registry.example:5000/ocp/worker-os",
			Registry: build.Access{AuthFile: "/somewhere/" + canary},
			Options: build.Options{ProxyEnvironment: map[string]string{"HTTPS_PROXY": "http://u:" + canary +
				"@proxy.example:3128"}},
		},
		PullSecret: auth("quay.example:5000"), PushSecret: auth("registry.example:5000"),
		CA:     []byte("-----BEGIN CERTIFICATE-----\n"),
		Mounts: job.EntitlementMounts("worker"),
		Options: job.Options{BuilderImage: "registry.example:5000/dayone/machine-os-builder@sha256:" +
			strings.Repeat("b", 64)},
	}
}

// asYAML is what people compare.
func asYAML(t *testing.T, v any) string {
	t.Helper()
	raw, err := yaml.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}

func TestJobGolden(t *testing.T) {
	for name, change := range map[string]func(*job.Options){
		"least":      func(*job.Options) {},
		"memory":     func(o *job.Options) { o.MemoryLimit = new(resource.MustParse("2Gi")) },
		"no-limit":   func(o *job.Options) { o.MemoryLimit = new(resource.MustParse("0")) },
		"host-users": func(o *job.Options) { o.PodUserNamespace = true },
		"privileged": func(o *job.Options) { o.Privileged = true },
		"profiles": func(o *job.Options) {
			o.SeccompLocalhost, o.AppArmorLocalhost, o.SELinuxType = "profiles/dayone-build.json", "dayone-build",
				"container_engine_t"
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := input()
			change(&in.Options)
			objects, err := job.New(in)
			require.NoError(t, err)
			got, file := asYAML(t, objects.Job), filepath.Join("testdata", name+".yaml")
			if update() {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
		})
	}
}

func TestNewDeterministic(t *testing.T) {
	first, err := job.New(input())
	require.NoError(t, err)
	second, err := job.New(input())
	require.NoError(t, err)
	assert.Equal(t, first, second)
}

func TestObjectMeta(t *testing.T) {
	in := input()
	in.Build.Name = machineosbuild.Name(strings.Repeat("a-very-long-name.", 14)+"x", strings.Repeat("0", 64))
	objects, err := job.New(in)
	require.NoError(t, err)
	seen := map[string]bool{}
	check := func(kind string, m metav1.ObjectMeta) {
		assert.Empty(t, validation.IsDNS1123Subdomain(m.Name), m.Name)
		assert.LessOrEqual(t, len(m.Name), 63, "pods carry the Job's name in a label")
		assert.False(t, seen[kind+m.Name], "%s %s twice", kind, m.Name)
		seen[kind+m.Name] = true
		assert.Equal(t, "openshift-machine-config-operator", m.Namespace)
		require.Len(t, m.OwnerReferences, 1)
		assert.Equal(t, in.Build.UID, m.OwnerReferences[0].UID)
		assert.True(t, *m.OwnerReferences[0].Controller)
		for k, v := range m.Labels {
			assert.Empty(t, validation.IsQualifiedName(k))
			assert.Empty(t, validation.IsValidLabelValue(v), k)
		}
		assert.Equal(t, in.Build.Name, m.Annotations["machineconfiguration.openshift.io/machine-os-build"], "the whole name")
	}
	check("job", objects.Job.ObjectMeta)
	for _, c := range objects.ConfigMaps {
		check("configmap", c.ObjectMeta)
	}
	for _, s := range objects.Secrets {
		check("secret", s.ObjectMeta)
	}
	assert.LessOrEqual(t, len(objects.Related())+1, 10, "as many as a MachineOSBuild's status may name")
	assert.Equal(t, job.JobName(in.Build.Name), objects.Builder().Job.Name)
}

func TestSecretsOnly(t *testing.T) {
	objects, err := job.New(input())
	require.NoError(t, err)
	assert.NotContains(t, asYAML(t, objects.Job), canary)
	assert.NotContains(t, asYAML(t, objects.ConfigMaps), canary)
	for _, c := range objects.Job.Spec.Template.Spec.Containers {
		assert.Empty(t, c.Env)
	}
	for _, s := range objects.Secrets {
		assert.NotContains(t, asYAML(t, s.ObjectMeta), canary)
	}
}

func TestLargeConfig(t *testing.T) {
	in := input()
	noise := make([]byte, 1_600_000) // what does not pack
	random := rand.New(rand.NewSource(1))
	const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
	for i := range noise {
		noise[i] = digits[random.Intn(len(digits))]
	}
	in.Request.Config.Spec.Config.Raw = []byte(
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/noise","contents":{"source":"data:,` +
			string(noise) + `"}}]}}`)
	objects, err := job.New(in)
	require.NoError(t, err)
	var parts [][]byte
	for _, s := range objects.Secrets {
		size := 0
		for k, raw := range s.Data {
			size += len(raw)
			if strings.HasPrefix(k, job.FilePart) {
				parts = append(parts, raw)
			}
		}
		assert.LessOrEqual(t, size, corev1.MaxSecretSize, s.Name)
	}
	assert.Equal(t, 2, len(parts)) //nolint:testifylint // its message would hold the parts
	back, err := job.Unpack(parts)
	require.NoError(t, err)
	assert.JSONEq(t, string(in.Request.Config.Spec.Config.Raw), string(back.Spec.Config.Raw))
	var order job.Order
	require.NoError(t, json.Unmarshal(objects.Secrets[0].Data[job.FileOrder], &order))
	assert.Equal(t, 2, order.Parts)
	assert.Equal(t, time.Hour, order.Request.Options.Timeout, "the builder gives up before the Job does")

	in.Request.Config.Spec.Config.Raw = []byte(`{"a":"` + strings.Repeat(string(noise), 5) + `"}`)
	_, err = job.New(in)
	require.ErrorContains(t, err, "rendered-worker-0123 has more than")
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*job.Input)
		want   string
	}{
		{"no UID", func(in *job.Input) { in.Build.UID = "" }, "create it first"},
		{"no MachineOSBuild", func(in *job.Input) { in.Build = nil }, "create it first"},
		{"no builder image", func(in *job.Input) { in.Options.BuilderImage = "" }, "builderImage"},
		{"no push credentials", func(in *job.Input) { in.PushSecret = nil }, "renderedImagePushSecret"},
		{"push credentials for elsewhere", func(in *job.Input) { in.PushSecret = in.PullSecret },
			"no entry for registry.example:5000"},
		{"a base without digest", func(in *job.Input) { in.Request.Base.Reference = "r.example/a:v1" },
			"by digest"},
		{"a Job that ends before its pod", func(in *job.Input) { in.Options.Deadline = time.Hour }, "deadline"},
		{"a limit below what is requested", func(in *job.Input) {
			in.Options.MemoryLimit = new(resource.MustParse("100Mi"))
		}, "memoryLimit: 100Mi is less than the 256Mi"},
		{"two policies", func(in *job.Input) {
			in.Options.Privileged, in.Options.PodUserNamespace = true,
				true
		}, "choose one"},
		{"a mount of nothing", func(in *job.Input) { in.Mounts = []job.Mount{{Target: "/x"}} },
			"one Secret or ConfigMap"},
		{"authorities beyond what is kept", func(in *job.Input) { in.CA = make([]byte, 2<<20) }, "ca has 2048 KiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input()
			c.change(&in)
			_, err := job.New(in)
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), canary)
		})
	}
}

func TestContainerfile(t *testing.T) {
	of := func(entries ...string) *mcfgv1.MachineOSConfig {
		c := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
		for _, e := range entries {
			c.Spec.Containerfile = append(c.Spec.Containerfile,
				mcfgv1.MachineOSContainerfile{ContainerfileArch: mcfgv1.ContainerfileArch(e), Content: "for " + e})
		}
		return c
	}
	for _, c := range []struct {
		name   string
		config *mcfgv1.MachineOSConfig
		want   string
	}{
		{"its own", of("NoArch", "ARM64"), "for ARM64"},
		{"the one for all", of("AMD64", "NoArch"), "for NoArch"},
		{"one without any name", of(""), "for "},
		{"none at all", of(), ""},
	} {
		got, err := job.Containerfile(c.config, "arm64")
		require.NoError(t, err, c.name)
		assert.Equal(t, c.want, got, c.name)
	}
	_, err := job.Containerfile(of("AMD64", "S390X"), "arm64")
	assert.ErrorContains(t, err, "AMD64, S390X and none for arm64")
}
