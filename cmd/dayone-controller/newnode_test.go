package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/serve"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/hack/kube/process"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry/certs"
)

// inside is a registry's name that only a cluster's own DNS knows.
const inside = "registry.images.svc:5001"

// nodeLab is a cluster's API server, two registries and a network in which machines boot.
type nodeLab struct {
	*testing.T
	env    *kubetest.Env
	lab    *testnode.Lab
	layout string
	base   v1.Image
	// direct is reached by every machine, inner by pods only.
	direct, inner *deploytest.Registry
	dir           string
}

func newNodeLab(t *testing.T) *nodeLab {
	t.Helper()
	if testing.Short() {
		t.Skip("boots nodes: left out with -short")
	}
	if err := testnode.Missing(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	l := &nodeLab{T: t, env: shared.New(t), dir: t.TempDir()}
	l.env.InstallRights(t)
	var err error
	l.layout, err = baseimage.Ensure(t.Context(), baseimage.Tiny, "")
	require.NoError(t, err)
	index, err := layout.ImageIndexFromPath(l.layout)
	require.NoError(t, err)
	list, err := index.IndexManifest()
	require.NoError(t, err)
	l.base, err = index.Image(list.Manifests[0].Digest)
	require.NoError(t, err)
	l.lab, err = testnode.New(t.Context(), testnode.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		assert.NoError(t, l.lab.Close(ctx))
	})
	for port, into := range map[int]**deploytest.Registry{5000: &l.direct, 5001: &l.inner} {
		listener, err := l.lab.Network.Listen(port)
		require.NoError(t, err)
		address := listener.Addr().String()
		if port == 5001 {
			address = inside
		}
		*into = deploytest.ServeAs(t, listener, address)
	}
	server, err := url.Parse(l.env.Config.Host)
	require.NoError(t, err)
	forward, err := l.lab.Network.Forward(6443, server.Host)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, forward.Close()) })
	return l
}

// pool makes a layered pool whose image is in a registry, as the builder would have brought it, and gives the image.
func (l *nodeLab) pool(name string, registry *deploytest.Registry) string {
	l.Helper()
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-" + name + "-1"}}
	mc.Spec.OSImageURL = "r.example.com/stock@sha256:" + strings.Repeat("a", 64)
	authority := *machineconfig.Inline(l.direct.Authority.PEM).Source
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/both","mode":420,"contents":{"source":"data:,both%%0A"}},
		{"path":"/etc/containers/certs.d/%s/ca.crt","mode":420,"contents":{"source":%q}}]}}`, l.direct.Addr, authority)
	hash, err := machineconfig.ContentHash(mc.Spec)
	require.NoError(l, err)
	img, err := mutate.AppendLayers(l.base, deploytest.Layer(l, deploytest.Entry{Name: "etc/both", Body: "both\n"},
		deploytest.Entry{Name: "usr/share/of-pool", Body: name + "\n"},
		deploytest.Entry{Name: "etc/containers/certs.d/" + l.direct.Addr + "/ca.crt", Body: string(l.direct.Authority.PEM)}))
	require.NoError(l, err)
	config, err := img.ConfigFile()
	require.NoError(l, err)
	config = config.DeepCopy()
	config.Config.Labels[firstboot.LabelConfigHash], config.Config.Labels[firstboot.LabelRenderedConfig] = hash, mc.Name
	img, err = mutate.ConfigFile(img, config)
	require.NoError(l, err)
	image := registry.Push(l, img, "os/"+name)

	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}}
	pool.Spec.Configuration.Name = mc.Name
	repository, _, _ := strings.Cut(image, "@")
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name + "-1",
		Labels: map[string]string{manifests.LabelRenderedMachineConfig: mc.Name, manifests.LabelTargetPool: name}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: mc.Name},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: name},
			RenderedImagePushSpec: mcfgv1.ImageTagFormat(repository + ":x")}}
	m := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineOSConfigSpec{MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: name},
			ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
			RenderedImagePushSpec:   mcfgv1.ImageTagFormat(repository + ":x")}}
	for _, o := range []client.Object{mc, pool, b, m} {
		require.NoError(l, l.env.Client.Create(l.Context(), o))
	}
	start, end := metav1.NewTime(time.Now().Add(-time.Minute)), metav1.Now()
	b.Status = mcfgv1.MachineOSBuildStatus{BuildStart: &start, BuildEnd: &end,
		DigestedImagePushSpec: mcfgv1.ImageDigestFormat(image),
		Builder: &mcfgv1.MachineOSBuilderReference{ImageBuilderType: mcfgv1.JobBuilder,
			Job: &mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: "x", Name: "y"}},
		Conditions: []metav1.Condition{{Type: string(mcfgv1.MachineOSBuildSucceeded), Status: metav1.ConditionTrue,
			Reason: "Ready", LastTransitionTime: end}}}
	require.NoError(l, l.env.Client.Status().Update(l.Context(), b))
	m.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(image)
	m.Status.MachineOSBuild = &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds", Name: b.Name}
	require.NoError(l, l.env.Client.Status().Update(l.Context(), m))
	return image
}

func (l *nodeLab) file(name string, content []byte) string {
	l.Helper()
	path := filepath.Join(l.dir, name)
	require.NoError(l, os.WriteFile(path, content, 0o600))
	return path
}

// serve runs the config server where a pod of the host's network would, with the cluster's names, and gives a pointer
// config for each pool.
func (l *nodeLab) serve() func(pool string) []byte {
	l.Helper()
	bootstrap := l.lab.Network.Bootstrap().String()
	api := "https://" + bootstrap + ":6443"
	cfg := l.env.As(l, cluster.DefaultNamespace, cluster.ConfigServer)
	access := filepath.Join(l.dir, "kubeconfig")
	require.NoError(l, clientcmd.WriteToFile(clientcmdapi.Config{CurrentContext: "c",
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: api, TLSServerName: "127.0.0.1",
			CertificateAuthorityData: cfg.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Token: cfg.BearerToken}},
		Contexts:  map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}}}, access))
	pull := map[string]map[string]map[string]string{"auths": {}}
	for _, address := range []string{l.direct.Addr, l.inner.Addr} {
		pull["auths"][address] = map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(deploytest.User + ":" +
			deploytest.Password))}
	}
	pullSecret, err := json.Marshal(pull)
	require.NoError(l, err)
	agent := filepath.Join(l.dir, "dayone-daemon")
	require.NoError(l, program.Build(l.Context(), "", program.Options{Package: "dayone.dev/dayone/cmd/dayone-daemon"},
		agent))
	log := filepath.Join(l.dir, "log")
	hosts := l.file("hosts", fmt.Appendf(nil, "127.0.0.1 localhost\n%s registry.images.svc\n", bootstrap))
	cmd := l.lab.Network.Command(context.WithoutCancel(l.Context()), "unshare", "-m", "sh", "-c",
		`mount --bind "$0" /etc/hosts && exec "$@"`, hosts,
		os.Args[0], "config-server", "--kubeconfig", access, "--listen", bootstrap+":22623", "--host", bootstrap,
		"--api-server-url", api, "--daemon", agent,
		"--pull-secret", l.file("pull.json", pullSecret), "--registry-ca",
		l.file("ca.pem", append(l.direct.Authority.PEM, l.inner.Authority.PEM...)),
		"--metrics-address", "0", "--probe-address", "0")
	programs := process.NewGroup() // it ends with this one, also when that is killed
	p, err := programs.Start(process.Spec{Path: cmd.Path, Args: cmd.Args[1:], Env: []string{asProgram + "=1"}, Log: log})
	require.NoError(l, err)
	l.Cleanup(func() {
		require.NoError(l, p.Stop(context.Background()))
		text, _ := os.ReadFile(log)
		assert.ErrorContains(l, p.Ended(), "status 0", string(text))
		require.NoError(l, programs.Close())
		if l.Failed() {
			l.Log(string(text))
		}
		assert.NotContains(l, string(text), deploytest.Password)
	})
	var secret corev1.Secret
	require.EventuallyWithT(l, func(c *assert.CollectT) {
		assert.NoError(c, l.env.Client.Get(l.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace,
			Name: cluster.ConfigServer}, &secret))
	}, waitLimit, waitEvery)
	return func(pool string) []byte {
		pointer, err := serve.Pointer(string(secret.Data[cluster.ConfigServerURL])+"/config/"+pool,
			secret.Data[certs.CACertFile], string(secret.Data[cluster.ConfigServerToken]))
		require.NoError(l, err)
		return pointer
	}
}

// TestNewNodesBootTheirImageWithTheirSecondBoot boots machines with nothing but a pointer config and a stock disk: real
// Ignition fetches the config from the program, which reads a real API server.
func TestNewNodesBootTheirImageWithTheirSecondBoot(t *testing.T) {
	l := newNodeLab(t)
	images := map[string]string{"direct": l.pool("direct", l.direct), "inner": l.pool("inner", l.inner)}
	pointer := l.serve()
	nodes := map[string]*testnode.Node{}
	for pool := range images {
		n, err := l.lab.NewNode(t.Context(), pool, testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: l.layout}})
		require.NoError(t, err)
		nodes[pool] = n
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for pool, n := range nodes {
		t.Run(pool, func(t *testing.T) {
			t.Cleanup(func() {
				if text, _ := n.Log(); t.Failed() {
					t.Log(text)
				}
			})
			require.NoError(t, n.Ignite(ctx, pointer(pool)))
			require.NoError(t, n.Start(ctx))
			require.NoError(t, n.WaitBoot(ctx, 2))
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				record, err := e2e.FirstBootRecord(ctx, n)
				assert.NoError(c, err)
				assert.Equal(c, firstboot.StateDone, record.State, record.Message)
			}, waitLimit, waitEvery)
			booted, err := e2e.BootedDigest(ctx, n)
			require.NoError(t, err)
			assert.True(t, strings.HasSuffix(images[pool], "@"+booted), booted)
			boots, err := n.Boots()
			require.NoError(t, err)
			assert.Equal(t, 2, boots, "the disk's image, then the node's own")
			text, err := n.Output(ctx, "cat", "/usr/share/of-pool", "/etc/both", "/etc/machine-config-daemon/currentimage")
			require.NoError(t, err)
			assert.Equal(t, pool+"\nboth\n"+images[pool], strings.TrimSpace(text),
				"the node knows its image by the name that it has in the cluster")
			access, err := n.Output(ctx, "cat", "/etc/kubernetes/kubeconfig")
			require.NoError(t, err)
			assert.Contains(t, access, ":6443", "what it joins with")
		})
	}
}
