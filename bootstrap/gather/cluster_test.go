package gather_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/bootstrap/gather/bundle"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m, kubetest.Options{})) }

// namespace is the controllers' and builds'.
const namespace = cluster.DefaultNamespace

// clusterCanary is part of every secret in the cluster of the tests.
const clusterCanary = "canary-0Zq8k"

func named(name string) v1.ObjectMeta { return v1.ObjectMeta{Name: name} }

// canaryCluster fills a real API server with secrets wherever a cluster has some.
func canaryCluster(t *testing.T) *kubetest.Env {
	t.Helper()
	env := shared.Env(t)
	encoded := func(s string) string { return "data:;base64," + base64.StdEncoding.EncodeToString([]byte(s)) }
	kubeconfig := "apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user: {token: " + clusterCanary + "-kubeconfig}\n"
	config, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.2.0"},
		"storage": map[string]any{"files": []any{
			map[string]any{"path": "/etc/kubernetes/kubeconfig", "contents": map[string]any{"source": encoded(kubeconfig)}},
			map[string]any{"path": "/etc/plain", "contents": map[string]any{"source": "data:," + clusterCanary}}}},
		"passwd": map[string]any{"users": []any{map[string]any{"name": "core", "passwordHash": "$6$" + clusterCanary}}},
		"systemd": map[string]any{"units": []any{map[string]any{"name": "a.service", "contents": "[Service]\nEnvironment=X=" +
			clusterCanary}}}})
	require.NoError(t, err)
	notes := map[string]string{"kubectl.kubernetes.io/last-applied-configuration": string(config),
		"example.com/anything": clusterCanary + kubeconfig}
	noted := func(o v1.ObjectMeta) v1.ObjectMeta { o.Annotations = notes; return o }
	inNamespace := v1.ObjectMeta{Name: "build-worker-1", Namespace: namespace, Annotations: notes}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: named(namespace)},
		&corev1.Secret{ObjectMeta: v1.ObjectMeta{Name: "push", Namespace: namespace},
			StringData: map[string]string{"x": clusterCanary}},
		&mcfgv1.MachineConfig{ObjectMeta: noted(named("rendered-worker-1")),
			Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: config},
				OSImageURL: "registry.example.com/os@sha256:1"}},
		&mcfgv1.MachineConfigPool{ObjectMeta: noted(named("worker"))},
		&mcfgv1.MachineOSConfig{ObjectMeta: noted(named("worker")),
			Spec: mcfgv1.MachineOSConfigSpec{MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: "worker"},
				ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
				RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
				RenderedImagePushSpec:   "registry.example.com/ocp/os:latest",
				Containerfile: []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch,
					Content: "FROM configs AS final\nRUN PASSWORD=" + clusterCanary + " /register\n"}}}},
		&corev1.Node{ObjectMeta: noted(named("worker-0"))},
		&corev1.Pod{ObjectMeta: inNamespace, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "build",
			Image: "example.com/x",
			Args:  []string{"--push-token", clusterCanary + "-argument", "--password=" + clusterCanary},
			Env: []corev1.EnvVar{{Name: "SECRET_OF_THE_MIRROR", Value: clusterCanary},
				{Name: "PLAIN", Value: clusterCanary}}}}}},
		&corev1.Event{ObjectMeta: v1.ObjectMeta{Name: "e", Namespace: namespace},
			InvolvedObject: corev1.ObjectReference{Namespace: namespace, Name: "build-worker-1"},
			Message: "pull failed: Authorization: Bearer " + clusterCanary + " at https://user:" + clusterCanary +
				"@registry.example.com/, config " + encoded(clusterCanary+clusterCanary)},
		&corev1.Event{ObjectMeta: v1.ObjectMeta{Name: "rebooted", Namespace: v1.NamespaceDefault},
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "worker-0"}, Message: "rebooted"},
	}
	for _, o := range objects {
		require.NoError(t, client.IgnoreAlreadyExists(env.Client.Create(t.Context(), o)), "%T", o)
	}
	return env
}

func gathered(t *testing.T, c gather.Cluster, o gather.Options) (*bundle.Bundle, error) {
	t.Helper()
	o.StateDir = t.TempDir()
	var out bytes.Buffer
	if err := c.Gather(t.Context(), o, &out); err != nil {
		return nil, err
	}
	b, err := bundle.Read(&out)
	require.NoError(t, err)
	assert.Empty(t, b.Damage)
	return b, nil
}

// TestAClustersBundleHasNoSecret costs four seconds: a real API server, which the next tests share.
func TestAClustersBundleHasNoSecret(t *testing.T) {
	env := canaryCluster(t)
	b, err := gathered(t, gather.Cluster{Config: env.Config}, gather.Options{})
	require.NoError(t, err)
	for _, c := range []struct{ name, has string }{{"machineconfigs", "/etc/kubernetes/kubeconfig"},
		{"machineconfigpools", "worker"}, {"machineosconfigs", "/register"}, {"nodes", "worker-0"},
		{"pods", "SECRET_OF_THE_MIRROR"}, {"events", "rebooted"}, {"jobs", `"List"`}} {
		f := b.Get("resources/" + c.name + ".json")
		require.NotNil(t, f, "%s is not among %v", c.name, b.Names())
		assert.Contains(t, string(f.Content), c.has)
		assert.True(t, json.Valid(f.Content), c.name)
	}
	for _, name := range b.Names() {
		text := string(b.Get(name).Content)
		assert.NotContains(t, text, "canary", name)
		for offset := range 3 {
			inner := base64.StdEncoding.EncodeToString([]byte("abc"[:offset] + clusterCanary))
			assert.NotContains(t, text, inner[4:len(inner)-4], name)
		}
	}
	assert.Contains(t, string(b.Get("gather.log").Content), "clusteroperators: the cluster does not have this kind")
	assert.Nil(t, b.Get("resources/secrets.json"))
}

// TestClusterBundleOfRestrictedUser takes a service account that may list nodes only.
func TestClusterBundleOfRestrictedUser(t *testing.T) {
	env := canaryCluster(t)
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: v1.ObjectMeta{Namespace: namespace, Name: "reader"}},
		&rbacv1.ClusterRole{ObjectMeta: named("reader"),
			Rules: []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"nodes"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("reader"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName,
			Kind: "ClusterRole", Name: "reader"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "reader"}}},
	} {
		require.NoError(t, client.IgnoreAlreadyExists(env.Client.Create(t.Context(), o)))
	}
	config := env.As(t, namespace, "reader")
	var b *bundle.Bundle
	require.Eventually(t, func() bool { // the authorizer learns of the role a moment later
		var err error
		b, err = gathered(t, gather.Cluster{Config: config}, gather.Options{})
		return err == nil && strings.Contains(string(b.Get("resources/nodes.json").Content), "worker-0")
	}, time.Minute, 100*time.Millisecond)
	assert.NotContains(t, string(b.Get("resources/nodes.json").Content), "canary")
	said := string(b.Get("gather.log").Content)
	assert.Contains(t, said, "machineconfigs: left out: this user may not list them")
	assert.Contains(t, said, "logs of pods in "+namespace+": left out")
	assert.NotContains(t, said, config.BearerToken)

	config.BearerToken = "expired"
	_, err := gathered(t, gather.Cluster{Config: config}, gather.Options{})
	require.ErrorContains(t, err, "refuses these credentials")
	_, err = gathered(t, gather.Cluster{Config: &rest.Config{Host: "https://127.0.0.1:1"}}, gather.Options{})
	require.ErrorContains(t, err, "is it the right kubeconfig")
}

// slowed is a way to the API server that holds back the answers to some questions until the test ends.
func slowed(t *testing.T, env *kubetest.Env, held string) *rest.Config {
	t.Helper()
	target, err := url.Parse(env.Config.Host)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, err = rest.TransportFor(env.Config)
	require.NoError(t, err)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, held) {
			<-r.Context().Done()
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return &rest.Config{Host: srv.URL}
}

// withinLimit gathers with the shortest limit in which this machine, which may be busy, gets the answer to a question
// that nobody holds back.
func withinLimit(t *testing.T, of func(limit time.Duration) gather.Cluster, kind, has string) *bundle.Bundle {
	t.Helper()
	for limit := 2 * time.Second; limit < 2*time.Minute; limit *= 2 {
		b, err := gathered(t, of(limit), gather.Options{})
		if err != nil {
			continue
		}
		if f := b.Get("resources/" + kind + ".json"); f != nil && strings.Contains(string(f.Content), has) {
			return b
		}
	}
	require.Fail(t, "what was not held back did not come", kind)
	return nil
}

func TestASlowClusterGivesWhatCame(t *testing.T) {
	env := canaryCluster(t)
	// One kind hangs: it alone is missing.
	b := withinLimit(t, func(limit time.Duration) gather.Cluster {
		return gather.Cluster{Config: slowed(t, env, "/machineosbuilds"), RequestLimit: limit}
	}, "nodes", "worker-0")
	assert.Contains(t, string(b.Get("gather.log").Content), "machineosbuilds: not all could be gathered (0 are)")
	// All time goes by on the second question: the first one's answer is there.
	b = withinLimit(t, func(limit time.Duration) gather.Cluster {
		return gather.Cluster{Config: slowed(t, env, "/machineosconfigs"), Limit: limit}
	}, "machineconfigpools", "worker")
	assert.Nil(t, b.Get("resources/machineconfigs.json"))
	assert.Contains(t, string(b.Get("gather.log").Content), "gathering timed out")
	// Whoever stops it gets no bundle.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, gather.Cluster{Config: env.Config}.Gather(ctx, gather.Options{}, io.Discard))
}

func TestAClustersBundleIsBounded(t *testing.T) {
	env := canaryCluster(t)
	for _, name := range []string{"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"} {
		node := &corev1.Node{ObjectMeta: v1.ObjectMeta{Name: name,
			Annotations: map[string]string{"dayone.dev/long": strings.Repeat("x ", 400)}}}
		require.NoError(t, env.Client.Create(t.Context(), node))
		t.Cleanup(func() { _ = env.Client.Delete(context.WithoutCancel(t.Context()), node) })
	}
	b, err := gathered(t, gather.Cluster{Config: env.Config}, gather.Options{MaxFile: 6000})
	require.NoError(t, err)
	f := b.Get("resources/nodes.json")
	assert.True(t, json.Valid(f.Content), "what there is can be read")
	assert.Less(t, len(f.Content), 6200)
	assert.Regexp(t, `nodes: only the first [1-6] are gathered`, string(b.Get("gather.log").Content))
}
