package rollout_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

func TestPrefetches(t *testing.T) {
	target := target.Target{Config: newOne.Config, Image: "r.example.com/os/worker@sha256:" + fmt.Sprintf("%064d", 7)}
	three := intstr.FromInt32(3)
	pool := func(change ...func(*rollout.Pool)) rollout.Pool {
		p := rollout.Pool{Name: "p", Target: target, MaxUnavailable: &three, Prefetch: 2}
		for _, c := range change {
			c(&p)
		}
		return p
	}
	fetches := func(image string, ended bool) func(*rollout.Node) {
		return func(n *rollout.Node) { n.Prefetch, n.PrefetchEnded = image, ended }
	}
	for _, c := range []struct {
		name          string
		pool          rollout.Pool
		change        map[int]func(*rollout.Node)
		fetch, forget []string
	}{
		{"the next batch, two at a time", pool(), nil, []string{"n3", "n4"}, nil},
		{"one fetches already", pool(), map[int]func(*rollout.Node){3: fetches(target.Image, false)},
			[]string{"n4"}, nil},
		{"two fetch already", pool(), map[int]func(*rollout.Node){3: fetches(target.Image, false),
			4: fetches(target.Image, false)}, nil, nil},
		{"one has it: the next one's turn", pool(), map[int]func(*rollout.Node){3: fetches(target.Image, true)},
			[]string{"n4", "n5"}, nil},
		{"nobody beyond the next batch", pool(), map[int]func(*rollout.Node){3: fetches(target.Image, true),
			4: fetches(target.Image, true), 5: fetches(target.Image, true)}, nil, nil},
		{"another image is forgotten", pool(), map[int]func(*rollout.Node){7: fetches("r.example.com/old", false)},
			[]string{"n3", "n4"}, []string{"n7"}},
		{"another image gives way to this one", pool(), map[int]func(*rollout.Node){3: fetches("r.example.com/old", false)},
			[]string{"n3", "n4"}, nil},
		{"one that is blocked does not go next", pool(), map[int]func(*rollout.Node){3: cordoned, 4: notReady},
			[]string{"n1", "n2"}, nil},
		{"one that was sent keeps what it fetches", pool(),
			map[int]func(*rollout.Node){0: fetches("r.example.com/old", false)}, []string{"n3", "n4"}, nil},
		{"a paused pool fetches nothing", pool(func(p *rollout.Pool) { p.Paused = true }),
			map[int]func(*rollout.Node){3: fetches(target.Image, false)}, nil, []string{"n3"}},
		{"a refused image is not fetched", pool(func(p *rollout.Pool) { p.Hold = "refused" }), nil, nil, nil},
		{"it can be switched off", pool(func(p *rollout.Pool) { p.Prefetch = -1 }), nil, nil, nil},
		{"no image, nothing to fetch", pool(func(p *rollout.Pool) { p.Target.Image = "" }), nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := make([]rollout.Node, 0, 8)
			for i := range 8 {
				n := at(fmt.Sprintf("n%d", i), oldOne, age(8-i))
				if change := c.change[i]; change != nil {
					change(&n)
				}
				nodes = append(nodes, n)
			}
			plan, err := rollout.Make(c.pool, nodes, now)
			require.NoError(t, err)
			slices.Reverse(nodes)
			got := c.pool.Prefetches(nodes, plan)
			assert.Equal(t, c.fetch, append([]string(nil), got.Fetch...), "in the order of their turns")
			assert.ElementsMatch(t, c.forget, got.Forget)
		})
	}
}

// Of a large pool more nodes prefetch at a time, or most of a batch would pull when they are drained.
func TestPrefetchesOfALargePool(t *testing.T) {
	target := target.Target{Config: newOne.Config, Image: "r.example.com/os/worker@sha256:" + fmt.Sprintf("%064d", 7)}
	for _, c := range []struct {
		name         string
		nodes, fetch int
	}{{"small", 100, 5}, {"large", 1000, 20}} {
		t.Run(c.name, func(t *testing.T) {
			pool := rollout.Pool{Name: "p", Target: target, MaxUnavailable: limit("10%")}
			var ns []rollout.Node
			for i := range c.nodes {
				ns = append(ns, at(fmt.Sprintf("n%04d", i), oldOne))
			}
			plan, err := rollout.Make(pool, ns, now)
			require.NoError(t, err)
			assert.Len(t, pool.Prefetches(ns, plan).Fetch, c.fetch)
		})
	}
}
