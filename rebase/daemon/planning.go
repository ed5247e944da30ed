package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
func planning(ctx context.Context, e *edges, in observed) (outcome, error) {
	to := in.record.Desired()
	wanted := in.current.Config
	if to.Config != wanted.Name {
		var err error
		if wanted, err = e.configs.Config(ctx, to.Config); err != nil {
			return outcome{}, err
		}
	}
	if err := e.record.change(ctx, in.node, working(string(Planning))); err != nil {
		return outcome{}, err
	}
	promise, err := disruption.PromiseOf(in.object.Annotations, to.Config, to.Image)
	if err != nil {
		return outcome{}, err
	}
	plan, boots, err := effect(ctx, e, append([]nodedisk.Current{in.current}, in.begun...), wanted, to, promise)
	if err != nil {
		return outcome{}, err
	}
	if plan.Level == disruption.LevelImpossible {
		return outcome{}, fmt.Errorf("%w: %s", errImpossible, strings.Join(plan.Impossible, "; "))
	}
	out := outcome{next: Applying, journal: &journal{Target: to, Plan: plan, Boots: boots}}
	if slices.Contains(plan.Steps, disruption.Action{Type: disruption.Drain}) {
		out.next = Draining
	}
	return out, nil
}

// effect computes the plan and the image that the node boots at its end; empty: that does not change. from is what the
// node has, and what former plans may have brought already. The way from what it has must be the promised one; taking
// back what those brought comes on top of it.
func effect(ctx context.Context, e *edges, from []nodedisk.Current, wanted *mcfgv1.MachineConfig, to target.Target,
	promise *disruption.Promise) (disruption.Plan, string, error) {
	var plan disruption.Plan
	policies, mirrors, err := readPolicies(ctx, e)
	if err != nil {
		return plan, "", err
	}
	status, err := e.deployer.Status(ctx)
	if err != nil {
		return plan, "", fmt.Errorf("read deployments: %w", err)
	}
	boots, err := bootsNext(status, from, wanted, to)
	if err != nil {
		return plan, "", err
	}
	for i, have := range from {
		old, err := withOwners(ctx, e.configs, have.Config)
		if err != nil {
			return plan, "", err
		}
		p, err := disruption.Effect(disruption.Input{Old: old, New: wanted, Layered: to.Image != "" && have.Image != "",
			Policies: policies, Mirrors: mirrors,
			Image: imageChange(status, have, to, boots, promise)})
		if err != nil {
			return plan, "", err
		}
		if there := have.Target() == to; i == 0 && !there {
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
func imageChange(status deploy.Status, have nodedisk.Current, to target.Target, boots string,
	promise *disruption.Promise) disruption.ImageChange {
	layered := have.Image != "" && to.Image != ""
	switch {
	case boots == "":
		return disruption.ImageSame
	case layered && have.Image == to.Image && waits(status, to.Image):
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

// withOwners gives a config that the node has with what its owners say now: that may have changed since the node took
// it.
func withOwners(ctx context.Context, configs Configs, have *mcfgv1.MachineConfig) (*mcfgv1.MachineConfig, error) {
	now, err := configs.Config(ctx, have.Name)
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
func bootsNext(status deploy.Status, from []nodedisk.Current, wanted *mcfgv1.MachineConfig,
	to target.Target) (string, error) {
	name := to.Image
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

// readPolicies reads the cluster's disruption policies, with the admin's. One that is wrong is left out; the policy
// controller reports it.
func readPolicies(ctx context.Context, e *edges) (disruption.Policies, disruption.MirrorPolicy, error) {
	object, err := e.configs.Policies(ctx)
	if err != nil {
		return disruption.Policies{}, nil, err
	}
	s, err := disruption.Read(object)
	for _, refused := range s.Refused {
		e.log.WithField("cause", refused).Warn("disruption policy left out")
	}
	return s.Policies, s.Mirrors, err
}
