package buildcontroller

import (
	"context"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/manifests"
)

// makeDecision finds out what the pool needs and what to do about it. Before a decision changes anything, it is made
// again from the API server: the cache may not show yet what this process wrote a moment ago. The same holds for a slot
// whose build the cache does not know: that build may never have been created.
func makeDecision(ctx context.Context, x scope, s state) (state, error) {
	s, err := decideFrom(ctx, x, s)
	if err != nil || !changes(s) && !x.memory.slots.unknown(x.name, s.builds) {
		return s, err
	}
	seen, err := x.api.observe(ctx, x.name, true)
	if err != nil {
		return s, err
	}
	x.memory.slots.release(x.name, seen.builds)
	if seen.gone() {
		return s, overtaken("MachineOSConfig")
	}
	s.observation = seen
	return decideFrom(ctx, x, s)
}

func decideFrom(ctx context.Context, x scope, s state) (state, error) {
	var err error
	if s.desired, err = findDesired(ctx, x, s.observation); err != nil {
		return s, err
	}
	if s.observation, err = adoptBuilds(ctx, x, s.observation, s.desired); err != nil {
		return s, err
	}
	in := inputOf(s.observation, s.desired)
	in.Policy, in.Now = x.o.Retry, x.now
	if s.input, err = withOthers(ctx, x, in, s.desired); err != nil {
		return s, err
	}
	s.decision = decide.Decide(s.input)
	return s, nil
}

// adoptBuilds gives the content address to a build that bootstrap or MCO made of the desired content.
func adoptBuilds(ctx context.Context, x scope, o observation, d desired) (observation, error) {
	for _, b := range o.builds {
		if d.problem != nil || !isPreBuilt(b) || b.Annotations[manifests.AnnotationBuildAddress] != "" ||
			b.Spec.MachineConfig.Name != d.rendered {
			continue
		}
		next, err := patched(ctx, x.api, b, func(b *mcfgv1.MachineOSBuild) {
			annotate(b, manifests.AnnotationBuildAddress, d.address)
			annotate(b, manifests.AnnotationBuildGround, d.ground)
		})
		if err != nil {
			return o, err
		}
		o = o.with(next)
	}
	return o, nil
}

// inputOf collects what a decision depends on within one MachineOSConfig.
func inputOf(o observation, d desired) decide.Input {
	in := decide.Input{
		Owner: o.config.Name, Address: d.address, Repository: d.repository, Problem: d.problem, Own: o.known(),
		Current: o.config.Annotations[manifests.AnnotationCurrentBuild], InUse: o.inUse(),
	}
	in.RebuildRequested, in.Serving = rebuildRequest(o)
	if !meta.IsStatusConditionTrue(o.config.Status.Conditions, manifests.ConditionSeeded) {
		in.PreBuilt = o.config.Annotations[manifests.AnnotationPreBuiltImage]
	}
	return in
}

// withOthers adds what other MachineOSConfigs build, and how many slots are free.
func withOthers(ctx context.Context, x scope, in decide.Input, d desired) (decide.Input, error) {
	active, ended, err := runningBuilds(ctx, x)
	if err != nil {
		return in, err
	}
	var claimed []decide.Known
	in.Free, claimed = x.memory.slots.view(claim{x.name, d.content()}, active, ended)
	in.Others = nil
	if d.problem != nil {
		return in, nil
	}
	var list mcfgv1.MachineOSBuildList
	if err := x.api.client.List(ctx, &list, client.MatchingFields{indexContent: d.content().index()}); err != nil {
		return in, wrap(err, "list MachineOSBuilds of the same content")
	}
	for i := range list.Items {
		if b := &list.Items[i]; b.Spec.MachineOSConfig.Name != x.name {
			in.Others = append(in.Others, known(b))
		}
	}
	in.Others = append(in.Others, claimed...)
	return in, nil
}

// runningBuilds names the builds that run, of all MachineOSConfigs, and those of this process that have ended.
func runningBuilds(ctx context.Context, x scope) (active, ended map[string]bool, err error) {
	active, ended = map[string]bool{}, map[string]bool{}
	var list mcfgv1.MachineOSBuildList
	if err := x.api.client.List(ctx, &list, client.MatchingFields{indexActive: "true"},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, wrap(err, "list running MachineOSBuilds")
	}
	for i := range list.Items {
		active[list.Items[i].Name] = true
	}
	for _, name := range x.memory.slots.names() {
		var b mcfgv1.MachineOSBuild
		if err := x.api.client.Get(ctx, client.ObjectKey{Name: name}, &b); err == nil && terminal(&b) {
			ended[name] = true
		}
	}
	return active, ended, nil
}

// changes reports whether the decision leads to more than a report.
func changes(s state) bool {
	if len(s.decision.Interrupt) > 0 || len(s.decision.Discard) > 0 || s.decision.Action.Starts() {
		return true
	}
	b := s.build(s.decision.BuildName)
	switch s.decision.Action {
	case decide.Reuse:
		return true
	case decide.None:
		return b != nil && !labelledFor(b, s.desired.rendered)
	case decide.Wait:
		return s.decision.Reason == decide.ReasonBuilding && b != nil && fresh(b)
	}
	return false
}

// labelledFor reports whether a build carries the name of a rendered config. Rendered configs of the same content may
// have different names.
func labelledFor(b *mcfgv1.MachineOSBuild, rendered string) bool {
	return b.Labels[manifests.LabelRenderedMachineConfig] == manifests.LabelValue(rendered)
}

// annotate sets an annotation.
func annotate(o client.Object, key, value string) {
	set := o.GetAnnotations()
	if set == nil {
		set = map[string]string{}
	}
	set[key] = value
	o.SetAnnotations(set)
}
