package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/transfer"
)

// phases is the whole of Day 1 on the bootstrap host, in order. Services are started anew by every process; the other
// phases run once for the same inputs.
func (h *host) phases() []journal.Phase {
	list := []journal.Phase{
		journal.NewService(PhaseIdentity, "make certificates and credentials", h.makeIdentity),
		journal.NewService("registry", "start the embedded registry", h.startRegistry),
		journal.NewPhase("base", "take in the base image", &h.base, h.baseInputs, h.takeBase, h.baseHolds),
		journal.NewService("render-first", "render the first configs", h.renderFirst),
	}
	if h.extends() {
		list = append(list, journal.NewPhase("extensions", "take in the extension packages", &h.extensions,
			func() (any, error) { return h.extensionsImages(), nil },
			h.takeExtensions, h.extensionsHold))
	}
	for _, p := range h.in.Pools {
		if p.BuildAt == installconfig.BuildAtBootstrap {
			list = append(list, h.buildPhase(p))
		}
	}
	return append(list,
		journal.NewPhase("render-final", "render the final configs", &h.final, h.finalInputs, h.renderFinal, h.finalHolds),
		journal.NewService("serve", "serve Ignition configs", h.startServer))
}

// registryDir is the embedded registry's root below the state directory.
const registryDir = "registry"

func (h *host) makeIdentity(context.Context) error {
	id, err := loadIdentity(h.StateDir, h.registryHost)
	h.id = id
	return err
}

// names are what clients call this host.
func (h *host) names() []string {
	cfg := h.in.Sidecar.Config
	names := []string{cfg.BootstrapRegistry.Host, cfg.ConfigServer.Host}
	if c := h.in.Sidecar.Cluster; c.Name != "" && c.BaseDomain != "" {
		names = append(names, "api-int."+c.Name+"."+c.BaseDomain)
	}
	return names
}

func (h *host) registryOptions() registry.Options {
	return registry.Options{
		Root: h.path(registryDir), Listen: h.registryListen, TLSDir: filepath.Dir(h.id.caFile), Hosts: h.names(),
		Users: []registry.User{h.id.push, h.id.pull}, Log: h.Log.WithField("component", "registry"),
	}
}

func (h *host) startRegistry(ctx context.Context) error {
	srv, err := registry.New(h.registryOptions())
	if err != nil {
		return err
	}
	if err := srv.Start(); err != nil {
		return err
	}
	h.registry = srv
	return h.reachRegistry(ctx)
}

// embedded is an endpoint in the embedded registry, with the right to push.
func (h *host) embedded(reference string) transfer.Endpoint {
	return transfer.Endpoint{Reference: "docker://" + reference, CAFile: h.id.caFile, Username: h.id.push.Name,
		Password: h.id.push.Password}
}

// inEmbedded is a repository's name in the embedded registry: the final registry's path behind another host.
func (h *host) inEmbedded(repository string) string {
	return h.registryHost + "/" + installconfig.RepositoryPath(repository)
}

// holds reports whether the embedded registry still has an image with all its blobs, so that a recorded result may be
// used again.
func (h *host) holds(ctx context.Context, reference string) error {
	client, err := appendengine.NewClient(appendengine.Access{CAFile: h.id.caFile, AuthFile: h.id.pushAuth})
	if err != nil {
		return err
	}
	defer client.Close()
	image, err := client.Read(ctx, reference, h.Platform)
	if err != nil {
		return fmt.Errorf("find %s again: %w", reference, err)
	}
	missing, err := client.Complete(ctx, image)
	if err != nil {
		return fmt.Errorf("look at the blobs of %s: %w", reference, err)
	}
	if missing != "" {
		return fmt.Errorf("find %s again: blob %s is missing", reference, missing)
	}
	return nil
}

func (h *host) buildPhase(p preflight.Pool) journal.Phase {
	result := &build.Result{}
	return journal.NewPhase("build-"+p.Name, "build the image of pool "+p.Name, result,
		func() (any, error) {
			request, err := h.buildRequest(p)
			if err != nil {
				return nil, err
			}
			return request.Address()
		},
		func(ctx context.Context) (build.Result, error) {
			request, err := h.buildRequest(p)
			if err != nil {
				return build.Result{}, err
			}
			out, err := h.build(ctx, p.Name, request)
			if err != nil {
				return build.Result{}, err
			}
			h.built[p.Name] = out
			return *out, nil
		},
		func(ctx context.Context, r build.Result) error {
			if err := h.holds(ctx, r.Reference); err != nil {
				return err
			}
			h.built[p.Name] = &r
			return nil
		})
}

// build carries out one request with an engine whose storage lies in the state directory.
func (h *host) build(ctx context.Context, pool string, request build.Request) (*build.Result, error) {
	dir := h.path("build")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make build directory: %w", err)
	}
	engine, err := h.NewEngine(dir)
	if err != nil {
		return nil, err
	}
	builder := build.NewBuilder(build.BuilderOptions{Engine: engine, StateDir: dir, Log: h.Log.WithField("pool", pool),
		Progress: func(e build.Event) { h.BuildProgress(pool, e) }})
	return builder.Build(ctx, request)
}

var errNoFirst = errors.New("the pool has no first rendering")

func (h *host) buildRequest(p preflight.Pool) (build.Request, error) {
	config := h.first.Config(p.Name)
	if config == nil {
		return build.Request{}, fmt.Errorf("prepare build of pool %s: %w", p.Name, errNoFirst)
	}
	copies := maps.Clone(h.extensions)
	if copies == nil {
		copies = map[string]string{}
	}
	copies[h.base.Final] = h.base.Reference
	return build.NewRequest(build.Spec{
		Pool: p.Name, Config: config, Controller: h.in.ControllerConfig(), Base: h.base.Final, Copies: copies,
		Containerfile: p.Containerfile, ContainerfileName: p.MachineOSConfig.Origin.File,
		Platform: h.Platform, Target: h.inEmbedded(p.Repository),
		Registry: build.Access{CAFile: h.id.caFile, AuthFile: h.id.pushAuth},
		Options:  buildOptions(h.in.Sidecar.Config.Build),
	})
}

// buildOptions are the user's limits.
func buildOptions(b installconfig.Build) build.Options {
	return build.Options{Timeout: b.Timeout.Duration(), DiskLimit: int64(b.Disk), Attempts: b.Attempts, Offline: b.Offline,
		ProxyEnvironment: build.HostProxies(os.Environ())}
}
