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

// retryPreflight is after which time an image that failed its checks is looked at again.
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

// checks remembers each pool's last check, so that an image is looked at once per rollout, and one that failed once a
// minute. It is safe for use by several workers.
type checks struct {
	mu    sync.Mutex
	pools map[string]acceptance
}

// pass lets the plan of a layered pool through when its image is fit. The image is looked at when the first node would
// be told, and not before: a pool whose nodes have their image does not depend on the registry. A refused image holds
// the pool.
func (c *checks) pass(ctx context.Context, o Options, s *look, plan rollout.Plan) rollout.Plan {
	if o.Preflight == nil || !s.Layered || len(plan.Next) == 0 {
		return plan
	}
	a, known := c.last(s.Object.Name)
	wait := a.at.Add(retryPreflight).Sub(o.Now())
	// A clock that was set back must not stretch the pause.
	if !known || a.target != s.Pool.Target || a.err != nil && (wait <= 0 || wait > retryPreflight) {
		a = acceptance{target: s.Pool.Target, reason: checksPassed, at: o.Now()}
		q := Question{Pool: s.Object.Name, Target: s.Pool.Target, Architectures: architectures(s), PreBuilt: s.PreBuilt}
		if a.err = o.Preflight.Check(ctx, q); a.err != nil {
			a.reason = string(deploy.ClassOf(a.err))
			o.Log.WithError(a.err).WithField("pool", s.Object.Name).WithField("image", s.Pool.Target.Image).Warn("image refused")
		}
		c.set(s.Object.Name, a)
		wait = retryPreflight
	}
	s.accepted = &a
	if a.err == nil {
		return plan
	}
	s.Hold(a.message())
	s.again(wait)
	return s.Plan(o.Now())
}

// message begins with the target, so that who reads it later knows what it is about.
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

// passed tells that the last check of the pool was of this target and went well.
func (c *checks) passed(pool string, t target.Target) bool {
	a, known := c.last(pool)
	return known && a.target == t && a.err == nil
}

func (c *checks) set(pool string, a acceptance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pools == nil {
		c.pools = map[string]acceptance{}
	}
	c.pools[pool] = a
}

// architectures are those of the pool's nodes. When none has said its own it is this program's.
func architectures(s *look) []string {
	var out []string
	for _, n := range s.Objects {
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

// imageAccepted is a layered pool's condition: what the check said, or that the present target has not been checked
// yet.
func imageAccepted(s *look) (mcfgv1.MachineConfigPoolCondition, bool) {
	if s.accepted != nil {
		return condition(manifests.ConditionImageAccepted, s.accepted.err == nil, s.accepted.reason, s.accepted.message()),
			true
	}
	have := slices.IndexFunc(s.Object.Status.Conditions,
		func(c mcfgv1.MachineConfigPoolCondition) bool { return c.Type == manifests.ConditionImageAccepted })
	if have < 0 || rollout.IsAbout(s.Object.Status.Conditions[have], s.Pool.Target) {
		return mcfgv1.MachineConfigPoolCondition{}, false
	}
	c := condition(manifests.ConditionImageAccepted, false, notChecked,
		"the image is checked when the first node's turn comes")
	c.Status = corev1.ConditionUnknown
	return c, true
}
