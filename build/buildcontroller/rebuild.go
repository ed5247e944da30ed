package buildcontroller

import (
	"context"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/manifests"
)

// rebuildRequest reports whether the MachineOSConfig or its pool requests a rebuild, and which build serves it. A mark
// without a request means nothing: the admin withdrew the request, and the build goes on as any other.
func rebuildRequest(o observation) (requested bool, serving string) {
	holders := []client.Object{o.config}
	if o.pool != nil {
		holders = append(holders, o.pool)
	}
	for _, holder := range holders {
		if !manifests.RequestsRebuild(holder) {
			continue
		}
		requested = true
		if mark := holder.GetAnnotations()[manifests.AnnotationRebuilding]; mark != "" {
			serving = mark
		}
	}
	return requested, serving
}

// settleRebuild removes a rebuild request whose build has ended, with any outcome, and marks requests that came while
// one is being served.
func settleRebuild(ctx context.Context, x scope, s state) (state, error) {
	requested, serving := rebuildRequest(s.observation)
	in := s.input
	in.RebuildRequested, in.Serving, in.Own = requested, serving, s.known()
	settled := requested && decide.Settled(in)
	b := s.build(serving)
	running := b != nil && !terminal(b)
	config, err := patched(ctx, x.api, s.config, func(c *mcfgv1.MachineOSConfig) {
		settle(c, serving, settled, running)
	})
	if err != nil {
		return s, err
	}
	s.config = config
	if s.pool != nil {
		if s.pool, err = patched(ctx, x.api, s.pool, func(p *mcfgv1.MachineConfigPool) {
			settle(p, serving, settled, running)
		}); err != nil {
			return s, err
		}
	}
	if settled {
		x.log.WithField("machineosbuild", serving).Info("rebuild has ended")
		s = s.again(soon)
	}
	return s, nil
}

// settle changes what an object says about a rebuild. serving names the build that serves the request.
func settle(o client.Object, serving string, settled, running bool) {
	mark := o.GetAnnotations()[manifests.AnnotationRebuilding]
	switch {
	case mark != "" && (settled || !manifests.RequestsRebuild(o)):
		for _, key := range append(manifests.RebuildKeys(), manifests.AnnotationRebuilding) {
			delete(o.GetAnnotations(), key)
			delete(o.GetLabels(), key)
		}
	case mark == "" && manifests.RequestsRebuild(o) && !settled && running:
		annotate(o, manifests.AnnotationRebuilding, serving)
	}
}
