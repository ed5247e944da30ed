package image

import (
	"path/filepath"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/cmd/internal/cli/clitest"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/registrytest"
)

// TestVerifyForAPool asks a real API server which keys count and what the pool wants.
func TestVerifyForAPool(t *testing.T) {
	e := kubetest.Start(t, kubetest.Options{})
	reg := registrytest.Start(t)
	key, err := sign.LoadOrCreate(t.TempDir())
	require.NoError(t, err)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}),
		"FROM configs\nCOPY <<x /etc/motd\nhello\nx\n")
	r.Final = "registry.example.com/os/worker"
	result, err := build.NewBuilder(build.BuilderOptions{Keys: &sign.Keys{Key: key}}).Build(t.Context(), r)
	require.NoError(t, err)

	kubeconfig := e.Kubeconfig(t)
	verify := func(more ...string) (int, string, string) {
		return clitest.Run(t, Commands("v1"), append([]string{"verify", result.Reference, "--ca", reg.CAFile,
			"--authfile", reg.PullAuthFile, "--repository", r.Final, "--pool", "worker", "--kubeconfig", kubeconfig},
			more...)...)
	}
	code, _, stderr := verify()
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "no ClusterImagePolicy has a key for "+r.Final)

	policy := &configv1.ClusterImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "os"}}
	policy.Spec = configv1.ClusterImagePolicySpec{
		Scopes: []configv1.ImageScope{"registry.example.com/os"}, Policy: configv1.ImageSigstoreVerificationPolicy{
			RootOfTrust: configv1.PolicyRootOfTrust{PolicyType: configv1.PublicKeyRootOfTrust,
				PublicKey: &configv1.ImagePolicyPublicKeyRootOfTrust{KeyData: key.Public}}}}
	require.NoError(t, e.Client.Create(t.Context(), policy))
	code, _, stderr = verify()
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "read MachineConfigPool worker")

	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	pool.Spec.Configuration.Name = "rendered-worker-1"
	config := r.Config.DeepCopy()
	config.ObjectMeta = metav1.ObjectMeta{Name: pool.Spec.Configuration.Name}
	mosb := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "worker-1",
		Annotations: map[string]string{manifests.AnnotationBuildAddress: result.Address}}, Spec: mcfgv1.MachineOSBuildSpec{
		MachineConfig:         mcfgv1.MachineConfigReference{Name: config.Name},
		MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: "worker"},
		RenderedImagePushSpec: "registry.example.com/os/worker:1"}}
	require.NoError(t, e.Client.Create(t.Context(), pool))
	require.NoError(t, e.Client.Create(t.Context(), config))
	require.NoError(t, e.Client.Create(t.Context(), mosb))
	code, out, stderr := verify()
	require.Zero(t, code, stderr+out)
	assert.Contains(t, out, "signature os")
	assert.Contains(t, out, "no policy demanded a signature of the base")

	next := buildtest.Config(t, map[string]string{"/etc/next": "x"})
	next.ObjectMeta = metav1.ObjectMeta{Name: "rendered-worker-2"}
	require.NoError(t, e.Client.Create(t.Context(), next))
	pool.Spec.Configuration.Name = next.Name
	require.NoError(t, e.Client.Update(t.Context(), pool))
	code, out, _ = verify()
	assert.Equal(t, 1, code, "the pool wants another config by now")
	assert.Contains(t, out, result.Inputs.ConfigHash+", and wanted is ")
	code, out, _ = verify("--key", filepath.Join(reg.Options.Root, "none"))
	assert.Equal(t, 1, code)
	assert.Empty(t, out)
}
