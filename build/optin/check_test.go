package optin

import (
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests/assets/cluster"
)

func machineOSConfig(name, pool string) *mcfgv1.MachineOSConfig {
	return &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: pool},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
		RenderedImagePushSpec:   "registry.example.test/os/image:latest",
	}}
}

func TestCheck(t *testing.T) {
	fine := situation{poolExists: true, winner: "infra",
		secrets: []secretState{{field: "spec.renderedImagePushSecret", name: "push"}}}
	for _, c := range []struct {
		name    string
		change  func(*mcfgv1.MachineOSConfig, *situation)
		reason  string
		message string
	}{
		{"a pool with what it needs is in", func(*mcfgv1.MachineOSConfig, *situation) {}, reasonOptedIn, "infra is opted in"},
		{"the pool is another one's", func(_ *mcfgv1.MachineOSConfig, s *situation) { s.winner = "older" },
			reasonPoolTaken, "belongs to MachineOSConfig older"},
		{"there is no such pool", func(_ *mcfgv1.MachineOSConfig, s *situation) { s.poolExists = false },
			reasonPoolMissing, "no MachineConfigPool infra"},
		{"two namespaces in the push spec", func(c *mcfgv1.MachineOSConfig,
			_ *situation) {
			c.Spec.RenderedImagePushSpec = "r.test/a/b/c:t"
		}, reasonPushSpecUnusable, "at most one namespace"},
		{"a push spec that is too long", func(c *mcfgv1.MachineOSConfig, _ *situation) {
			c.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat("r.test/" + strings.Repeat("x", 400) + ":t")
		}, reasonPushSpecUnusable, "more than 447"},
		{"a push secret that is not there", func(_ *mcfgv1.MachineOSConfig, s *situation) {
			s.secrets = []secretState{{field: "spec.renderedImagePushSecret", name: "push", missing: true}}
		}, reasonSecretMissing, "no Secret ns/push, which spec.renderedImagePushSecret names"},
		{"a base secret without credentials", func(_ *mcfgv1.MachineOSConfig, s *situation) {
			s.secrets = append(s.secrets, secretState{field: "spec.baseImagePullSecret", name: "pull",
				fault: "it has no credentials"})
		}, reasonSecretUnusable, "ns/pull, which spec.baseImagePullSecret names, cannot be used: it has no credentials"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, s := machineOSConfig("infra", "infra"), fine
			c.change(config, &s)
			v := check(config, s, "ns")
			assert.Equal(t, c.reason, v.reason)
			assert.Equal(t, c.reason == reasonOptedIn, v.optedIn)
			assert.Contains(t, v.message, c.message)
		})
	}
}

func TestWinner(t *testing.T) {
	at := func(c *mcfgv1.MachineOSConfig, seconds int64) mcfgv1.MachineOSConfig {
		c.CreationTimestamp = metav1.Unix(seconds, 0)
		return *c
	}
	named, older, newer := at(machineOSConfig("infra", "infra"), 30), at(machineOSConfig("b", "infra"), 10),
		at(machineOSConfig("c", "infra"), 20)
	twin, other := at(machineOSConfig("a", "infra"), 10), at(machineOSConfig("worker", "worker"), 1)
	going := *named.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(40, 0)}
	for _, c := range []struct {
		name    string
		configs []mcfgv1.MachineOSConfig
		want    string
	}{
		{"none", nil, ""},
		{"another pool's does not count", []mcfgv1.MachineOSConfig{other}, ""},
		{"that of the pool's name wins", []mcfgv1.MachineOSConfig{older, newer, named}, "infra"},
		{"otherwise the oldest", []mcfgv1.MachineOSConfig{newer, older}, "b"},
		{"of two equally old the first name", []mcfgv1.MachineOSConfig{older, twin}, "a"},
		{"one that goes does not count", []mcfgv1.MachineOSConfig{going, newer}, "c"},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, winner(c.configs, "infra")) })
	}
}

func TestDecide(t *testing.T) {
	deployment := func(labels map[string]string, available int32) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: cluster.Builder, Labels: labels,
			Generation: 1},
			Status: appsv1.DeploymentStatus{ObservedGeneration: 1, AvailableReplicas: available}}
	}
	mine := map[string]string{cluster.LabelManagedBy: cluster.ManagedBy}
	failing := deployment(mine, 0)
	failing.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure,
		Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "quota"}}
	ending := deployment(mine, 1)
	ending.DeletionTimestamp = &metav1.Time{}
	behind := deployment(mine, 1)
	behind.Generation = 2
	for _, c := range []struct {
		name    string
		v       view
		run     bool
		phase   phase
		message string
	}{
		{"an empty cluster", view{}, false, phaseIdle, "0 of 0"},
		{"only bad ones start nothing", view{configs: 2}, false, phaseIdle, "0 of 2"},
		{"the first one starts it", view{configs: 2, optedIn: 1}, true, phaseStarting, "1 of 2"},
		{"not available yet", view{configs: 1, optedIn: 1, deployment: deployment(mine, 0)}, true,
			phaseStarting, "not available yet"},
		{"and why", view{configs: 1, optedIn: 1, deployment: failing}, true, phaseStarting,
			"FailedCreate: quota"},
		{"available for an older generation", view{configs: 1, optedIn: 1, deployment: behind}, true, phaseStarting,
			"not available yet"},
		{"available", view{configs: 1, optedIn: 1, deployment: deployment(mine, 1)}, true,
			phaseRunning, "1 of 1"},
		{"turned bad, it goes on", view{configs: 1, deployment: deployment(mine, 1)}, true, phaseRunning,
			"0 of 1"},
		{"the last one is gone, a build is not", view{remaining: []string{"MachineOSBuild x (Building)"},
			deployment: deployment(mine, 1)}, true, phaseStopping, "waits for MachineOSBuild x (Building)"},
		{"it is brought back to clear up", view{remaining: []string{"MachineOSBuild x (Building)"}}, true, phaseStopping,
			"MachineOSBuild x"},
		{"many things are counted", view{remaining: strings.Split("abcdefghijkl", ""),
			deployment: deployment(mine, 1)}, true, phaseStopping, "h and 4 more"},
		{"nothing is left", view{deployment: deployment(mine, 1)}, false, phaseStopping,
			"nothing is left"},
		{"a new one comes while the old one ends", view{configs: 1, optedIn: 1, deployment: ending}, true, phaseStarting,
			"the old dayone-builder"},
		{"that of an earlier version ends first", view{configs: 1, optedIn: 1, former: deployment(mine, 1)}, false,
			phaseReplacing, "dayone-builder starts when Deployment ns/dayone-builder"},
		{"somebody else's Deployment is untouched", view{configs: 1, optedIn: 1, deployment: deployment(nil, 1)}, false,
			phaseBlocked, "not made by dayone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := decide(c.v)
			assert.Equal(t, c.run, p.run)
			assert.Equal(t, c.phase, p.phase)
			assert.Contains(t, p.message, c.message)
		})
	}
}
