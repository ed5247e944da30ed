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

// cases is how many random ones a property is held against; with -short a sample.
func cases() int {
	if testing.Short() {
		return 200
	}
	return 2000
}

// TestProperties checks on random configs and policies what must hold for all.
func TestProperties(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i := range cases() {
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
		assert.ElementsMatch(t, distinct(joined.Steps), distinct(both.Steps), "and does what either does")
		assert.Equal(t, joined.Level, both.Level)
		assert.Equal(t, a, plan(g.shuffled(left.old), g.shuffled(left.new), policies),
			"the order in a config does not matter")
		assert.Equal(t, max(a.Level, b.Level), both.Level, "two changes disturb as much as the worse of them")
		if both.Level < disruption.LevelReboot {
			for _, c := range both.Changes {
				assert.True(t, inOrder(c.Actions, both.Steps), "%v does not run in its order in %v", c.Actions, both.Steps)
				assert.True(t, inOrder(c.Actions, joined.Steps), "%v does not run in its order in %v", c.Actions, joined.Steps)
			}
			assert.LessOrEqual(t, len(both.Steps), len(a.Steps)+len(b.Steps))
		}
		ordered(t, both)
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
	for i := range cases() {
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

// distinct gives each step once.
func distinct(steps []disruption.Action) (out []disruption.Action) {
	for _, s := range steps {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// inOrder tells whether steps has all actions of a list, in the list's order; a drain runs before all others.
func inOrder(list, steps []disruption.Action) bool {
	if drain := (disruption.Action{Type: disruption.Drain}); slices.Contains(list, drain) &&
		!slices.Contains(steps, drain) {
		return false
	}
	left := slices.DeleteFunc(slices.Clone(list), func(a disruption.Action) bool {
		return a.Type == disruption.None || a.Type == disruption.Drain
	})
	for _, s := range steps {
		if len(left) > 0 && left[0] == s {
			left = left[1:]
		}
	}
	return len(left) == 0
}

// ordered checks that a drain comes first and once, that a reboot leaves nothing else, and that no step is there for
// nobody.
func ordered(t *testing.T, p disruption.Plan) {
	drain, reboot := disruption.Action{Type: disruption.Drain}, disruption.Action{Type: disruption.Reboot}
	for i, s := range p.Steps {
		assert.False(t, s == drain && i > 0, "a drain comes first: %v", p.Steps)
		assert.False(t, s == reboot && (i != 1 || len(p.Steps) != 2), "a reboot leaves nothing else: %v", p.Steps)
		wanted := slices.ContainsFunc(p.Changes, func(c disruption.Change) bool { return slices.Contains(c.Actions, s) })
		assert.True(t, wanted || slices.Contains(p.Steps, reboot), "%v is there for nobody", s)
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
		"Drain, DaemonReload, Restart crio.service", "Restart l0.service, Drain, DaemonReload, Restart l0.service",
		"DaemonReload, Restart l0.service", "Reboot"}
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
