package bootstrap

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// renderDir is the rendered directory below the state directory that the Ignition server serves, firstDir that from
// which images are built.
const (
	renderDir = "rendered"
	firstDir  = "rendered-first"
)

// finalResult is what the nodes are told to be.
type finalResult struct {
	// Configs maps each pool to its rendered config's name.
	Configs map[string]string `json:"configs"`
	// Images maps each pool to its OS image in the final registry, by digest.
	Images map[string]string `json:"images"`
}

// inputs returns the objects to render: the install directory's and those that the standalone flow adds for the base
// image.
func (h *host) inputs() *manifests.Set {
	set := &manifests.Set{}
	set.Append(h.in.Set)
	render.StandaloneInputs(set, h.base.Final, h.Versions)
	return set
}

// renderFirst renders every pool on the base image. It is pure and takes milliseconds, so every process does it.
func (h *host) renderFirst(context.Context) error {
	r, err := render.Render(h.inputs(), render.Options{Versions: h.Versions, Unbuilt: render.IgnoreUnbuilt, Strict: true})
	if err != nil {
		return err
	}
	h.warn(r.Findings)
	h.first = r
	// For people who compare it with the final one: a log bundle has both.
	if err := os.MkdirAll(h.path(firstDir), 0o700); err != nil {
		return fmt.Errorf("make directory for the first configs: %w", err)
	}
	return render.Write(h.path(firstDir), h.inputs(), r)
}

// layered returns the objects with each built image noted on its MachineOSConfig, in the annotation by which a
// pre-built image is known at install time: the in-cluster renderer sees the same.
func (h *host) layered() *manifests.Set {
	set := h.inputs()
	for i, item := range set.MachineOSConfigs {
		pool := item.Object.Spec.MachineConfigPool.Name
		if image, ok := h.finalImage(pool); ok {
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

// finalImage is a pool's image in its final repository, by the digest that was built here.
func (h *host) finalImage(pool string) (string, bool) {
	result, ok := h.built[pool]
	if !ok {
		return "", false
	}
	for _, p := range h.in.Pools {
		if p.Name == pool {
			return p.Repository + "@" + result.Digest, true
		}
	}
	return "", false
}

func (h *host) finalInputs() (any, error) {
	digests := map[string]string{}
	for pool, r := range h.built {
		digests[pool] = r.Digest
	}
	return map[string]any{"set": h.layered(), "digests": digests, "versions": h.Versions, "nodes": h.HandOver.Nodes,
		"cluster":  h.in.Sidecar.Cluster,
		"handOver": h.in.Sidecar.Config.HandOver, "finalCA": string(h.in.RegistryCA)}, nil
}

func (h *host) renderFinal(context.Context) (finalResult, error) {
	set := h.layered()
	r, err := render.Render(set, render.Options{Versions: h.Versions, Unbuilt: render.IgnoreUnbuilt, Strict: true})
	if err != nil {
		return finalResult{}, err
	}
	out := finalResult{Configs: map[string]string{}, Images: map[string]string{}}
	for _, p := range set.Pools {
		config := r.Config(p.Object.Name)
		if config == nil {
			continue
		}
		out.Configs[p.Object.Name], out.Images[p.Object.Name] = config.Name, config.Spec.OSImageURL
	}
	if err := h.checkPinned(out); err != nil {
		return finalResult{}, err
	}
	if err := os.MkdirAll(h.path(renderDir), 0o700); err != nil {
		return finalResult{}, fmt.Errorf("make directory for rendered configs: %w", err)
	}
	if err := render.Write(h.path(renderDir), set, r); err != nil {
		return finalResult{}, err
	}
	plan, err := h.plan(set, r)
	if err != nil {
		return finalResult{}, err
	}
	return out, plan.Write(h.path(handOverDir))
}

// checkPinned makes sure that every built image is what its pool's nodes will boot: a MachineConfig with an osImageURL
// of its own would win over it silently.
func (h *host) checkPinned(out finalResult) error {
	var pools []string
	for pool := range h.built {
		pools = append(pools, pool)
	}
	sort.Strings(pools)
	for _, pool := range pools {
		want, _ := h.finalImage(pool)
		if got := out.Images[pool]; got != want {
			return fmt.Errorf(
				"pool %s: the rendered config names %s instead of the image that was built, %s: remove osImageURL from the pool's MachineConfigs", pool, got, want)
		}
	}
	return nil
}

func (h *host) finalHolds(_ context.Context, r finalResult) error {
	for _, name := range r.Configs {
		if _, err := os.Stat(filepath.Join(h.path(renderDir), "machine-configs", name+".yaml")); err != nil {
			return fmt.Errorf("find rendered config again: %w", err)
		}
	}
	_, err := handover.Read(h.path(handOverDir))
	return err
}

func (h *host) warn(findings []report.Finding) {
	for _, f := range findings {
		if f.Severity == report.Warning {
			h.Log.WithField("place", f.Place()).WithField("rule", f.Rule).Warn(f.Message)
		}
	}
}
