package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/target"
)

// errImpossible marks a target that no attempt can reach.
var errImpossible = errors.New("the change cannot be applied to an installed node")

// planning computes what the target does to the node.
func (a *Agent) planning(ctx context.Context, n node) (State, time.Duration, error) {
	current, err := a.current()
	if err != nil {
		return Planning, 0, err
	}
	begun, err := a.begun(current)
	if err != nil {
		return Planning, 0, err
	}
	target := n.target()
	wanted := current.Config
	if target.Config != current.Config.Name {
		if wanted, err = a.o.Cluster.Config(ctx, target.Config); err != nil {
			return Planning, 0, err
		}
	}
	if err := a.tell(ctx, n, working(string(Planning))); err != nil {
		return Planning, 0, err
	}
	promise, err := disruption.PromiseOf(n.object.Annotations, target.Config, target.Image)
	if err != nil {
		return Planning, 0, err
	}
	plan, boots, err := a.effect(ctx, append([]nodedisk.Current{current}, begun...), wanted, target, promise)
	if err != nil {
		return Planning, 0, err
	}
	if plan.Level == disruption.LevelImpossible {
		return Planning, 0, fmt.Errorf("%w: %s", errImpossible, strings.Join(plan.Impossible, "; "))
	}
	*a.journal = journal{path: a.journal.path, State: Planning, Target: target, Plan: plan, Boots: boots}
	if err := a.journal.save(); err != nil {
		return Planning, 0, err
	}
	if slices.Contains(plan.Steps, disruption.Action{Type: disruption.Drain}) {
		return Draining, 0, nil
	}
	return Applying, 0, nil
}

// effect computes the plan and the image that the node boots at its end; empty: that does not change. from is what the
// node has, and what former plans may have brought already. The way from what it has must be the promised one; taking
// back what those brought comes on top of it.
func (a *Agent) effect(ctx context.Context, from []nodedisk.Current, wanted *mcfgv1.MachineConfig, target target.Target,
	promise *disruption.Promise) (disruption.Plan, string, error) {
	var plan disruption.Plan
	policies, mirrors, err := a.policies(ctx)
	if err != nil {
		return plan, "", err
	}
	status, err := a.o.Deployer.Status(ctx)
	if err != nil {
		return plan, "", fmt.Errorf("read deployments: %w", err)
	}
	boots, err := bootsNext(status, from, wanted, target)
	if err != nil {
		return plan, "", err
	}
	for i, have := range from {
		old, err := a.owners(ctx, have.Config)
		if err != nil {
			return plan, "", err
		}
		p, err := disruption.Effect(disruption.Input{Old: old, New: wanted, Layered: target.Image != "" && have.Image != "",
			Policies: policies, Mirrors: mirrors,
			Image: imageChange(status, have, target, boots, promise)})
		if err != nil {
			return plan, "", err
		}
		if there := have.Config.Name == target.Config && have.Image == target.Image; i == 0 && !there {
			if err := promise.Check(p); err != nil {
				return plan, "", err
			}
		}
		plan = disruption.Join(plan, p)
	}
	if boots == "" && plan.Level == disruption.LevelReboot && status.Booted != nil && !status.Booted.Image.IsZero() {
		// Kernel arguments belong to a deployment: the same image is deployed with others.
		boots = status.Booted.Image.String()
	}
	return plan, boots, nil
}

// imageChange says how the image that the node boots next differs from the one that it runs. That only the config in it
// differs is the controller's to know; an image that waits for the next reboot already is no further change.
func imageChange(status deploy.Status, have nodedisk.Current, target target.Target, boots string,
	promise *disruption.Promise) disruption.ImageChange {
	layered := have.Image != "" && target.Image != ""
	switch {
	case boots == "":
		return disruption.ImageSame
	case layered && have.Image == target.Image && waits(status, target.Image):
		return disruption.ImageSame
	case layered && promise != nil && promise.Change == disruption.ImageConfig:
		return disruption.ImageConfig
	}
	return disruption.ImageContent
}

func waits(status deploy.Status, name string) bool {
	image, err := deploy.ParseImage(name)
	next := status.Next()
	return err == nil && next != nil && next.Runs(image)
}

// owners gives a config that the node has with what its owners say now: that may have changed since the node took it.
func (a *Agent) owners(ctx context.Context, have *mcfgv1.MachineConfig) (*mcfgv1.MachineConfig, error) {
	now, err := a.o.Cluster.Config(ctx, have.Name)
	if apierrors.IsNotFound(err) {
		return have, nil
	}
	if err != nil {
		return nil, err
	}
	out := have.DeepCopy()
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[manifests.AnnotationPostConfigActions] = now.Annotations[manifests.AnnotationPostConfigActions]
	if out.Annotations[manifests.AnnotationPostConfigActions] == "" {
		delete(out.Annotations, manifests.AnnotationPostConfigActions)
	}
	return out, nil
}

// bootsNext is the image that the node has to boot for its target; empty: the one that runs will do.
func bootsNext(status deploy.Status, from []nodedisk.Current, wanted *mcfgv1.MachineConfig, target target.Target) (string,
	error) {
	name := target.Image
	if name == "" {
		changes := false
		for _, have := range from {
			changes = changes || have.Image != "" || have.Config.Spec.OSImageURL != wanted.Spec.OSImageURL
		}
		if name = wanted.Spec.OSImageURL; !changes || name == "" && !runsOneOf(status, from) {
			return "", nil
		}
	}
	image, err := deploy.ParseImage(name)
	if err != nil {
		return "", fmt.Errorf("read OS image %q for %s: %w: an image is named by its digest", name, wanted.Name, err)
	}
	if status.Booted != nil && status.Booted.Runs(image) {
		return "", nil
	}
	return image.String(), nil
}

// runsOneOf tells whether the node runs an image that one of these brought, and not the one that it was installed with.
func runsOneOf(status deploy.Status, from []nodedisk.Current) bool {
	for _, have := range from {
		name := have.Image
		if name == "" {
			name = have.Config.Spec.OSImageURL
		}
		if image, err := deploy.ParseImage(name); err == nil && status.Booted != nil && status.Booted.Runs(image) {
			return true
		}
	}
	return false
}

// policies reads the cluster's, with the admin's. What is wrong with one of those counts as not given; the policy
// controller says so.
func (a *Agent) policies(ctx context.Context) (disruption.Policies, disruption.MirrorPolicy, error) {
	object, err := a.o.Cluster.Policies(ctx)
	if err != nil {
		return disruption.Policies{}, nil, err
	}
	s, err := disruption.Read(object)
	for _, refused := range s.Refused {
		a.o.Log.WithField("cause", refused).Warn("disruption policy left out")
	}
	return s.Policies, s.Mirrors, err
}
