package disruptioncontroller_test

import (
	"encoding/json"
	"net/http"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/disruptioncontroller"
)

func origins(t *testing.T, mc *opv1.MachineConfiguration) map[string]disruption.PublishedRule {
	var rules []disruption.PublishedRule
	require.NoError(t, json.Unmarshal([]byte(mc.Annotations[manifests.AnnotationPolicyOrigins]), &rules))
	out := map[string]disruption.PublishedRule{}
	for _, r := range rules {
		out[r.Kind+" "+r.Name] = r
	}
	return out
}

func TestTheObjectIsMadeAndSaysWhatIsInForce(t *testing.T) {
	f := newFixture(t)
	mc := f.policies()
	assert.Equal(t, opv1.Managed, mc.Spec.ManagementState)
	mc = f.policies()
	rules := mc.Status.NodeDisruptionPolicyStatus.ClusterPolicies
	assert.Len(t, rules.Files, 13)
	assert.Equal(t, opv1.SpecialStatusAction, rules.Files[3].Actions[0].Type)
	assert.Equal(t, opv1.NoneStatusAction, rules.SSHKey.Actions[0].Type)
	assert.Equal(t, mc.Generation, mc.Status.ObservedGeneration)
	assert.True(t, meta.IsStatusConditionTrue(mc.Status.Conditions, disruptioncontroller.ConditionAccepted))
	assert.True(t, meta.IsStatusConditionFalse(mc.Status.Conditions, disruptioncontroller.ConditionDoubtful))
	assert.Equal(t, disruption.OriginDefault, origins(t, mc)["file /etc/containers/policy.json"].Origin)
	still := mc.ResourceVersion
	assert.Equal(t, still, f.policies().ResourceVersion, "nothing new, nothing written")

	require.NoError(t, f.env.Client.Delete(t.Context(), mc))
	f.policies()
	assert.Len(t, f.policies().Status.NodeDisruptionPolicyStatus.ClusterPolicies.Files, 13, "it comes back")
}

func TestTheAdminsRulesReplaceTheClusters(t *testing.T) {
	f := newFixture(t)
	f.config(1, "app.service")
	f.aim(1)
	f.admin(`{"files":[{"path":"/etc/containers/policy.json","actions":[{"type":"None"}]},{"path":"/etc/app","actions":[{"type":"Restart","restart":{"serviceName":"app.service"}}]}],
		"units":[{"name":"app.service","actions":[{"type":"DaemonReload"},{"type":"Restart","restart":{"serviceName":"app.service"}}]}]}`, nil)
	mc := f.policies()
	rules := mc.Status.NodeDisruptionPolicyStatus.ClusterPolicies
	require.Len(t, rules.Files, 14)
	assert.Equal(t, "/etc/containers/policy.json", rules.Files[2].Path, "in its place")
	assert.Equal(t, opv1.NoneStatusAction, rules.Files[2].Actions[0].Type)
	by := origins(t, mc)
	assert.Equal(t, disruption.OriginUser, by["file /etc/containers/policy.json"].Origin)
	assert.Equal(t, "Restart app.service", by["file /etc/app"].Actions)
	assert.Equal(t, disruption.OriginDefault, by["file /etc/crio/policies"].Origin)
	assert.True(t, meta.IsStatusConditionTrue(mc.Status.Conditions, disruptioncontroller.ConditionAccepted))
	assert.True(t, meta.IsStatusConditionFalse(mc.Status.Conditions, disruptioncontroller.ConditionDoubtful), "%+v",
		mc.Status.Conditions)
}

func TestWhatCannotBeMeantIsRefusedAndWhatIsDoubtfulSaid(t *testing.T) {
	f := newFixture(t)
	f.config(1, "other.service")
	f.aim(1)
	f.create(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-" + f.pool,
		Annotations: map[string]string{manifests.AnnotationOwnPostConfigAction: "Explode"}}})
	f.admin(`{"files":[{"path":"/etc/a","actions":[{"type":"None"}]},{"path":"/etc/a/","actions":[{"type":"Drain"}]},
		{"path":"/etc/b","actions":[{"type":"Restart","restart":{"serviceName":"x.service"}},{"type":"Reload","reload":{"serviceName":"x.service"}}]},
		{"path":"/etc/containers/registries.conf#Mirrors","actions":[{"type":"None"}]},
		{"path":"/etc/c","actions":[{"type":"Restart","restart":{"serviceName":"missing.service"}}]},
		{"path":"/etc/d","actions":[{"type":"Reload","reload":{"serviceName":"crio.service"}}]},
		{"path":"/etc/containers/registries.conf","actions":[{"type":"Reload","reload":{"serviceName":"crio.service"}}]}],
		"units":[{"name":"other.service","actions":[{"type":"Restart","restart":{"serviceName":"other.service"}}]}]}`,
		map[string]string{manifests.AnnotationMirrorPolicy: "Nonsense"})
	mc := f.policies()
	accepted := meta.FindStatusCondition(mc.Status.Conditions, disruptioncontroller.ConditionAccepted)
	assert.Equal(t, metav1.ConditionFalse, accepted.Status)
	for _, part := range []string{"files[/etc/a]: two entries mean this name", "registries.conf#Mirrors",
		"there is no kind", "Nonsense", "50-" + f.pool, "Explode"} {
		assert.Contains(t, accepted.Message, part)
	}
	doubtful := meta.FindStatusCondition(mc.Status.Conditions, disruptioncontroller.ConditionDoubtful)
	assert.Equal(t, metav1.ConditionTrue, doubtful.Status)
	assert.Contains(t, doubtful.Message, "missing.service")
	assert.Contains(t, doubtful.Message, "only after DaemonReload")
	assert.Contains(t, doubtful.Message, "registries.conf")
	assert.NotContains(t, doubtful.Message, "crio.service;", "what the cluster's own rules name is in the OS image")
	assert.NotContains(t, origins(t, mc), "file /etc/a", "nobody can say which one is meant")
	assert.Equal(t, "Restart x.service, Reload x.service", origins(t, mc)["file /etc/b"].Actions, "the API allows it")
	assert.Contains(t, origins(t, mc), "file /etc/c", "a doubtful rule holds")
}

func TestFieldsThatAreNotDayonesAreNamed(t *testing.T) {
	f := newFixture(t)
	mc := f.policies()
	assert.True(t, meta.IsStatusConditionFalse(mc.Status.Conditions, disruptioncontroller.ConditionWithoutEffect))
	f.patch(map[string]any{"spec": map[string]any{"logLevel": "Debug", "operatorLogLevel": "Trace",
		"bootImageSkewEnforcement": map[string]any{"mode": "None"}}})
	mc = f.policies()
	named := meta.FindStatusCondition(mc.Status.Conditions, disruptioncontroller.ConditionWithoutEffect)
	assert.Equal(t, metav1.ConditionTrue, named.Status)
	assert.NotContains(t, named.Message, "spec.logLevel", "the agents heed it")
	assert.Contains(t, named.Message, "spec.bootImageSkewEnforcement")
	assert.Equal(t, opv1.Trace, f.verbosity, "the operator's own level is heeded")
}

func TestTheListOfTheObjectSaysWhetherItIsAccepted(t *testing.T) {
	f := newFixture(t)
	f.admin(`{"files":[{"path":"relative","actions":[{"type":"None"}]}]}`, nil)
	f.policies()
	c, err := rest.HTTPClientFor(f.env.Config)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		f.env.Config.Host+"/apis/operator.openshift.io/v1/machineconfigurations", nil)
	require.NoError(t, err)
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	answer, err := c.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	var table metav1.Table
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&table))
	require.Len(t, table.Rows, 1)
	have := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		have[column.Name] = table.Rows[0].Cells[i]
	}
	assert.Equal(t, "Managed", have["Managed"])
	assert.Equal(t, "False", have["PoliciesAccepted"])
	assert.Equal(t, "False", have["Doubtful"])
	assert.Contains(t, have["Refused"], "files[relative]")
	assert.Equal(t, "Quiet", origins(t, f.machineConfiguration())["sshkey "].Effect)
}
