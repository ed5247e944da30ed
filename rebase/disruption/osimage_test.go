package disruption_test

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/disruption"
)

// TestOSImageThatNodesRefuse has the osImageURLs that no node boots: the agent takes digests only.
func TestOSImageThatNodesRefuse(t *testing.T) {
	const digest = "@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	const first, tag = "q.example/os" + digest, "q.example/os:9.6"
	for _, c := range []struct {
		name, from, to, was, is string
		level                   disruption.Level
		why                     string
	}{
		{name: "a digest", from: first, to: "q.example/other" + digest, level: disruption.LevelReboot},
		{name: "a tag", from: first, to: tag, level: disruption.LevelImpossible,
			why: `osImageURL: nodes refuse it, because it must give all of them the same image: read image reference "` + tag +
				`": it names no digest; write host/path@sha256:…`},
		{name: "a tag that was there", from: tag, to: tag, level: disruption.LevelNothing},
		{name: "a tag that goes", from: tag, to: "", level: disruption.LevelReboot},
		{name: "none ever", level: disruption.LevelNothing},
		{name: "a layered pool's tag", from: first, to: tag, was: first, is: first, level: disruption.LevelNothing},
		{name: "opting in beside a tag", from: first, to: tag, is: first, level: disruption.LevelReboot},
		{name: "opting out to a digest", from: first, to: first, was: "q.example/own" + digest,
			level: disruption.LevelReboot},
		{name: "opting out to a tag", from: tag, to: tag, was: first, level: disruption.LevelImpossible, why: tag},
	} {
		t.Run(c.name, func(t *testing.T) {
			image := func(name string) part { return spec(func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = name }) }
			way := disruption.Way{From: mc(image(c.from)), To: mc(image(c.to)), Was: c.was, Is: c.is}
			plan, err := disruption.Effect(way.Input(disruption.Settings{Policies: defaults(t)}))
			require.NoError(t, err)
			assert.Equal(t, c.level, plan.Level, "%+v", plan)
			if c.why == "" {
				assert.Empty(t, plan.Impossible)
				return
			}
			require.Len(t, plan.Impossible, 1)
			assert.Contains(t, plan.Impossible[0], c.why)
		})
	}
}
