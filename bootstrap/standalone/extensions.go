package standalone

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/render"
)

// extends reports whether a build of this host may need the image with extension packages: then a phase imports it.
func extends(in *preflight.Input) bool {
	for _, c := range in.Set.MachineConfigs {
		if spec := c.Object.Spec; len(spec.Extensions) > 0 || spec.KernelType != "" {
			return true
		}
	}
	return slices.ContainsFunc(in.Pools, func(p preflight.Pool) bool {
		return strings.Contains(p.Containerfile, containerfile.Extensions)
	})
}

// extensionsImages are those that the builds of this host need, by their own names, each once.
func extensionsImages(in *preflight.Input, first *render.Result) []string {
	var out []string
	for _, p := range day1.BuiltHere(in) {
		if image := build.ExtensionsImage(first.Config(p.Name), in.ControllerConfig(), p.Containerfile); image != "" {
			out = append(out, image)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// importExtensions copies them into the embedded registry, with the base image's credentials, and maps each to its name
// there.
func importExtensions(ctx context.Context, f flow, run *journal.Run, r *day1.Registry,
	images []string) (map[string]string, error) {
	return journal.Do(ctx, run, journal.Step[map[string]string]{Name: phaseExtensions,
		Inputs: func() (any, error) { return images, nil },
		Work: func(ctx context.Context) (map[string]string, error) {
			out := map[string]string{}
			for _, image := range images {
				from, err := f.baseEndpoint()
				if err != nil {
					return nil, err
				}
				from.Reference = "docker://" + image
				got, err := r.Import(ctx, from, installconfig.Repository(image), phaseExtensions)
				if err != nil {
					return nil, fmt.Errorf("copy extensions image %s into the embedded registry: %w", image, err)
				}
				out[image] = got.Reference
			}
			return out, nil
		},
		Holds: r.HoldsAll,
	})
}
