package rollout

import (
	"cmp"
	"slices"
)

const (
	// leastPrefetch is how many nodes of a pool may prefetch their next image at the same time by default: as many as a
	// small registry serves beside the nodes that are updating.
	leastPrefetch = 5
	// prefetchShare of maxUnavailable may do so in large pools: with fewer, most nodes of a batch come to their turn
	// without the image and pull it when they are drained already (docs/operators/registry-scale.md).
	prefetchShare = 5
)

// PrefetchChange is what waiting nodes should do before their turn.
type PrefetchChange struct {
	// Fetch are nodes that should start to fetch the target's image, in order; Forget those that were asked to fetch
	// another one.
	Fetch, Forget []string
}

// Prefetches picks the nodes that fetch the pool's image before their turn: those that follow when the present ones are
// done, as many as may be unavailable at once, and of these only so many at a time as the pool's Prefetch allows. Pools
// that do not move fetch nothing.
func (p Pool) Prefetches(nodes []Node, plan Plan) PrefetchChange {
	var out PrefetchChange
	limit := cmp.Or(p.Prefetch, max(leastPrefetch, plan.MaxUnavailable/prefetchShare))
	moves := plan.Stopped == "" && p.Target.Image != "" && limit > 0
	type place struct {
		position int
		node     *Node
	}
	waiting := make([]place, 0, len(nodes))
	position := make(map[string]int, len(nodes))
	for _, v := range plan.Verdicts {
		if v.Phase == PhaseWaiting && v.Reason == "MaxUnavailable" {
			position[v.Node] = v.Position
		}
	}
	for i := range nodes {
		n := &nodes[i]
		if n.Prefetch != "" && (n.Prefetch != p.Target.Image || !moves) && !slices.Contains(plan.Next, n.Name) {
			out.Forget = append(out.Forget, n.Name)
		}
		if at := position[n.Name]; at > 0 && n.NotReady == "" {
			waiting = append(waiting, place{at, n})
		}
	}
	if !moves {
		return out
	}
	slices.SortFunc(waiting, func(a, b place) int { return cmp.Compare(a.position, b.position) })
	waiting = waiting[:min(len(waiting), plan.MaxUnavailable)]
	fetching := 0
	for _, w := range waiting {
		switch n := w.node; {
		case n.Record.CurrentImage == p.Target.Image, n.Prefetch == p.Target.Image && n.PrefetchEnded:
		case n.Prefetch == p.Target.Image:
			fetching++
		default:
			out.Fetch = append(out.Fetch, n.Name)
		}
	}
	out.Fetch = out.Fetch[:min(len(out.Fetch), max(0, limit-fetching))]
	out.Forget = slices.DeleteFunc(out.Forget, func(name string) bool { return slices.Contains(out.Fetch, name) })
	return out
}
