package cluster

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	sigsjson "sigs.k8s.io/json"
)

var images = Images{Controller: "registry.test:5000/dayone/controller:v1",
	Builder: "registry.test:5000/dayone/builder:v1", Daemon: "registry.test:5000/dayone/daemon:v1"}

func TestObjectsHaveKnownFields(t *testing.T) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, mcfgv1.Install, configv1.Install,
		operatorv1.Install} {
		require.NoError(t, add(s))
	}
	objects, err := Objects(Options{Images: images, NodeAgent: true, Version: "v1.2.3+dirty"})
	require.NoError(t, err)
	beside, err := Objects(Options{Images: images, Mode: Building, Registry: "api-int.example.com:22626",
		Version: "v1.2.3+dirty"})
	require.NoError(t, err)
	objects = append(objects, beside...)
	builder, err := BuilderDeployment(Options{Images: images, Version: "v1.2.3+dirty"})
	require.NoError(t, err)
	for _, object := range append(objects, builder) {
		typed, err := s.New(object.GroupVersionKind())
		require.NoError(t, err, object.GetName())
		raw, err := json.Marshal(object.Object)
		require.NoError(t, err)
		unknown, err := sigsjson.UnmarshalStrict(raw, typed)
		require.NoError(t, err)
		assert.Empty(t, unknown, "%s %s", object.GetKind(), object.GetName())
		assert.Equal(t, "v1.2.3_dirty", object.GetLabels()[LabelVersion], object.GetName())
	}
}

func TestAnotherNamespaceIsEverywhere(t *testing.T) {
	objects, err := Objects(Options{Images: images, Namespace: "layering", NodeAgent: true})
	require.NoError(t, err)
	raw, err := json.Marshal(objects)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), DefaultNamespace)
	builder, err := BuilderDeployment(Options{Images: images, Namespace: "layering"})
	require.NoError(t, err)
	assert.Equal(t, "layering", builder.GetNamespace())
}

func TestOptionsReachTheWorkloads(t *testing.T) {
	base := "registry.test/os/base@sha256:" + strings.Repeat("a", 64)
	objects, err := Objects(Options{Images: images, Replicas: 1, ImagePullSecret: "pull", BaseImage: base})
	require.NoError(t, err)
	deployment := one(t, objects, "Deployment", Controller)
	replicas, _, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	assert.Equal(t, int64(1), replicas)
	text, err := json.Marshal(deployment.Object)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"image":"`+images.Controller+`"`)
	assert.Contains(t, string(text), `"--builder-image=`+images.Builder+`"`)
	assert.Contains(t, string(text), `"--base-image=`+base+`"`)
	for _, account := range []string{Controller, Builder, BuildServiceAccount} {
		assert.Equal(t, []any{map[string]any{"name": "pull"}}, one(t, objects, "ServiceAccount", account).
			Object["imagePullSecrets"])
	}
	assert.False(t, slices.ContainsFunc(objects,
		func(o *unstructured.Unstructured) bool { return o.GetKind() == "DaemonSet" }))
	builder, err := BuilderDeployment(Options{Images: Images{Builder: images.Builder}})
	require.NoError(t, err)
	text, err = json.Marshal(builder.Object)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"image":"`+images.Builder+`"`)
	assert.Contains(t, string(text), `"--image=`+images.Builder+`"`)
}

func TestWhoApprovesNewNodesIsAsked(t *testing.T) {
	for _, approve := range []bool{false, true} {
		objects, err := Objects(Options{Images: images, NodeAgent: true, ApproveNodes: approve,
			APIServer: "https://api.test:6443"})
		require.NoError(t, err)
		text, err := json.Marshal(one(t, objects, "DaemonSet", ConfigServer).Object)
		require.NoError(t, err)
		assert.Contains(t, string(text), `"--api-server-url=https://api.test:6443"`)
		all, err := json.Marshal(objects)
		require.NoError(t, err)
		assert.Equal(t, approve, strings.Contains(string(all), "certificatesigningrequests:nodeclient"))
	}
}

func TestPodSecurityLevels(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"controllers and builds", Options{Images: images}, "baseline"},
		{"privileged builds", Options{Images: images, PrivilegedBuilds: true}, "privileged"},
		{"the node agent's pods", Options{Images: images, NodeAgent: true}, "privileged"},
		{"in another namespace too", Options{Images: images, NodeAgent: true, Namespace: "layering"}, "privileged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := Objects(c.o)
			require.NoError(t, err)
			assert.Equal(t, c.want, one(t, objects, "Namespace", c.o.withDefaults().Namespace).GetLabels()[enforceLabel])
		})
	}
}

func TestBuilderArguments(t *testing.T) {
	args := []string{"--build-pod-user-namespace", "--build-seccomp-profile=profiles/dayone-build.json", "--history=5"}
	objects, err := Objects(Options{Images: images, BuilderArgs: args})
	require.NoError(t, err)
	builder, err := BuilderDeployment(Options{Images: Images{Builder: images.Builder}, BuilderArgs: args})
	require.NoError(t, err)
	controller, err := json.Marshal(one(t, objects, "Deployment", Controller).Object)
	require.NoError(t, err)
	own, err := json.Marshal(builder.Object)
	require.NoError(t, err)
	for _, arg := range args {
		assert.Contains(t, string(controller), `"--builder-arg=`+arg+`"`)
		assert.Contains(t, string(own), `"`+arg+`"`)
	}
}

func TestOptionsValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"no images", Options{}, "image of dayone-controller"},
		{"an image with a space", Options{Images: Images{Controller: "a b", Builder: "b"}},
			"image of dayone-controller"},
		{"a node agent without an image", Options{Images: Images{Controller: "a", Builder: "b"}, NodeAgent: true},
			"image of dayone-daemon"},
		{"a namespace with a dot", Options{Images: images, Namespace: "a.b"}, "namespace"},
		{"fewer than no replicas", Options{Images: images, Replicas: -1}, "replicas"},
		{"a base image with a space", Options{Images: images, BaseImage: "a b"}, "base image"},
		{"an argument without dashes", Options{Images: images, BuilderArgs: []string{"build-privileged"}}, "write --NAME"},
		{"another image by an argument", Options{Images: images, BuilderArgs: []string{"--image=b"}},
			"the installation sets it"},
		{"a base image by a tag", Options{Images: images, BaseImage: "registry.test/os/base:1"}, "by digest"},
		{"a base image by half a digest", Options{Images: images, BaseImage: "registry.test/os/base@sha256:abc"},
			"by digest"},
		{"a secret name with a slash", Options{Images: images, ImagePullSecret: "a/b"}, "image pull secret"},
		{"an API server without https", Options{Images: images, NodeAgent: true, APIServer: "http://api.test"},
			"API server"},
		{"a registry that is no HOST:PORT", Options{Images: images, NodeAgent: true, Registry: "api-int:22626/x"},
			"HOST:PORT"},
		{"a registry and no agent for it", Options{Images: images, Registry: "api-int.example.com:22626"}, "node agent"},
		{"new nodes and nobody for them", Options{Images: images, ApproveNodes: true}, "ask for it, too"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Objects(c.o)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestRolesAreNarrow(t *testing.T) {
	objects, err := Objects(Options{Images: images, NodeAgent: true, ApproveNodes: true})
	require.NoError(t, err)
	for _, object := range objects {
		if kind := object.GetKind(); kind != "Role" && kind != "ClusterRole" {
			continue
		}
		var role rbacv1.ClusterRole
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role))
		for _, rule := range role.Rules {
			if slices.Equal(rule.Resources, []string{"serviceaccounts/token"}) &&
				slices.Equal(rule.ResourceNames, []string{NodeBootstrap}) && object.GetKind() == "Role" {
				continue // tokens of the one account that may do next to nothing
			}
			all := strings.Join(slices.Concat(rule.Verbs, rule.Resources, rule.APIGroups), " ")
			assert.NotContains(t, all, "*", role.Name)
			for _, word := range []string{"escalate", "bind", "impersonate", "roles", "rolebindings", "serviceaccounts/token",
				"pods/exec"} {
				assert.NotContains(t, strings.Fields(all), word, role.Name)
			}
			assert.False(t, object.GetKind() == "ClusterRole" && slices.Contains(rule.Resources, "secrets"),
				"%s reads secrets everywhere", role.Name)
		}
	}
}

// OpenShift admits a pod by what its account may use.
func TestAccountsMayUseConstraints(t *testing.T) {
	role := func(o Options, binding string) string {
		objects, err := Objects(o)
		require.NoError(t, err)
		ref, _, err := unstructured.NestedString(one(t, objects, "RoleBinding", binding).Object, "roleRef", "name")
		require.NoError(t, err)
		return ref
	}
	advisor := Options{Mode: Advisor, Constrained: true, Images: images}
	full := Options{Mode: Full, Constrained: true, NodeAgent: true, Images: images}
	const nonroot = "system:openshift:scc:nonroot-v2"
	assert.Equal(t, nonroot, role(advisor, "dayone-controller-scc"))
	assert.Equal(t, nonroot, role(full, "dayone-controller-scc"))
	assert.Equal(t, nonroot, role(full, "dayone-builder-scc"))
	assert.Equal(t, "dayone-build-scc", role(full, "dayone-build-scc"))
	assert.Equal(t, "system:openshift:scc:privileged", role(full, "dayone-daemon-scc"))
	assert.Equal(t, "system:openshift:scc:privileged", role(Options{Mode: Building, Constrained: true, Images: images,
		Registry: "api-int.example.com:22626"}, "dayone-daemon-scc"))
	for _, o := range []Options{{Mode: Advisor, Images: images}, {Images: images, NodeAgent: true}} {
		objects, err := Objects(o)
		require.NoError(t, err)
		raw, err := json.Marshal(objects)
		require.NoError(t, err)
		assert.NotContains(t, string(raw), "security.openshift.io", "elsewhere nobody knows the kind")
		assert.NotContains(t, string(raw), ":scc:")
	}
}

func TestAnAdvisorHasItsOwnNamespace(t *testing.T) {
	for _, namespace := range []string{AdvisorNamespace, "watch"} {
		objects, err := Objects(Options{Mode: Advisor, Namespace: namespace, Constrained: true,
			Images: Images{Controller: images.Controller}})
		require.NoError(t, err)
		assert.Equal(t, "true", one(t, objects, "Namespace", namespace).GetLabels()["openshift.io/cluster-monitoring"],
			"else OpenShift's Prometheus reads nothing in it")
		text, err := json.Marshal(one(t, objects, "Deployment", Controller).Object)
		require.NoError(t, err)
		assert.Contains(t, string(text), `"--mode=advisor"`)
		assert.NotContains(t, string(text), "--builder-image")
		for _, o := range objects {
			assert.NotContains(t, []string{"CustomResourceDefinition", "MachineConfiguration", "DaemonSet"}, o.GetKind())
			if o.GetKind() == "ValidatingAdmissionPolicy" {
				raw, err := json.Marshal(o.Object)
				require.NoError(t, err)
				assert.Contains(t, string(raw), "system:serviceaccount:"+namespace+":dayone-controller",
					"%s binds dayone alone", o.GetName())
			}
			if o.GetName() == Controller || o.GetKind() == "NetworkPolicy" {
				assert.Equal(t, namespace, o.GetNamespace(), o.GetKind())
			}
		}
	}
}

func one(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	require.Failf(t, "missing", "%s %s", kind, name)
	return nil
}
