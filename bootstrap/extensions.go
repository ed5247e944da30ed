package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/registry/transfer"
)

// extensionsTag keeps a copied image from being collected as an untagged manifest.
const extensionsTag = "extensions"

// extends says whether a build of this host may need the image with extension packages: then there is a phase that
// takes it in.
func (h *host) extends() bool {
	for _, c := range h.in.Set.MachineConfigs {
		if spec := c.Object.Spec; len(spec.Extensions) > 0 || spec.KernelType != "" {
			return true
		}
	}
	return slices.ContainsFunc(h.in.Pools, func(p preflight.Pool) bool {
		return strings.Contains(p.Containerfile,
			containerfile.Extensions)
	})
}

// extensionsImage is the one that the build of a pool needs, by its own name; empty: none.
func (h *host) extensionsImage(p preflight.Pool) string {
	return build.ExtensionsImage(h.first.Config(p.Name), h.in.ControllerConfig(), p.Containerfile)
}

// extensionsImages are those of all pools that are built here, each once.
func (h *host) extensionsImages() []string {
	var out []string
	for _, p := range h.in.Pools {
		if image := h.extensionsImage(p); image != "" && p.BuildAt == installconfig.BuildAtBootstrap {
			out = append(out, image)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// takeExtensions copies them into the embedded registry, with the base image's credentials, and maps each to its name
// there.
func (h *host) takeExtensions(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, image := range h.extensionsImages() {
		from, err := h.baseEndpoint()
		if err != nil {
			return nil, err
		}
		from.Reference = "docker://" + image
		repository := h.inEmbedded(installconfig.Repository(image))
		res, err := transfer.Copy(ctx, from, h.embedded(repository+":"+extensionsTag), transfer.Options{
			Platform: h.Platform, TempDir: h.path("tmp"), CacheDir: h.path("cache"),
			Log: h.Log.WithField("phase", "extensions")})
		if err != nil {
			return nil, fmt.Errorf("copy extensions image %s into the embedded registry: %w", image, err)
		}
		out[image] = repository + "@" + res.Digest.String()
	}
	return out, nil
}

func (h *host) extensionsHold(ctx context.Context, images map[string]string) error {
	for _, name := range images {
		if err := h.holds(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
