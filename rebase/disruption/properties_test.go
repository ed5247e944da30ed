package disruption_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/disruption"
)

// TestProperties checks on random configs and policies what must hold for all.
func TestProperties(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i := range 2000 {
		g := &generator{rand.New(rand.NewPCG(seed, uint64(i)))}
		policies := defaults(t).Override(g.policies())
		left, right := g.change("l"), g.change("r")
		plan := func(old, new []part, p disruption.Policies) disruption.Plan {
			out, err := disruption.Effect(disruption.Input{Old: mc(old...), New: mc(new...), Policies: p})
			require.NoError(t, err)
			return out
		}
		a, b := plan(left.old, left.new, policies), plan(right.old, right.new, policies)
		both := plan(slices.Concat(left.old, right.old), slices.Concat(left.new, right.new), policies)
		assert.Empty(t, plan(left.old, left.old, policies).Changes, "what stays is no change")
		assert.Equal(t, a, plan(left.old, left.new, policies), "the same question has the same answer")
		assert.Len(t, both.Changes, len(a.Changes)+len(b.Changes))
		assert.Equal(t, max(a.Level, b.Level), both.Level, "two changes disturb as much as the worse of them")
		if both.Level < disruption.LevelReboot {
			for _, s := range slices.Concat(a.Steps, b.Steps) {
				idle := s.Type == disruption.Reload && slices.Contains(both.Steps, disruption.Action{Type: disruption.Restart, Service: s.Service})
				assert.True(t, idle || slices.Contains(both.Steps, s), "%v is missing in %v", s, both.Steps)
			}
			assert.LessOrEqual(t, len(both.Steps), len(a.Steps)+len(b.Steps))
		}
		ordered(t, both.Steps)
		assert.Equal(t, disruption.LevelReboot, max(plan(left.old, left.new, disruption.Policies{}).Level, a.Level), "without policies every change reboots")
		if t.Failed() {
			t.Fatalf("seed %d, case %d", seed, i)
		}
	}
}

func ordered(t *testing.T, steps []disruption.Action) {
	rank := map[disruption.ActionType]int{disruption.Drain: 0, disruption.DaemonReload: 1, disruption.Restart: 2, disruption.Reload: 3, disruption.Reboot: 4}
	for i, s := range steps {
		if i == 0 {
			continue
		}
		p := steps[i-1]
		assert.True(t, rank[p.Type] < rank[s.Type] || (p.Type == s.Type && p.Service < s.Service), "order and each once: %v", steps)
	}
}

type generator struct{ *rand.Rand }

type difference struct{ old, new []part }

// change makes a difference of one to four files and units whose names begin with a prefix.
func (g *generator) change(prefix string) difference {
	var d difference
	for i := range 1 + g.IntN(4) {
		dir := []string{"/etc", "/etc/a", "/etc/a/b", "/etc/containers/registries.d", "/etc/kubernetes/credential-providers"}[g.IntN(5)]
		name := fmt.Sprintf("%s/%s%d", dir, prefix, i)
		make := func(v string) part { return file(name, v) }
		if g.IntN(3) == 0 {
			name = fmt.Sprintf("%s%d.service", prefix, i)
			make = func(v string) part { return unit(name, v) }
		}
		switch g.IntN(3) {
		case 0:
			d.new = append(d.new, make("1"))
		case 1:
			d.old = append(d.old, make("1"))
		default:
			d.old, d.new = append(d.old, make("1")), append(d.new, make("2"))
		}
	}
	return d
}

func (g *generator) policies() (out disruption.Policies) {
	does := []string{"None", "Drain", "DaemonReload", "Restart l0.service", "Reload l0.service", "Drain, DaemonReload, Restart crio.service", "Reboot"}
	for _, path := range []string{"/", "/etc", "/etc/a", "/etc/a/b", "/etc/a/b/l0"} {
		if g.IntN(2) == 0 {
			out.Files = append(out.Files, userFile(path, does[g.IntN(len(does))]).Files...)
		}
	}
	for i := range 4 {
		if g.IntN(2) == 0 {
			out.Units = append(out.Units, userUnit(fmt.Sprintf("l%d.service", i), does[g.IntN(len(does))]).Units...)
		}
	}
	return out
}
