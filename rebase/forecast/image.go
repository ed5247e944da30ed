package forecast

import (
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/rollout"
)

// ImageFunc gives the build of the image that a pool with a MachineOSConfig gets: one of the cluster's that has this
// content, or what the builder would make, under a name as rollout.AsImage gives it.
type ImageFunc func(in *Input, pool *mcfgv1.MachineConfigPool,
	config *mcfgv1.MachineOSConfig) (*mcfgv1.MachineOSBuild, error)

// coming is the build of the image that the pool gets next; nil: none. Of a cluster as it is the builds that have begun
// say it. What files change about an image, the builder's own function says.
func (p *Pool) coming(in Input) (build *mcfgv1.MachineOSBuild, unknown []string) {
	build, known := p.view.Coming()
	if in.Cluster.Actor == disruption.ActorMCO {
		return p.comingOfMCO(in, build, known), nil
	}
	mosc := p.view.MachineOSConfig()
	if mosc == nil || in.Image == nil || known && in.Changes == nil {
		if !known {
			unknown = append(unknown, fmt.Sprintf("pool %s: what its image is built of, until its build has begun", p.Pool))
		}
		return build, unknown
	}
	is, err := in.Image(&in, p.view.Object, mosc)
	switch {
	case err != nil && !p.view.AnyLayered():
		return p.view.Unlike(), nil // the nodes' first image, whatever it is built of
	case err != nil:
		return p.view.Unlike(), []string{fmt.Sprintf("pool %s: what its image is built of, so that the image is taken for a "+
			"new one: %v", p.Pool, err)}
	case known && !p.view.Building && sameContent(in.former(p), is):
		return build, nil
	}
	return p.view.Missing(is), nil
}

// comingOfMCO is the build that MCO begins, or has begun: it takes the image that is there for a config that asks for
// nothing of the kernel and the packages. Nobody knows how two of its images differ: each is taken for a new one.
func (p *Pool) comingOfMCO(in Input, build *mcfgv1.MachineOSBuild, known bool) *mcfgv1.MachineOSBuild {
	if known {
		return build
	}
	pool := p.view.Object
	was, is := in.Configs[pool.Status.Configuration.Name], in.Configs[pool.Spec.Configuration.Name]
	if was != nil && is != nil && !rollout.MakesImage(was, is) {
		return nil
	}
	return p.view.Unlike()
}

// former is the build of the image that the pool gets without the files; nil: it gets none, or it is not known.
func (in Input) former(p *Pool) *mcfgv1.MachineOSBuild {
	if in.Changes == nil || in.Changes.Was == nil {
		return nil
	}
	was := in.Changes.Was
	pool := slices.IndexFunc(was.Cluster.Pools, func(o mcfgv1.MachineConfigPool) bool { return o.Name == p.Pool })
	config := slices.IndexFunc(was.Cluster.Configs, func(o mcfgv1.MachineOSConfig) bool {
		return o.Spec.MachineConfigPool.Name == p.Pool && o.DeletionTimestamp.IsZero()
	})
	if pool < 0 || config < 0 {
		return nil
	}
	b, err := in.Image(was, &was.Cluster.Pools[pool], &was.Cluster.Configs[config])
	if err != nil {
		return nil // then it counts as another one
	}
	return b
}

// sameContent tells whether two builds ask for one image.
func sameContent(was, is *mcfgv1.MachineOSBuild) bool {
	if was == nil {
		return false
	}
	for _, key := range []string{manifests.AnnotationBuildAddress, manifests.AnnotationBuildForced} {
		if was.Annotations[key] != is.Annotations[key] {
			return false
		}
	}
	return rollout.AsImage(was).Status.DigestedImagePushSpec == rollout.AsImage(is).Status.DigestedImagePushSpec
}
