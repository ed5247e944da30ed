package day1

import (
	"context"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/build"
)

// Renderer gets the pools rendered. F is what a flow knows after its first rendering.
type Renderer[F any] interface {
	// First renders every pool on the base image and brings the images that builds begin with into the registry.
	First(ctx context.Context, run *journal.Run, r *Registry) (F, Sources, error)
	// Final renders every pool on its own image.
	Final(ctx context.Context, run *journal.Run, l Layered[F]) (Rendered, error)
}

// Server lets the nodes have their configs.
type Server[F any] interface {
	Serve(ctx context.Context, run *journal.Run, l Layered[F], final Rendered) (Finisher, error)
}

// Finisher hands over to the cluster and returns when this host may go.
type Finisher interface {
	Finish(ctx context.Context, run *journal.Run) error
}

// Layered is what there is after the builds.
type Layered[F any] struct {
	Registry *Registry
	First    F
	// Requests are those of the builds, Images their results, by pool.
	Requests map[string]build.Request
	Images   map[string]*build.Result
}

// Rendered is what the nodes will be.
type Rendered struct {
	// Configs maps each pool to its rendered config's name, Images to its OS image in the final registry, by digest.
	Configs map[string]string `json:"configs"`
	Images  map[string]string `json:"images"`
	// OSImageURL says that the images are in MachineConfigs: this MCO does not read them from MachineOSConfigs.
	OSImageURL bool `json:"osImageURL,omitempty"`
}

// Run is Day 1, step by step. A step that an earlier process has finished is not repeated unless its inputs differ.
func Run[F any](ctx context.Context, run *journal.Run, h Host, renderer Renderer[F], server Server[F]) error {
	id, err := journal.Serve(ctx, run, PhaseIdentity, h.makeIdentity)
	if err != nil {
		return err
	}
	registry, err := journal.Serve(ctx, run, phaseRegistry, func(ctx context.Context) (*Registry, error) {
		return startRegistry(ctx, h, id)
	})
	if err != nil {
		return err
	}
	defer registry.stop()
	first, sources, err := renderer.First(ctx, run, registry)
	if err != nil {
		return err
	}
	requests, images, err := buildImages(ctx, run, h, registry, sources)
	if err != nil {
		return err
	}
	layered := Layered[F]{Registry: registry, First: first, Requests: requests, Images: images}
	final, err := renderer.Final(ctx, run, layered)
	if err != nil {
		return err
	}
	services, err := server.Serve(ctx, run, layered, final)
	if err != nil {
		return err
	}
	return services.Finish(ctx, run)
}
