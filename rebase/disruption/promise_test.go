package disruption_test

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/target"
)

func TestEqualPlansHaveEqualHashesWhateverTheirWords(t *testing.T) {
	in := disruption.Input{Old: mc(file(policyJSON, "1")), New: mc(file(policyJSON, "2")), Policies: defaults(t)}
	a, err := disruption.Effect(in)
	require.NoError(t, err)
	b, err := disruption.Effect(in)
	require.NoError(t, err)
	b.Changes[0].Why = "in other words"
	assert.Equal(t, a.Hash(), b.Hash())
	in.Policies = in.Policies.Override(userFile(policyJSON, "None"))
	c, err := disruption.Effect(in)
	require.NoError(t, err)
	assert.NotEqual(t, a.Hash(), c.Hash())
	p := &disruption.Promise{Hash: a.Hash(), Level: a.Level}
	require.NoError(t, p.Check(b))
	require.ErrorIs(t, p.Check(c), disruption.ErrPlanChanged)
	var nothing *disruption.Promise
	assert.NoError(t, nothing.Check(c))
}

func TestAPromiseHoldsForItsTargetOnly(t *testing.T) {
	text, err := disruption.Promise{Config: "rendered-a-1", Image: "i", Hash: "h", Level: disruption.LevelDrain}.Encode()
	require.NoError(t, err)
	annotations := map[string]string{manifests.AnnotationPlan: text}
	p, err := disruption.PromiseOf(annotations, "rendered-a-1", "i")
	require.NoError(t, err)
	assert.Equal(t, disruption.LevelDrain, p.Level)
	p, err = disruption.PromiseOf(annotations, "rendered-a-2", "i")
	require.NoError(t, err)
	assert.Nil(t, p)
	_, err = disruption.PromiseOf(map[string]string{manifests.AnnotationPlan: "{"}, "", "")
	require.Error(t, err)
	limit, found, err := disruption.MaxDisruption(map[string]string{manifests.AnnotationMaxDisruption: "Reload"})
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, disruption.LevelReload, limit)
	_, _, err = disruption.MaxDisruption(map[string]string{manifests.AnnotationMaxDisruption: "Little"})
	assert.ErrorContains(t, err, "Nothing, Quiet, Reload, Drain, Reboot")
}

func TestAPublishedPlanIsBoundedAndReadBack(t *testing.T) {
	var ways []disruption.Transition
	for i := range 40 {
		w := disruption.Transition{From: target.Target{Config: "rendered-" + string(rune('a'+i))}, Nodes: 10,
			Level: disruption.LevelReload, Steps: actions("Reload crio.service")}
		for j := range 10 {
			w.Names = append(w.Names, string(rune('z'-j)))
		}
		ways = append(ways, w)
	}
	p := disruption.NewPoolPlan(target.Target{Config: "rendered-x"}, ways)
	assert.Equal(t, 400, p.Nodes)
	assert.Equal(t, map[string]int{"Reload crio.service": 400}, p.Counts)
	assert.Len(t, p.Transitions, disruption.MaxTransitions)
	assert.Equal(t, []string{"q", "r", "s", "t", "u"}, p.Transitions[0].Names)
	text, err := p.Encode()
	require.NoError(t, err)
	again, err := disruption.PoolPlanOf(map[string]string{manifests.AnnotationPlan: text})
	require.NoError(t, err)
	assert.Equal(t, p, *again)
	_, found := again.Transition(target.Target{Config: "rendered-a"})
	assert.True(t, found)
}

func TestThePlanHoldsTheWaysOfMostNodes(t *testing.T) {
	var ways []disruption.Transition
	for i := range disruption.MaxTransitions + 3 {
		ways = append(
			ways,
			disruption.Transition{From: target.Target{Config: "rendered-" + string(rune('a'+i))}, Nodes: 1 + i},
		)
	}
	p := disruption.NewPoolPlan(target.Target{Config: "rendered-x"}, ways)
	require.Len(t, p.Transitions, disruption.MaxTransitions)
	assert.Equal(t, "rendered-d", p.Transitions[0].From.Config,
		"the three smallest are left out, the others are in the order of their names")
	assert.Equal(t, disruption.MaxTransitions+3, p.Transitions[disruption.MaxTransitions-1].Nodes)
	assert.Equal(t, 120, p.Nodes, "and all are counted")
}

func TestCompareImages(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	made := func(image, address, ground string, at int, forced bool) mcfgv1.MachineOSBuild {
		b := mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: image,
			CreationTimestamp: metav1.NewTime(start.Add(time.Duration(at) * time.Minute)),
			Annotations:       map[string]string{manifests.AnnotationBuildAddress: address}}}
		if ground != "" {
			b.Annotations[manifests.AnnotationBuildGround] = ground
		}
		if forced {
			b.Annotations[manifests.AnnotationBuildForced] = "true"
		}
		b.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(image)
		return b
	}
	one, config, base := made("one", "a1", "g", 0, false), made("config", "a2", "g", 5, false),
		made("base", "a3", "h", 5, false)
	rebuilt, unknown := made("rebuilt", "a1", "g", 3, true), made("unknown", "a4", "", 5, false)
	for _, c := range []struct {
		name    string
		builds  []mcfgv1.MachineOSBuild
		was, is string
		want    disruption.ImageChange
	}{
		{"the same", nil, "one", "one", disruption.ImageSame},
		{"another config", []mcfgv1.MachineOSBuild{one, config}, "one", "config", disruption.ImageConfig},
		{"back to the config before", []mcfgv1.MachineOSBuild{one, config}, "config", "one", disruption.ImageConfig},
		{"another base", []mcfgv1.MachineOSBuild{one, base}, "one", "base", disruption.ImageContent},
		{"a rebuild", []mcfgv1.MachineOSBuild{one, rebuilt}, "one", "rebuilt", disruption.ImageContent},
		{"another config and a rebuild", []mcfgv1.MachineOSBuild{one, rebuilt, config}, "one", "config",
			disruption.ImageContent},
		{"another config after the rebuild has arrived", []mcfgv1.MachineOSBuild{one, rebuilt, config}, "rebuilt", "config",
			disruption.ImageConfig},
		{"a build nobody knows any more", []mcfgv1.MachineOSBuild{config}, "one", "config",
			disruption.ImageContent},
		{"a build of an older version", []mcfgv1.MachineOSBuild{one, unknown}, "one", "unknown",
			disruption.ImageContent},
		{"opting in", []mcfgv1.MachineOSBuild{one}, "", "one", disruption.ImageContent},
		{"opting out", []mcfgv1.MachineOSBuild{one}, "one", "", disruption.ImageContent},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, disruption.CompareImages(c.builds, c.was, c.is)) })
	}
}
