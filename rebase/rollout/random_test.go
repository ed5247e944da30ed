package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// TestRandomClusters checks what must hold for every cluster, on 10,000 random ones: each is planned for, the plan is
// carried out by simulated agents that sometimes fail, and the target sometimes changes.
func TestRandomClusters(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i := range 10000 {
		c := newCluster(rand.New(rand.NewPCG(seed, uint64(i))))
		for step := range 12 {
			c.step(t)
			if t.Failed() {
				t.Fatalf("seed %d, cluster %d, step %d", seed, i, step)
			}
		}
	}
}

// cluster is a simulated pool.
type cluster struct {
	*rand.Rand
	pool  rollout.Pool
	nodes []rollout.Node
	now   time.Time
}

func newCluster(r *rand.Rand) *cluster {
	c := &cluster{Rand: r, now: now, pool: rollout.Pool{Name: "p", Target: newOne, ControlPlane: r.IntN(5) == 0,
		HaltAfter: r.IntN(4)}}
	if r.IntN(3) > 0 {
		v := intstr.FromInt32(int32(r.IntN(5)))
		if r.IntN(2) == 0 {
			v = intstr.FromString(fmt.Sprintf("%d%%", r.IntN(101)))
		}
		c.pool.MaxUnavailable = &v
	}
	if r.IntN(3) == 0 {
		c.pool.Waves = rollout.Waves{Sizes: []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("40%")},
			Soak: time.Duration(r.IntN(3)) * time.Minute}
	}
	for i := range r.IntN(12) {
		n := at(fmt.Sprintf("n%d", i), oldOne, zone([]string{"", "a", "b"}[r.IntN(3)]), age(r.IntN(50)))
		if r.IntN(4) == 0 {
			n = at(n.Name, newOne)
		}
		n.Canary = r.IntN(8) == 0
		c.nodes = append(c.nodes, n)
		c.disturb(i)
	}
	return c
}

// disturb lets something happen to a node that the planner has no hand in.
func (c *cluster) disturb(i int) {
	n := &c.nodes[i]
	switch c.IntN(24) {
	case 0:
		n.NotReady = "random"
	case 1:
		n.NotReady = ""
	case 2:
		n.Cordoned = !n.Cordoned
	case 3:
		n.Record.State = nodestate.StateDegraded
	case 4:
		silent(n)
	case 5:
		n.RecordErr = assert.AnError
	case 6:
		n.RecordErr = nil
	}
}

func down(n rollout.Node) bool {
	failing := n.Record.State == nodestate.StateDegraded || n.Record.State == nodestate.StateUnreconcilable
	known := n.RecordErr == nil && n.Record.CurrentConfig != "" && n.Record.State != ""
	return n.NotReady != "" || n.Cordoned || (known && !failing && !n.Record.Converged())
}

func (c *cluster) down() (sum int) {
	for _, n := range c.nodes {
		if down(n) {
			sum++
		}
	}
	return sum
}

func (c *cluster) step(t *testing.T) {
	before := c.down()
	p, err := rollout.Make(c.pool, c.nodes, c.now)
	require.NoError(t, err)
	shuffled := slices.Clone(c.nodes)
	c.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	again, err := rollout.Make(c.pool, shuffled, c.now)
	require.NoError(t, err)
	assert.Equal(t, p, again, "the order of the input does not matter")
	c.check(t, p)
	for i := range c.nodes {
		if slices.Contains(p.Next, c.nodes[i].Name) {
			to(c.pool.Target, nodestate.StateWorking)(&c.nodes[i])
		}
	}
	assert.LessOrEqual(t, c.down(), max(p.MaxUnavailable, before), "never more unavailable than allowed by our doing: %+v",
		p)
	c.live()
}

// check looks at what holds for one plan.
func (c *cluster) check(t *testing.T, p rollout.Plan) {
	require.Len(t, p.Verdicts, len(c.nodes))
	failed := 0
	for _, n := range c.nodes {
		v, found := p.Verdict(n.Name)
		require.True(t, found)
		assert.NotEmpty(t, v.Reason)
		assert.Equal(t, v.Phase == rollout.PhaseNext, slices.Contains(p.Next, n.Name))
		has := n.Record.DesiredConfig == c.pool.Target.Config && n.Record.DesiredImage == c.pool.Target.Image
		if v.Phase == rollout.PhaseFailed {
			failed++
		}
		if v.Phase == rollout.PhaseNext {
			assert.False(t, has, "who has been told is not told again")
			assert.NoError(t, n.RecordErr)
		}
		if v.Phase == rollout.PhaseUpdated {
			assert.True(t, has && n.Record.Converged())
		}
	}
	halt := c.pool.HaltAfter
	if halt == 0 {
		halt = rollout.DefaultHaltAfter
	}
	if failed >= halt {
		assert.Empty(t, p.Next, "a broken target takes no more nodes")
	}
	if c.pool.ControlPlane {
		assert.Equal(t, 1, p.MaxUnavailable)
	}
	if p.Stopped != "" {
		assert.Empty(t, p.Next)
	}
}

// live lets time pass: agents finish or fail, nodes are disturbed, the target changes.
func (c *cluster) live() {
	c.now = c.now.Add(time.Minute)
	for i := range c.nodes {
		r := &c.nodes[i].Record
		if r.State == nodestate.StateWorking {
			switch c.IntN(4) {
			case 0:
				r.State = nodestate.StateDegraded
				c.nodes[i].Cordoned = c.IntN(2) == 0
			case 1, 2:
				r.CurrentConfig, r.CurrentImage, r.State = r.DesiredConfig, r.DesiredImage, nodestate.StateDone
				c.nodes[i].UpdatedSince = c.now
			}
		}
		if c.IntN(6) == 0 {
			c.disturb(i)
		}
	}
	if c.IntN(8) == 0 {
		c.pool.Target = target.Target{Config: fmt.Sprintf("rendered-%d", c.IntN(1000)), Image: newOne.Image}
	}
}

// TestEveryRolloutEnds lets healthy pools go to their end and counts the rounds: no more than nodes by places, rounded
// up.
func TestEveryRolloutEnds(t *testing.T) {
	for _, c := range []struct{ nodes, limit int }{{1, 1}, {7, 1}, {7, 3}, {100, 10}, {101, 10}, {5000, 500}} {
		v := intstr.FromInt32(int32(c.limit))
		pool := rollout.Pool{Name: "p", Target: newOne, MaxUnavailable: &v}
		var ns []rollout.Node
		for i := range c.nodes {
			ns = append(ns, at(fmt.Sprintf("n%d", i), oldOne))
		}
		rounds := 0
		for {
			p, err := rollout.Make(pool, ns, now)
			require.NoError(t, err)
			if len(p.Next) == 0 {
				break
			}
			rounds++
			for i := range ns {
				if slices.Contains(p.Next, ns[i].Name) {
					ns[i] = at(ns[i].Name, newOne)
				}
			}
		}
		assert.Equal(t, (c.nodes+c.limit-1)/c.limit, rounds, "%d nodes, %d at once", c.nodes, c.limit)
	}
}
