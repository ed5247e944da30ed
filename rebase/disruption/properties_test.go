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
		assert.ElementsMatch(t, slices.Concat(a.Changes, b.Changes), both.Changes,
			"the union of two changes is what either is")
		joined := disruption.Join(a, b)
		assert.Equal(t, joined.Steps, both.Steps, "and does what either does")
		assert.Equal(t, joined.Level, both.Level)
		assert.Equal(t, a, plan(g.shuffled(left.old), g.shuffled(left.new), policies),
			"the order in a config does not matter")
		assert.Equal(t, max(a.Level, b.Level), both.Level, "two changes disturb as much as the worse of them")
		if both.Level < disruption.LevelReboot {
			for _, s := range slices.Concat(a.Steps, b.Steps) {
				idle := s.Type == disruption.Reload && slices.Contains(both.Steps, disruption.Action{Type: disruption.Restart,
					Service: s.Service})
				assert.True(t, idle || slices.Contains(both.Steps, s), "%v is missing in %v", s, both.Steps)
			}
			assert.LessOrEqual(t, len(both.Steps), len(a.Steps)+len(b.Steps))
		}
		ordered(t, both.Steps)
		assert.Equal(t, disruption.LevelReboot, max(plan(left.old, left.new, disruption.Policies{}).Level, a.Level),
			"without policies every change reboots")
		if t.Failed() {
			t.Fatalf("seed %d, case %d", seed, i)
		}
	}
}

// TestMonotony checks what a change of the policies does to plans, for random ones: it does what is written, and that
// only.
//
//   - Locality: another list of actions in one rule changes what follows of the changes that this rule applied
//     to, and of no others.
//   - As written: those changes get just that list.
//   - Monotony: a list that disturbs at least as much makes no plan disturb less, and one that disturbs at most as
//     much none more.
//   - Without its rule a change falls to the next longer one above it or, without any, to a reboot; it never escapes.
func TestMonotony(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i := range 2000 {
		g := &generator{rand.New(rand.NewPCG(seed, uint64(i)))}
		d := g.change("l")
		before := g.policies()
		effect := func(p disruption.Policies) disruption.Plan {
			out, err := disruption.Effect(disruption.Input{Old: mc(d.old...), New: mc(d.new...), Policies: p})
			require.NoError(t, err)
			return out
		}
		if len(before.Files) == 0 {
			continue
		}
		at := g.IntN(len(before.Files))
		rule := before.Files[at]
		after := before
		after.Files = slices.Clone(before.Files)
		after.Files[at].Actions = userFile(rule.Name, g.does()).Files[0].Actions
		without := before
		without.Files = slices.Delete(slices.Clone(before.Files), at, at+1)
		was, is, bare := effect(before), effect(after), effect(without)
		stricter, looser := disturbs(after.Files[at].Actions) >= disturbs(rule.Actions),
			disturbs(after.Files[at].Actions) <= disturbs(rule.Actions)
		require.Len(t, is.Changes, len(was.Changes))
		for j, c := range was.Changes {
			if c.Rule == nil || c.Kind != disruption.KindFile || c.Rule.Name != rule.Name {
				assert.Equal(t, c, is.Changes[j], "locality")
				assert.Equal(t, c, bare.Changes[j], "locality of a removal")
				continue
			}
			assert.Equal(t, after.Files[at].Actions, is.Changes[j].Actions, "as written")
			if next := bare.Changes[j].Rule; next != nil {
				assert.Less(t, len(next.Name), len(rule.Name), "the next rule is above")
			} else {
				assert.Equal(t, []disruption.Action{{Type: disruption.Reboot}}, bare.Changes[j].Actions, "no rule, reboot")
			}
		}
		assert.True(t, !stricter || is.Level >= was.Level, "stricter: %v became %v", was.Level, is.Level)
		assert.True(t, !looser || is.Level <= was.Level, "looser: %v became %v", was.Level, is.Level)
		if t.Failed() {
			t.Fatalf("seed %d, case %d: %v becomes %v", seed, i, rule, after.Files[at].Actions)
		}
	}
}

// disturbs is the level of a list of actions that stands for itself.
func disturbs(actions []disruption.Action) disruption.Level {
	level := disruption.LevelQuiet
	for _, a := range actions {
		switch a.Type {
		case disruption.Reboot:
			return disruption.LevelReboot
		case disruption.Drain:
			level = disruption.LevelDrain
		case disruption.DaemonReload, disruption.Restart, disruption.Reload:
			level = max(level, disruption.LevelReload)
		}
	}
	return level
}

func ordered(t *testing.T, steps []disruption.Action) {
	rank := map[disruption.ActionType]int{disruption.Drain: 0, disruption.DaemonReload: 1, disruption.Restart: 2,
		disruption.Reload: 3, disruption.Reboot: 4}
	for i, s := range steps {
		if i == 0 {
			continue
		}
		p := steps[i-1]
		assert.True(t, rank[p.Type] < rank[s.Type] || (p.Type == s.Type && p.Service < s.Service), "order and each once: %v",
			steps)
	}
}

type generator struct{ *rand.Rand }

type difference struct{ old, new []part }

// change makes a difference of one to four files and units whose names begin with a prefix.
func (g *generator) change(prefix string) difference {
	var d difference
	for i := range 1 + g.IntN(4) {
		dir := []string{"/etc", "/etc/a", "/etc/a/b", "/etc/containers/registries.d",
			"/etc/kubernetes/credential-providers"}[g.IntN(5)]
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

// shuffled gives the same parts in another order.
func (g *generator) shuffled(parts []part) []part {
	out := slices.Clone(parts)
	g.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// does is a list of actions as people write it.
func (g *generator) does() string {
	lists := []string{"None", "Drain", "DaemonReload", "Restart l0.service", "Reload l0.service",
		"Drain, DaemonReload, Restart crio.service", "Reboot"}
	return lists[g.IntN(len(lists))]
}

func (g *generator) policies() (out disruption.Policies) {
	for _, path := range []string{"/", "/etc", "/etc/a", "/etc/a/b", "/etc/a/b/l0"} {
		if g.IntN(2) == 0 {
			out.Files = append(out.Files, userFile(path, g.does()).Files...)
		}
	}
	for i := range 4 {
		if g.IntN(2) == 0 {
			out.Units = append(out.Units, userUnit(fmt.Sprintf("l%d.service", i), g.does()).Units...)
		}
	}
	return out
}
