package cluster

import (
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/manifests"
)

// denied is what the Machine Config Operator puts into its namespace (pkg/operator/network_policy.go, default-deny). It
// also allows all pods there to talk to anybody; what dayone needs does not depend on that.
var denied = networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
	PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}}}

// place is an end of a connection: an address, or a pod of a namespace with labels.
type place struct {
	ip        string
	namespace map[string]string
}

// pod is one of dayone's in the network of pods.
type pod struct {
	name   string
	labels map[string]string
}

func typed[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()
	var out T
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &out))
	return out
}

// podsAndPolicies are what of an installation is in the network of pods, builds among them.
func podsAndPolicies(t *testing.T, o Options) (pods []pod, policies []networkingv1.NetworkPolicy) {
	t.Helper()
	objects, err := Objects(o)
	require.NoError(t, err)
	if o.Mode == Full {
		builder, err := BuilderDeployment(o)
		require.NoError(t, err)
		objects = append(objects, builder)
	}
	if o.Mode != Advisor { // as build/job makes them
		pods = append(pods, pod{"a build", map[string]string{LabelPartOf: ManagedBy,
			manifests.LabelEphemeralBuildObject: ""}})
	}
	take := func(name string, template corev1.PodTemplateSpec) {
		if !template.Spec.HostNetwork {
			pods = append(pods, pod{name, template.Labels})
		}
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "Deployment":
			take(object.GetName(), typed[appsv1.Deployment](t, object).Spec.Template)
		case "DaemonSet":
			take(object.GetName(), typed[appsv1.DaemonSet](t, object).Spec.Template)
		case "NetworkPolicy":
			policies = append(policies, typed[networkingv1.NetworkPolicy](t, object))
		}
	}
	return pods, policies
}

func selects(t *testing.T, s *metav1.LabelSelector, has map[string]string) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	return selector.Matches(labels.Set(has))
}

// peersInclude is the meaning of a rule's peers: none are all.
func peersInclude(t *testing.T, peers []networkingv1.NetworkPolicyPeer, at place) bool {
	t.Helper()
	if len(peers) == 0 {
		return true
	}
	within := func(cidr string) bool {
		_, network, err := net.ParseCIDR(cidr)
		require.NoError(t, err)
		return network.Contains(net.ParseIP(at.ip))
	}
	return slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.IPBlock != nil {
			return at.ip != "" && within(p.IPBlock.CIDR) && !slices.ContainsFunc(p.IPBlock.Except, within)
		}
		return at.namespace != nil && p.NamespaceSelector != nil && selects(t, p.NamespaceSelector, at.namespace)
	})
}

// reaches is the meaning of policies: who is selected by none is free, the others may do what one of them allows.
func reaches(t *testing.T, policies []networkingv1.NetworkPolicy, p pod, to place) bool {
	t.Helper()
	isolated, allowed := false, false
	for i := range policies {
		s := &policies[i].Spec
		if !selects(t, &s.PodSelector, p.labels) || !slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeEgress) {
			continue
		}
		isolated = true
		for _, rule := range s.Egress {
			allowed = allowed || len(rule.Ports) == 0 && peersInclude(t, rule.To, to)
		}
	}
	return allowed || !isolated
}

// answers is the same for who may reach the pod's metrics.
func answers(t *testing.T, policies []networkingv1.NetworkPolicy, p pod, from place) bool {
	t.Helper()
	isolated, allowed := false, false
	for i := range policies {
		s := &policies[i].Spec
		if !selects(t, &s.PodSelector, p.labels) || !slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeIngress) {
			continue
		}
		isolated = true
		for _, rule := range s.Ingress {
			allowed = allowed || peersInclude(t, rule.From, from)
		}
	}
	return allowed || !isolated
}

// TestPodsReachWhatTheyNeedWhereAllIsDenied reads the policies as Kubernetes documents them; the tests' clusters have
// no network that enforces any.
func TestPodsReachWhatTheyNeedWhereAllIsDenied(t *testing.T) {
	dns := place{namespace: map[string]string{"kubernetes.io/metadata.name": "openshift-dns"}}
	api, registry := place{ip: "172.30.0.1"}, place{ip: "203.0.113.7"}
	cache := place{ip: "169.254.20.10"} // node-local DNS
	credentials := []string{"169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200",
		"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"}
	prometheus := place{namespace: map[string]string{"network.openshift.io/policy-group": "monitoring"}}
	stranger := place{namespace: map[string]string{"kubernetes.io/metadata.name": "apps"}}
	for _, mode := range Modes() {
		t.Run(string(mode), func(t *testing.T) {
			pods, policies := podsAndPolicies(t, Options{Images: images, Mode: mode, NodeAgent: mode == Full})
			require.NotEmpty(t, pods)
			policies = append(policies, denied)
			for _, p := range pods {
				build := p.name == "a build"
				for _, to := range []place{dns, cache, api, registry} {
					assert.True(t, reaches(t, policies, p, to), "%s reaches %v", p.name, to)
				}
				for _, ip := range credentials {
					assert.Equal(t, !build, reaches(t, policies, p, place{ip: ip}), "%s and the cloud's %s", p.name, ip)
				}
				assert.Equal(t, !build, answers(t, policies, p, prometheus), "metrics of %s", p.name)
				assert.False(t, answers(t, policies, p, stranger), "%s answers nobody else", p.name)
			}
		})
	}
}
