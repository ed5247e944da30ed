package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
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
	plan, boots, force, err := plan(ctx, e, in, wanted, to)
	if err != nil {
		return outcome{}, err
	}
	if plan.Level == disruption.LevelImpossible {
		return outcome{}, fmt.Errorf("%w: %s", errImpossible, strings.Join(plan.Impossible, "; "))
	}
	// Before the node's pods have to leave. A registry that cannot be asked is asked again when all is ready for a pull.
	if err := e.allowed(ctx, boots); refusedBySignature(err) {
		return outcome{}, err
	}
	j := journal{Target: to, Plan: plan, Boots: boots, Forced: force, Journey: in.journal.Journey + 1,
		Policy: rebootPolicy(in, to, force)}
	reboot := foreseeReboot(ctx, e, j)
	out := outcome{next: Applying, journal: &j, record: func(r *nodestate.Record) { r.SetSoftReboot(reboot) }}
	if slices.Contains(plan.Steps, disruption.Action{Type: disruption.Drain}) {
		out.next = Draining
	}
	return out, nil
}

// plan is what the target does to the node, as it was promised or, where an administrator has asked for that on the
// node, all that there is.
func plan(ctx context.Context, e *edges, in observed, wanted *mcfgv1.MachineConfig,
	to target.Target) (p disruption.Plan, boots string, force bool, err error) {
	if force, err = forceAsked(e.root); err != nil {
		return p, "", false, err
	}
	force = force || in.journal.Forced
	var promise *disruption.Promise
	if !force {
		if promise, err = disruption.PromiseOf(in.object.Annotations, to.Config, to.Image); err != nil {
			return p, "", false, err
		}
	}
	p, boots, err = effect(ctx, e, append([]nodedisk.Current{in.current}, in.begun...), wanted, to, promise)
	if err != nil || !force || p.Level == disruption.LevelImpossible {
		return p, boots, force, err
	}
	if boots == "" {
		if boots, err = lackedArguments(ctx, e.deployer, wanted); err != nil {
			return p, "", force, err
		}
	}
	p, err = forced(ctx, e, in, to, p)
	return p, boots, force, err
}

// effect computes the plan and the image that the node boots at its end; empty: that does not change. from is what the
// node has, and what former plans may have brought already. The way from what it has must be the promised one; taking
// back what those brought comes on top of it.
func effect(ctx context.Context, e *edges, from []nodedisk.Current, wanted *mcfgv1.MachineConfig, to target.Target,
	promise *disruption.Promise) (disruption.Plan, string, error) {
	var plan disruption.Plan
	settings, err := readPolicies(ctx, e)
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
		way := disruption.Way{From: old, To: wanted, Was: have.Image, Is: to.Image,
			ConfigOnly: promise != nil && promise.Change == disruption.ImageConfig}
		var p disruption.Plan
		if there := have.Target() == to; i == 0 && !there {
			p, err = promisedEffect(way, settings, promise, status, boots)
		} else {
			p, err = disruption.Effect(asItIs(way, settings, status, boots))
		}
		if err != nil {
			return plan, "", err
		}
		plan = disruption.Join(plan, p)
	}
	if boots == "" && plan.Level == disruption.LevelReboot && status.Booted != nil && !status.Booted.Image.IsZero() {
		// Kernel arguments belong to a deployment: the same image is deployed with others.
		boots = status.Booted.Image.String()
	}
	return plan, boots, nil
}

// promisedEffect is what the way does to the node, as it was promised. A node that is further than its record says,
// such as one that has booted the image already, does less. One that would have to do more waits for another promise.
func promisedEffect(way disruption.Way, settings disruption.Settings, promise *disruption.Promise,
	status deploy.Status, boots string) (disruption.Plan, error) {
	in := way.Input(settings)
	plan, err := disruption.Effect(in)
	if err != nil {
		return plan, err
	}
	if err := promise.Check(plan); err != nil {
		return plan, err
	}
	here := asItIs(way, settings, status, boots)
	if here.Image == in.Image {
		return plan, nil
	}
	found, err := disruption.Effect(here)
	if err != nil {
		return plan, err
	}
	if found.Level > plan.Level {
		return found, promise.Check(found)
	}
	return found, nil
}

// asItIs lets the image change as it does on this node: what it runs may be another image than its record says. One
// that waits for the next reboot already is no further change.
func asItIs(way disruption.Way, settings disruption.Settings, status deploy.Status, boots string) disruption.Input {
	in := way.Input(settings)
	switch {
	case boots == "" && (in.Layered || way.From.Name == way.To.Name):
		in.Image = disruption.ImageSame
	case boots == "" || in.Image != disruption.ImageSame || waits(status, way.Is):
	case in.Layered && way.ConfigOnly:
		in.Image = disruption.ImageConfig
	default:
		in.Image = disruption.ImageContent
	}
	return in
}

func waits(status deploy.Status, name string) bool {
	image, err := deploy.ParseImage(name)
	next := status.Next()
	return err == nil && next != nil && next.Runs(image)
}

// withOwners gives a config that the node has with what its owners say now: that may have changed since the node took
// it.
func withOwners(ctx context.Context, configs nodeConfigs, have *mcfgv1.MachineConfig) (*mcfgv1.MachineConfig, error) {
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

// bootsNext is the image that the node has to boot for its target; empty: the one that runs will do, or the config's
// cannot be had.
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
	switch {
	case err != nil && to.Image == "" && name != "":
		return "", nil // the plan says why it cannot be had
	case err != nil:
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
func readPolicies(ctx context.Context, e *edges) (disruption.Settings, error) {
	object, err := machineConfiguration(ctx, e)
	if err != nil {
		return disruption.Settings{}, err
	}
	s, err := disruption.Read(object)
	if err != nil {
		return s, err
	}
	controller, err := e.configs.ControllerConfig(ctx)
	if err != nil {
		return s, err
	}
	if controller != nil && controller.Spec.Infra != nil {
		s.Undrained = disruption.Undrained(controller.Spec.Infra.Status.ControlPlaneTopology)
	}
	for _, refused := range s.Refused {
		e.log.WithField("cause", refused).Warn("disruption policy left out")
	}
	return s, err
}

// machineConfiguration reads the object with the admin's settings, nil when there is none. The log follows its level.
func machineConfiguration(ctx context.Context, e *edges) (*opv1.MachineConfiguration, error) {
	object, err := e.configs.Policies(ctx)
	switch {
	case err != nil:
		return nil, err
	case object == nil:
		e.verbosity(opv1.Normal)
	default:
		e.verbosity(object.Spec.LogLevel)
	}
	return object, nil
}
