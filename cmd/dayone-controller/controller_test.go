package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/registrytest"
)

const (
	waitLimit = 3 * time.Minute
	waitEvery = 50 * time.Millisecond
)

var shared kubetest.Shared

// asProgram makes this test binary the program itself.
const asProgram = "DAYONE_CONTROLLER_TEST_PROGRAM"

func TestMain(m *testing.M) {
	testnode.Init()
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if kubeconfig := os.Getenv(asFleet); kubeconfig != "" {
		if err := runAsFleet(kubeconfig); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(shared.Main(m, kubetest.Options{}))
}

// baseImage is the base OS of the test's nodes.
const baseImage = "registry.example.test/os/base@sha256:" +
	"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

// copyOfProgram is one running copy of the program.
type copyOfProgram struct {
	probes, metrics string
	cmd             *exec.Cmd
	log             string
}

func run(t *testing.T, kubeconfig string) *copyOfProgram {
	t.Helper()
	// A lease that a busy machine keeps.
	return start(t, "--kubeconfig", kubeconfig, "--builder-image", "registry.test:5000/builder:v1", "--node-agent",
		"--node", "this", "--base-image", baseImage, "--builder-arg=--history=5", "--lease-duration", "30s")
}

// start runs a copy of the program with further arguments until the test ends.
func start(t testing.TB, args ...string) *copyOfProgram {
	t.Helper()
	return launch(t, os.Args[0], args...)
}

// launch is start of any of dayone's controller programs.
func launch(t testing.TB, program string, args ...string) *copyOfProgram {
	t.Helper()
	p := &copyOfProgram{probes: freeAddress(t), metrics: freeAddress(t), log: filepath.Join(t.TempDir(), "log")}
	log, err := os.Create(p.log)
	require.NoError(t, err)
	defer log.Close()
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), program, append([]string{"start",
		"--probe-address", p.probes, "--metrics-address", p.metrics}, args...)...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = log, log
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.end(t, os.Interrupt)
		}
	})
	return p
}

// end sends a signal and waits; told to stop, the program ends without a failure.
func (p *copyOfProgram) end(t testing.TB, signal os.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(signal))
	err := p.wait(t)
	if signal == os.Interrupt {
		require.NoError(t, err, p.text(t))
	}
}

// wait gives how the program ended. One that does not end says where it is.
func (p *copyOfProgram) wait(t testing.TB) error {
	t.Helper()
	late := time.AfterFunc(waitLimit, func() { _ = p.cmd.Process.Signal(syscall.SIGQUIT) })
	err := p.cmd.Wait()
	require.True(t, late.Stop(), "the program did not end within %s: %s", waitLimit, p.text(t))
	return err
}

func (p *copyOfProgram) text(t testing.TB) string {
	raw, err := os.ReadFile(p.log)
	require.NoError(t, err)
	return string(raw)
}

// kubeconfig has the rights of the program's own service account.
func kubeconfig(t testing.TB, cfg *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{CurrentContext: "c",
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData,
			CertificateAuthority: cfg.CAFile}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Token: cfg.BearerToken}},
		Contexts:  map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}}}, file))
	return file
}

func freeAddress(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(t)))
}

func fetch(t assert.TestingT, address, path string) (int, string) {
	resp, err := http.Get(fmt.Sprintf("http://%s%s", address, path)) //nolint:noctx // a probe of this process
	if !assert.NoError(t, err) {
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	assert.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestTheProgramWorksWithItsOwnRightsAloneAndHandsOverItsLease(t *testing.T) {
	e := shared.Env(t)
	objects, err := cluster.Objects(cluster.Options{Images: cluster.Images{Controller: "r.test/c:1",
		Builder: "r.test/b:1"}})
	require.NoError(t, err)
	for _, o := range objects {
		require.NoError(t, e.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o),
			client.FieldOwner("test"), client.ForceOwnership), o.GetName())
	}
	e.AwaitRights(t, objects)
	access := kubeconfig(t, e.As(t, cluster.DefaultNamespace, cluster.Controller))
	first := run(t, access)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		code, _ := fetch(c, first.probes, "/readyz")
		assert.Equal(c, http.StatusOK, code)
		var lease coordinationv1.Lease
		if assert.NoError(c, e.Client.Get(t.Context(), types.NamespacedName{Namespace: cluster.DefaultNamespace,
			Name: cluster.Controller}, &lease)) {
			assert.NotEmpty(c, lease.Spec.HolderIdentity)
		}
	}, waitLimit, waitEvery)
	code, _ := fetch(t, first.probes, "/healthz")
	assert.Equal(t, http.StatusOK, code)

	require.NoError(t, e.Client.Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1",
			Labels: map[string]string{"node-role.kubernetes.io/worker": ""}}}))
	set := &manifests.Set{
		Pools: []manifests.Item[*mcfgv1.MachineConfigPool]{manifests.NewItem(
			&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"},
				Spec: mcfgv1.MachineConfigPoolSpec{
					MachineConfigSelector: &metav1.LabelSelector{
						MatchLabels: map[string]string{"machineconfiguration.openshift.io/role": "worker"},
					},
					NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}},
				}})},
		MachineConfigs: []manifests.Item[*mcfgv1.MachineConfig]{manifests.NewItem(
			&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-worker",
				Labels: map[string]string{"machineconfiguration.openshift.io/role": "worker"}},
				Spec: mcfgv1.MachineConfigSpec{KernelArguments: []string{"quiet"}}})},
	}
	bootstrap := renderAsBootstrap(t, set)
	require.NoError(t, e.Client.Create(t.Context(), set.Pools[0].Object))
	require.NoError(t, e.Client.Create(t.Context(), set.MachineConfigs[0].Object))
	require.NoError(t, e.Client.Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: "push"},
			Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(
				`{"auths":{"r.test":{"username":"u","password":"canary-4711"}}}`)}}))
	require.NoError(t, e.Client.Create(t.Context(), &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Spec: mcfgv1.MachineOSConfigSpec{
			MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: "worker"},
			ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
			RenderedImagePushSpec:   "registry.example.test/os/worker:latest"}}))
	builder := types.NamespacedName{Namespace: cluster.DefaultNamespace, Name: cluster.Builder}
	var made appsv1.Deployment
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.NoError(c, e.Client.Get(t.Context(), builder, &made)) },
		waitLimit, waitEvery)
	assert.Contains(t, made.Spec.Template.Spec.Containers[0].Args, "--history=5")
	require.EventuallyWithT(t, func(c *assert.CollectT) { // render and node controller work, too
		var pool mcfgv1.MachineConfigPool
		assert.NoError(c, e.Client.Get(t.Context(), types.NamespacedName{Name: "worker"}, &pool))
		assert.Equal(c, int32(1), pool.Status.MachineCount)
		assert.Equal(c, bootstrap.Name, pool.Spec.Configuration.Name, pool.Status.Conditions)
		var rendered mcfgv1.MachineConfig
		assert.NoError(c, e.Client.Get(t.Context(), types.NamespacedName{Name: bootstrap.Name}, &rendered))
		assert.Equal(c, bootstrap.Annotations, rendered.Annotations, "the versions are bootstrap's")
	}, waitLimit, waitEvery)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, text := fetch(c, first.metrics, "/metrics")
		assert.Contains(c, text, `dayone_optin_machineosconfigs{opted_in="true"} 1`)
	}, waitLimit, waitEvery)

	// A second copy waits, takes the lease when the first one is killed, and goes on.
	second := run(t, access)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		code, _ := fetch(c, second.probes, "/readyz")
		assert.Equal(c, http.StatusOK, code)
	}, waitLimit, waitEvery)
	first.end(t, os.Kill)
	// The rest of its time is not waited for: the lease of a copy that is dead is made a short one.
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
		Name: cluster.Controller}}
	require.NoError(t, e.Client.Patch(t.Context(), lease,
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"leaseDurationSeconds":1}}`))))
	require.NoError(t, e.Client.Delete(t.Context(),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: builder.Namespace, Name: builder.Name}}))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c,
			e.Client.Get(t.Context(), builder, &appsv1.Deployment{}))
	}, waitLimit, waitEvery)
	second.end(t, os.Interrupt)
	for _, p := range []*copyOfProgram{first, second} {
		for _, line := range strings.Split(strings.TrimSpace(p.text(t)), "\n") {
			assert.True(t, strings.HasPrefix(line, "{") && strings.Contains(line, `"level"`), line)
		}
		assert.NotContains(t, p.text(t), "canary-4711")
		assert.NotContains(t, p.text(t), "forbidden", "it has every right that it uses")
	}
}

// renderAsBootstrap renders the pool worker as dayone bootstrap of the same build does.
func renderAsBootstrap(t *testing.T, set *manifests.Set) *mcfgv1.MachineConfig {
	t.Helper()
	whole := &manifests.Set{}
	whole.Append(set)
	render.StandaloneInputs(whole, baseImage, render.VersionsOf(version))
	result, err := render.Render(whole, render.Options{Versions: render.VersionsOf(version), Unbuilt: render.IgnoreUnbuilt,
		Strict: true})
	require.NoError(t, err)
	return result.Config("worker")
}

func TestAWrongCommandLineSaysWhatIsWrong(t *testing.T) {
	for _, args := range [][]string{{"start", "extra"}, {"start", "--namespace", "Upper"}, {"nothing"}} {
		c := newRootCommand("v1")
		c.SetArgs(args)
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		require.Error(t, c.ExecuteContext(t.Context()), args)
	}
}
