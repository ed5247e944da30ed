package standalone

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// renderDir is the rendered directory below the state directory that the Ignition server serves, firstDir that from
// which images are built.
const (
	renderDir = "rendered"
	firstDir  = "rendered-first"
)

// First imports the base image, renders every pool on it and imports what extends it.
func (f flow) First(ctx context.Context, run *journal.Run, r *day1.Registry) (baseImage, day1.Sources, error) {
	base, err := f.importBase(ctx, run, r)
	if err != nil {
		return base, day1.Sources{}, err
	}
	if err := checkBaseProgram(ctx, f, r, base); err != nil {
		return base, day1.Sources{}, err
	}
	first, err := journal.Serve(ctx, run, phaseRenderFirst, func(context.Context) (*render.Result, error) {
		return f.renderFirst(f.host.In.Inputs(base.Final, f.Versions))
	})
	if err != nil {
		return base, day1.Sources{}, err
	}
	copies := map[string]string{}
	if extends(f.host.In) {
		extensions, err := importExtensions(ctx, f, run, r, extensionsImages(f.host.In, first))
		if err != nil {
			return base, day1.Sources{}, err
		}
		maps.Copy(copies, extensions)
	}
	copies[base.Final] = base.Reference
	out := sources(f.host, base, first, copies)
	out.Signatures = func(ctx context.Context, image string) error { return f.copySignatures(ctx, r, image) }
	go func() { _, _ = f.agentHash() }() // while images are built; who needs it asks again
	return base, out, nil
}

func sources(h day1.Host, base baseImage, first *render.Result, copies map[string]string) day1.Sources {
	out := day1.Sources{Pools: map[string]day1.Source{}, Copies: copies}
	for _, p := range day1.BuiltHere(h.In) {
		out.Pools[p.Name] = day1.Source{Config: first.Config(p.Name), Controller: h.In.ControllerConfig(),
			Base: base.Final}
	}
	return out
}

// render renders every pool. It is pure and takes milliseconds.
func (f flow) render(set *manifests.Set) (*render.Result, error) {
	return render.Render(set, f.host.In.Options(f.Versions))
}

// renderFirst also keeps the result, for people who compare it with the final one: a log bundle has both.
func (f flow) renderFirst(set *manifests.Set) (*render.Result, error) {
	r, err := f.render(set)
	if err != nil {
		return nil, err
	}
	day1.LogWarnings(f.Log, r.Findings)
	return r, f.keep(firstDir, set, r)
}

func (f flow) keep(dir string, set *manifests.Set, r *render.Result) error {
	if err := os.MkdirAll(f.Path(dir), 0o700); err != nil {
		return fmt.Errorf("make directory for rendered configs: %w", err)
	}
	return render.Write(f.Path(dir), set, r)
}

// layered are the objects with each built image on its MachineOSConfig, in the annotation by which a pre-built image is
// known at install time: the in-cluster renderer sees the same.
func layered(set *manifests.Set, images map[string]string) *manifests.Set {
	for i, item := range set.MachineOSConfigs {
		if image, ok := images[item.Object.Spec.MachineConfigPool.Name]; ok {
			object := item.Object.DeepCopy()
			if object.Annotations == nil {
				object.Annotations = map[string]string{}
			}
			object.Annotations[manifests.AnnotationPreBuiltImage] = image
			set.MachineOSConfigs[i].Object = object
		}
	}
	return set
}

// Final renders every pool on its own image, and plans the hand-over.
func (f flow) Final(ctx context.Context, run *journal.Run, l day1.Layered[baseImage]) (day1.Rendered, error) {
	images := map[string]string{}
	for _, p := range day1.BuiltHere(f.host.In) {
		images[p.Name] = day1.FinalImage(p, l.Images[p.Name])
	}
	set := layered(f.host.In.Inputs(l.First.Final, f.Versions), images)
	return journal.Do(ctx, run, journal.Step[day1.Rendered]{Name: phaseRenderFinal,
		Inputs: func() (any, error) { return f.finalInputs(l, set) },
		Work: func(context.Context) (day1.Rendered, error) {
			result, err := f.render(set)
			if err != nil {
				return day1.Rendered{}, err
			}
			out := rendered(set, result)
			if err := checkPinned(f.host, out, images); err != nil {
				return out, err
			}
			if err := f.keep(renderDir, set, result); err != nil {
				return out, err
			}
			plan, err := f.plan(l, set, result)
			if err != nil {
				return out, err
			}
			return out, plan.Write(f.PlanDir())
		},
		Holds: f.finalHolds,
	})
}

// finalInputs are all that the rendered configs depend on, and the plan of the hand-over: it names this host's
// registry, the builds and the signing key.
func (f flow) finalInputs(l day1.Layered[baseImage], set *manifests.Set) (any, error) {
	out, err := day1.Outcome(f.host, l)
	if err != nil {
		return nil, err
	}
	type built struct{ Digest, Address, Ground, Repository string }
	all := map[string]built{}
	for pool, b := range out.Built {
		all[pool] = built{b.Digest, b.Address, b.Ground, b.Repository}
	}
	return map[string]any{"set": set, "built": all, "versions": f.Versions, "nodes": f.HandOver.Nodes,
		"cluster": f.host.In.Sidecar.Cluster, "handOver": out.HandOver, "finalCA": out.FinalCA, "registry": out.Registry,
		"platform": out.Platform, "clusterRegistry": out.ClusterRegistry, "signing": f.host.In.Signing}, nil
}

// rendered names what came of a rendering.
func rendered(set *manifests.Set, r *render.Result) day1.Rendered {
	out := day1.Rendered{Configs: map[string]string{}, Images: map[string]string{}}
	for _, p := range set.Pools {
		if config := r.Config(p.Object.Name); config != nil {
			out.Configs[p.Object.Name], out.Images[p.Object.Name] = config.Name, config.Spec.OSImageURL
		}
	}
	return out
}

// checkPinned makes sure that nodes boot every image that was built: a MachineConfig with an osImageURL of its own
// would win over it silently.
func checkPinned(h day1.Host, r day1.Rendered, images map[string]string) error {
	for _, p := range day1.BuiltHere(h.In) {
		if got := r.Images[p.Name]; got != images[p.Name] {
			return fmt.Errorf("pool %s: the rendered config names %s instead of the image that was built, %s: remove "+
				"osImageURL from the pool's MachineConfigs", p.Name, got, images[p.Name])
		}
	}
	return nil
}

func (f flow) finalHolds(_ context.Context, r day1.Rendered) error {
	for _, name := range r.Configs {
		if _, err := os.Stat(filepath.Join(f.Path(renderDir), "machine-configs", name+".yaml")); err != nil {
			return fmt.Errorf("find rendered config again: %w", err)
		}
	}
	_, err := handover.Read(f.PlanDir())
	return err
}

// plan is what there is to hand over.
func (f flow) plan(l day1.Layered[baseImage], set *manifests.Set, r *render.Result) (*handover.Plan, error) {
	out, err := day1.Outcome(f.host, l)
	if err != nil {
		return nil, err
	}
	secret, err := day1.SigningSecret(l.Registry.Identity, f.host.In.Signing.BasePolicy)
	if err != nil {
		return nil, err
	}
	all := *set
	all.Secrets = append(slices.Clone(set.Secrets), manifests.NewItem(secret))
	out.Base, out.Set, out.Result = l.First.Final, &all, r
	if n := f.host.In.Sidecar.Cluster.ControlPlane; n > 0 {
		out.Nodes["master"] = n
	}
	maps.Copy(out.Nodes, f.HandOver.Nodes)
	return handover.Make(out)
}
