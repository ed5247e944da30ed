package statuscontroller

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/manifests/assets/cluster"
)

func TestJudge(t *testing.T) {
	operator := []string{"Deployment ns/machine-config-operator"}
	for _, c := range []struct {
		name string
		v    view
		// want is each condition's status and reason, Available first.
		want [4]string
		says string
	}{
		{"an advisor beside its operator", view{mode: cluster.Advisor, rivals: operator},
			[4]string{"+AsExpected", "-AsExpected", "-AsExpected", "+AsExpected"}, "works in mode advisor"},
		{"a builder without one", view{mode: cluster.Building},
			[4]string{"-MachineConfigOperatorAbsent", "-AsExpected", "-AsExpected", "+AsExpected"}, "start it"},
		{"everything, and no OpenShift", view{mode: cluster.Full},
			[4]string{"+AsExpected", "-AsExpected", "-AsExpected", "+AsExpected"}, "mode full"},
		{"everything on OpenShift", view{mode: cluster.Full, openshift: true, overridden: true},
			[4]string{"+AsExpected", "-AsExpected", "-AsExpected", "-InTheMachineConfigOperatorsPlace"},
			"waits for it until you run dayone cluster uninstall"},
		{"the override is removed by hand", view{mode: cluster.Full, openshift: true},
			[4]string{"+AsExpected", "-AsExpected", "+ClusterVersionOverrideMissing", "-InTheMachineConfigOperatorsPlace"},
			"--take-over"},
		{"the operator is back", view{mode: cluster.Full, openshift: true, overridden: true, rivals: operator},
			[4]string{"-MachineConfigOperatorIsBack", "-AsExpected", "+MachineConfigOperatorIsBack",
				"-InTheMachineConfigOperatorsPlace"}, "has stopped writing"},
		{"a second installation", view{mode: cluster.Advisor, rivals: operator, elsewhere: "other"},
			[4]string{"+AsExpected", "-AsExpected", "+TwoInstallations", "+AsExpected"}, "in namespace other"},
		{"a rollout comes before what is under way", view{mode: cluster.Full, rollouts: []string{"one of two"},
			moving: []string{"a build"}, pools: []string{"pool worker"}},
			[4]string{"+AsExpected", "+RollingOut", "-AsExpected", "+AsExpected"}, "one of two"},
		{"pools report", view{mode: cluster.Full, pools: []string{"pool worker"}, stuck: []string{"pool infra: x"}},
			[4]string{"+AsExpected", "+PoolsReport", "+PoolsReport", "+AsExpected"}, "pool infra: x"},
		{"many things are counted", view{mode: cluster.Full, failing: strings.Split("abcdefghijk", "")},
			[4]string{"+AsExpected", "-AsExpected", "+ControllersReport", "+AsExpected"}, "h; and 3 more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got [4]string
			var all strings.Builder
			for i, v := range judge(c.v) {
				got[i] = map[bool]string{true: "+", false: "-"}[v.is] + v.reason
				all.WriteString(v.message + "\n")
			}
			assert.Equal(t, c.want, got)
			assert.Contains(t, all.String(), c.says)
		})
	}
	long := enumerate([]string{strings.Repeat("é", maxMessage)})
	assert.LessOrEqual(t, len(long), maxMessage+len("…"))
}
