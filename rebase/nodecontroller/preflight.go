package nodecontroller

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// retryPreflight is after which time an image that failed its checks is checked again.
const retryPreflight = time.Minute

// acceptance is the outcome of a check.
type acceptance struct {
	target target.Target
	reason string // a class of rebase/deploy, or checksPassed
	err    error
	at     time.Time
}

const (
	checksPassed = "ChecksPassed"
	notChecked   = "NotChecked"
)

// checks remembers each pool's last check, so that an image is checked once per rollout, and one that failed once a
// minute. It is safe for use by several workers.
type checks struct {
	mu    sync.Mutex
	pools map[string]acceptance
}

// apply lets the plan of a layered pool through when its image is fit. The image is checked when the first node would
// go to it, and not before: a pool whose nodes have their image does not depend on the registry. A refused image holds
// the pool.
func (c *checks) apply(ctx context.Context, o Options, d *decision) {
	if o.Preflight == nil || !d.Layered {
		d.prefetch = true
		return
	}
	last, known := c.last(d.Object.Name)
	if len(d.plan.Next) > 0 {
		wait := last.at.Add(retryPreflight).Sub(o.Now())
		// A clock that was set back must not stretch the pause.
		if !known || last.target != d.Pool.Target || last.err != nil && (wait <= 0 || wait > retryPreflight) {
			last, known = check(ctx, o, d.PoolView), true
			c.set(d.Object.Name, last)
			wait = retryPreflight
		}
		d.accepted = &last
		if last.err != nil {
			d.Hold(last.message())
			d.again(wait)
			d.plan = d.Plan(o.Now())
		}
	}
	d.prefetch = known && last.target == d.Pool.Target && last.err == nil
}

// check asks for the image of a pool.
func check(ctx context.Context, o Options, pool *rollout.PoolView) acceptance {
	a := acceptance{target: pool.Pool.Target, reason: checksPassed, at: o.Now()}
	a.err = o.Preflight.Check(ctx, Question{Target: a.target,
		Architectures: architectures(pool), PreBuilt: pool.PreBuilt})
	if a.err != nil {
		a.reason = string(deploy.ClassOf(a.err))
		o.Log.WithError(a.err).WithField("pool", pool.Object.Name).WithField("image", a.target.Image).Warn("image refused")
	}
	return a
}

// message begins with the target, so that a later reader knows which one it is about.
func (a acceptance) message() string {
	if a.err == nil {
		return a.target.String()
	}
	return fmt.Sprintf("%s is not delivered: %v", a.target, a.err)
}

func (c *checks) last(pool string) (acceptance, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, known := c.pools[pool]
	return a, known
}

func (c *checks) set(pool string, a acceptance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pools == nil {
		c.pools = map[string]acceptance{}
	}
	c.pools[pool] = a
}

// architectures are those of the pool's nodes. When no node has reported its own it is this program's.
func architectures(pool *rollout.PoolView) []string {
	var out []string
	for _, n := range pool.Objects {
		if a := n.Status.NodeInfo.Architecture; a != "" && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return []string{runtime.GOARCH}
	}
	slices.Sort(out)
	return out
}

// imageAccepted is a layered pool's condition: the outcome of the check, or that the present target has not been
// checked yet.
func imageAccepted(d *decision) (mcfgv1.MachineConfigPoolCondition, bool) {
	if d.accepted != nil {
		return condition(manifests.ConditionImageAccepted, d.accepted.err == nil, d.accepted.reason, d.accepted.message()),
			true
	}
	have := slices.IndexFunc(d.Object.Status.Conditions,
		func(c mcfgv1.MachineConfigPoolCondition) bool { return c.Type == manifests.ConditionImageAccepted })
	if have < 0 || rollout.IsAbout(d.Object.Status.Conditions[have], d.Pool.Target) {
		return mcfgv1.MachineConfigPoolCondition{}, false
	}
	c := condition(manifests.ConditionImageAccepted, false, notChecked,
		"the image is checked when the first node's turn comes")
	c.Status = corev1.ConditionUnknown
	return c, true
}
