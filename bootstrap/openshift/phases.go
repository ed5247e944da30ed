package openshift

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/bootstrap"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry"
)

// phaseGate is the phase after which nodes get their configs, phaseHandOver the last one.
const (
	phaseGate     = "gate"
	phaseHandOver = "hand-over"
)

// phases is the flow, in order. Services are started or checked anew by every process; the other phases run once for
// the same inputs.
func (f *flow) phases() []journal.Phase {
	list := []journal.Phase{
		journal.NewService(bootstrap.PhaseIdentity, "make certificates and credentials", f.makeIdentity),
		journal.NewService("registry", "start the embedded registry", f.startRegistry),
		journal.NewPhase("render-first", "wait for MCO's first rendering", &f.first,
			func() (any, error) { return f.pools(), nil }, f.firstRendering, f.firstHolds),
		journal.NewPhase("base", "take in the release's OS image", &f.base, func() (any, error) {
			return f.first.Bases(),
				nil
		}, f.takeBase, f.baseHolds),
	}
	var builds []journal.Phase
	for _, p := range f.in.Pools {
		if p.BuildAt == installconfig.BuildAtBootstrap {
			builds = append(builds, f.buildPhase(p))
		}
	}
	list = append(list, journal.Together("build", builds...)...)
	return append(list,
		journal.NewPhase("render-second", "let MCO render with the images", &f.second, f.secondInputs, f.secondRendering,
			f.secondHolds),
		journal.NewPhase("cluster", "give the cluster the same objects", &givenResult{}, f.givenInputs, f.applyObjects,
			nil),
		journal.NewService("pull", "pull the images as a node would", f.testPulls),
		journal.NewService("served", "look at what the config server gives", f.seeServed),
		journal.NewService(phaseGate, "let nodes fetch their configs", f.openGate),
		journal.NewService(phaseHandOver, "hand over to the cluster", f.handOver))
}

// pools are the names of the pools that are built here.
func (f *flow) pools() []string {
	var names []string
	for _, p := range f.in.Pools {
		if p.BuildAt == installconfig.BuildAtBootstrap {
			names = append(names, p.Name)
		}
	}
	return names
}

func (f *flow) pool(name string) preflight.Pool {
	for _, p := range f.in.Pools {
		if p.Name == name {
			return p
		}
	}
	return preflight.Pool{}
}

func (f *flow) path(parts ...string) string {
	return filepath.Join(append([]string{f.StateDir}, parts...)...)
}

func (f *flow) makeIdentity(context.Context) (err error) {
	host := f.registryHost[:len(f.registryHost)-len(strconv.Itoa(f.in.Sidecar.Config.BootstrapRegistry.Port))-1]
	f.id, err = bootstrap.LoadIdentity(f.StateDir, f.registryHost, []string{host, "localhost", "127.0.0.1"})
	return err
}

func (f *flow) startRegistry(ctx context.Context) error {
	port := strconv.Itoa(f.in.Sidecar.Config.BootstrapRegistry.Port)
	srv, err := registry.New(registry.Options{Root: f.path("registry"), Listen: ":" + port, Certificate: &f.id.Certificate,
		Users: f.id.Users,
		Log:   f.Log.WithField("component", "registry")})
	if err != nil {
		return err
	}
	if err := srv.Start(); err != nil {
		return report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".bootstrapRegistry.port",
			Rule:    "port-taken",
			Message: fmt.Sprintf("the embedded registry cannot listen on port %s: %v", port, err),
			Next:    "stop what uses the port on this node, or choose another port and make the Ignition configs again"}
	}
	f.registry = srv
	local := net.JoinHostPort("127.0.0.1", port)
	f.listening.Store(&local)
	go f.copyAhead(ctx)
	return nil
}

// inEmbedded is a repository's name in the embedded registry: the final one's path behind another host.
func (f *flow) inEmbedded(repository string) string {
	return f.registryHost + "/" + installconfig.RepositoryPath(repository)
}

// holds says whether the embedded registry has an image with all its blobs.
func (f *flow) holds(ctx context.Context, reference string) error {
	client, err := appendengine.NewClient(appendengine.Access{CAFile: f.id.CAFile, AuthFile: f.id.PushAuth})
	if err != nil {
		return err
	}
	defer client.Close()
	image, err := client.Read(ctx, reference, f.Platform)
	if err != nil {
		return fmt.Errorf("find %s again: %w", reference, err)
	}
	missing, err := client.Complete(ctx, image)
	if err == nil && missing != "" {
		err = fmt.Errorf("blob %s is missing", missing)
	}
	if err != nil {
		return fmt.Errorf("look at the blobs of %s: %w", reference, err)
	}
	return nil
}

func (f *flow) buildPhase(p preflight.Pool) journal.Phase {
	result := &build.Result{}
	return journal.NewPhase("build-"+p.Name, "build the image of pool "+p.Name, result,
		func() (any, error) {
			request, err := f.buildRequest(p)
			if err != nil {
				return nil, err
			}
			return request.Address()
		},
		func(ctx context.Context) (build.Result, error) {
			out, err := f.build(ctx, p)
			if err != nil {
				return build.Result{}, err
			}
			f.keep(p.Name, out)
			return *out, nil
		},
		func(ctx context.Context, r build.Result) error {
			if err := f.holds(ctx, r.Reference); err != nil {
				return err
			}
			f.keep(p.Name, &r)
			return nil
		})
}

func (f *flow) keep(pool string, r *build.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.built[pool] = r
}

// build has a storage of its own for each pool: two builds run at the same time.
func (f *flow) build(ctx context.Context, p preflight.Pool) (*build.Result, error) {
	request, err := f.buildRequest(p)
	if err != nil {
		return nil, err
	}
	dir := f.path("build", p.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make build directory: %w", err)
	}
	engine, err := f.NewEngine(dir)
	if err != nil {
		return nil, err
	}
	builder := build.NewBuilder(build.BuilderOptions{Engine: engine, StateDir: dir, Log: f.Log.WithField("pool", p.Name),
		Progress: func(e build.Event) { f.BuildProgress(p.Name, e) }})
	return builder.Build(ctx, request)
}

var errNoFirst = errors.New("the pool has no first rendering")

func (f *flow) buildRequest(p preflight.Pool) (build.Request, error) {
	config, err := f.firstConfig(p.Name)
	if err != nil {
		return build.Request{}, err
	}
	if _, copied := f.base.Embedded[f.first.Pools[p.Name].Base]; !copied {
		return build.Request{}, fmt.Errorf("prepare build of pool %s: %w", p.Name, errNoFirst)
	}
	limits, first := f.in.Sidecar.Config.Build, f.first.Pools[p.Name]
	return build.NewRequest(build.Spec{
		Pool: p.Name, Config: config, Base: first.Base, Copies: f.base.Embedded,
		Controller: &mcfgv1.ControllerConfigSpec{AdditionalTrustBundle: f.first.TrustBundle,
			BaseOSExtensionsContainerImage: first.Extensions},
		Containerfile: p.Containerfile, ContainerfileName: p.MachineOSConfig.Origin.File,
		Platform: f.Platform, Target: f.inEmbedded(p.Repository),
		Registry: build.Access{CAFile: f.id.CAFile, AuthFile: f.id.PushAuth},
		Options: build.Options{Timeout: limits.Timeout.Duration(), DiskLimit: int64(limits.Disk), Attempts: limits.Attempts,
			Offline:          limits.Offline,
			ProxyEnvironment: build.HostProxies(os.Environ())},
	})
}
