package disruption

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/target"
)

// TestPlansOfOtherVersions reads the plans that controllers of other versions have published, for nodes and for pools.
func TestPlansOfOtherVersions(t *testing.T) {
	plan := Plan{Level: LevelReboot, Steps: []Action{{Type: Drain}, {Type: Reboot}}}
	for _, c := range []struct {
		name, text string
		want       *Promise
		refused    bool // by the check
	}{
		{"this version's", `{"config":"c","hash":"` + plan.Hash() + `","level":"Reboot"}`,
			&Promise{Config: "c", Hash: plan.Hash(), Level: LevelReboot}, false},
		{"a newer one's", `{"config":"c","hash":"` + plan.Hash() + `","level":"Reboot","window":{"from":"x"},"v":2}`,
			&Promise{Config: "c", Hash: plan.Hash(), Level: LevelReboot}, false},
		{"a level that is not known", `{"config":"c","hash":"` + plan.Hash() + `","level":"SoftReboot"}`,
			&Promise{Config: "c", Hash: plan.Hash(), Level: LevelImpossible}, false},
		{"a level that is not known, of another plan", `{"config":"c","hash":"x","level":"SoftReboot"}`,
			&Promise{Config: "c", Hash: "x", Level: LevelImpossible}, true},
		{"without a hash", `{"config":"c"}`, &Promise{Config: "c"}, false},
		{"for another target", `{"config":"d","level":"None","of":"a newer version"}`, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := PromiseOf(map[string]string{manifests.AnnotationPlan: c.text}, "c", "")
			require.NoError(t, err)
			assert.Equal(t, c.want, p)
			assert.Equal(t, c.refused, p.Check(plan) != nil)
		})
	}
	text := `{"target":{"config":"c","image":"i","generation":3},"nodes":2,"level":"SoftReboot","counts":{"SoftReboot":2},
		"ways":[{"from":{"config":"b"},"nodes":2,"names":["n"],"hash":"h","level":"SoftReboot","cost":1,
		"steps":[{"type":"SoftReboot"}],"changed":1}],"later":[]}`
	p, err := PoolPlanOf(map[string]string{manifests.AnnotationPlan: strings.ReplaceAll(text, "\n", "")})
	require.NoError(t, err)
	assert.Equal(t, target.Target{Config: "c", Image: "i"}, p.Target)
	assert.Equal(t, LevelImpossible, p.Level, "what is not known counts as the worst")
	assert.Equal(t, 1, len(p.Transitions))
	limit, _, err := MaxDisruption(map[string]string{manifests.AnnotationMaxDisruption: "SoftReboot"})
	require.Error(t, err, "an administrator's words are not guessed")
	assert.Zero(t, limit)
}
