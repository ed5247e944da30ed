package cluster

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/buildlog"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/registrytest"
)

// logsWorld is a cluster that has builds of pool worker, and a registry with their logs.
type logsWorld struct {
	t   *testing.T
	env *kubetest.Env
	reg *registrytest.Registry
}

// The registry's name in the cluster is none that this machine knows.
const logsRepository = "registry.cluster.test:5000/ocp/worker-os"

// trust names the registry's CA where the cluster keeps those of single registries.
func (w *logsWorld) trust() {
	ca, err := os.ReadFile(w.reg.CAFile)
	require.NoError(w.t, err)
	require.NoError(w.t, w.env.Client.Create(w.t.Context(), &mcfgv1.ControllerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName},
		Spec: mcfgv1.ControllerConfigSpec{ImageRegistryBundleData: []mcfgv1.ImageRegistryBundle{},
			ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{{File: "registry.cluster.test..5000", Data: ca}},
			Images:                      map[string]string{}, KubeAPIServerServingCAData: []byte("ca"), RootCAData: []byte("ca"),
			ReleaseImage: "release", IPFamilies: mcfgv1.IPFamiliesIPv4}}))
}

func (w *logsWorld) create(pushSecret string) {
	ctx := w.t.Context()
	require.NoError(w.t, w.env.Client.Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultNamespace}}))
	require.NoError(w.t, w.env.Client.Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: "push"},
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(pushSecret)}}))
	require.NoError(w.t, w.env.Client.Create(ctx, &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Spec: mcfgv1.MachineOSConfigSpec{
			MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: "worker"},
			ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"}, RenderedImagePushSpec: logsRepository +
				":latest"}}))
}

// build makes a MachineOSBuild in that state; the newest has the highest number, for the API keeps whole seconds.
func (w *logsWorld) build(name string, state machineosbuild.State, cause machineosbuild.Cause) {
	w.t.Helper()
	b := &mcfgv1.MachineOSBuild{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: machineosbuild.Labels("worker", "worker", "rendered-worker-1")},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-worker-1"},
			MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: "worker"}, RenderedImagePushSpec: logsRepository + ":latest"},
	}
	require.NoError(w.t, w.env.Client.Create(w.t.Context(), b))
	require.NoError(w.t, machineosbuild.Move(b, state, cause, time.Now()))
	require.NoError(w.t, w.env.Client.Status().Update(w.t.Context(), b))
}

func (w *logsWorld) keep(name, text string) {
	w.t.Helper()
	c, err := appendengine.NewClient(appendengine.Access{CAFile: w.reg.CAFile, AuthFile: w.reg.PushAuthFile})
	require.NoError(w.t, err)
	defer c.Close()
	_, err = buildlog.Push(w.t.Context(), c, w.reg.Addr+"/ocp/worker-os", buildlog.Log{Build: name, Pool: "worker",
		Outcome: "Failed", Created: time.Now(), Text: []byte(text)})
	require.NoError(w.t, err)
}

func TestLogsOutliveThePod(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an API server, which is left out with -short")
	}
	w := &logsWorld{t: t, env: shared.New(t), reg: registrytest.Start(t)}
	auth, err := json.Marshal(
		map[string]any{"auths": map[string]any{"registry.cluster.test:5000": map[string]string{"username": w.reg.Push.Name,
			"password": w.reg.Push.Password}}})
	require.NoError(t, err)
	w.create(string(auth))
	w.trust()
	kubeconfig, temporary := w.env.Kubeconfig(t), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	logs := func(args ...string) (int, string, string) {
		return dayone(t, append([]string{"cluster", "logs", "--kubeconfig", kubeconfig, "--registry", w.reg.Addr},
			args...)...)
	}
	code, _, errs := logs("worker")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "pool worker has no MachineOSBuild")

	w.build("worker-1", machineosbuild.Failed, machineosbuild.Cause{Class: build.ClassUser, Line: 3,
		Message: "the command failed", Next: "mend it"})
	code, out, errs := logs("worker")
	assert.Equal(t, cli.ExitFailed, code, errs)
	assert.Contains(t, out, "Failed: the command failed\nline: 3", "without a log there is the cause")
	assert.Contains(t, errs, "no log of this build")
	code, out, errs = logs("worker", "-o", "json")
	assert.Equal(t, cli.ExitFailed, code, errs)
	var cause map[string]string
	require.NoError(t, json.Unmarshal([]byte(out), &cause), "without a log there is JSON, too")
	assert.Contains(t, cause["summary"], "the command failed")
	code, out, errs = logs("worker", "--registry", "127.0.0.1:1")
	assert.Equal(t, cli.ExitFailed, code, errs)
	assert.Contains(t, out, "Failed: the command failed\nline: 3", "nor needs the cause a registry")
	assert.Contains(t, errs, "connection refused; --registry, --registry-ca and --registry-auth name another way to it")

	w.keep("worker-1", "STEP 1\nno such package\n")
	code, out, errs = logs("worker")
	require.Equal(t, cli.ExitOK, code, errs)
	assert.Equal(t, "STEP 1\nno such package\n", out)
	code, out, errs = logs("worker", "--build", "worker-1", "-o", "json")
	require.Equal(t, cli.ExitOK, code, errs)
	var got map[string]string
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, "worker-1", got["machineOSBuild"])
	assert.Equal(t, "Failed", got["outcome"])
	code, out, errs = logs("worker", "--registry-ca", w.reg.CAFile)
	require.Equal(t, cli.ExitOK, code, errs)
	assert.Equal(t, "STEP 1\nno such package\n", out)
	code, _, errs = logs("worker", "--build", "worker-9")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "no MachineOSBuild worker-9")

	w.build("worker-2", machineosbuild.Prepared, machineosbuild.Cause{})
	code, _, errs = logs("worker", "--build", "worker-2")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "no pod yet")

	code, _, _ = logs()
	assert.Equal(t, cli.ExitUsage, code)
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	assert.Empty(t, left, "credentials are not left behind")
}
