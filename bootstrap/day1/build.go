package day1

import (
	"context"
	"fmt"
	"os"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// Source is what the image of a pool is made from.
type Source struct {
	// Config is the pool's rendered config, Controller the cluster's ControllerConfig.
	Config     *mcfgv1.MachineConfig
	Controller *mcfgv1.ControllerConfigSpec
	// Base is the OS image by its own name.
	Base string
}

// Sources are what the images of all pools are made from.
type Sources struct {
	// Pools has the source of each pool that is built here.
	Pools map[string]Source
	// Copies maps the own names of images to their names in the embedded registry, by digest.
	Copies map[string]string
	// Signatures copies those of an image that builds begin with once more, by its own name. Default: none are copied.
	Signatures func(ctx context.Context, image string) error
}

// buildImages builds the images of all pools. It returns what was asked for and the results, by pool.
func buildImages(ctx context.Context, run *journal.Run, h Host, r *Registry, s Sources) (map[string]build.Request,
	map[string]*build.Result, error) {
	keys, err := r.Identity.Keys()
	if err != nil {
		return nil, nil, err
	}
	pools := BuiltHere(h.In)
	asked, results := make([]build.Request, len(pools)), make([]build.Result, len(pools))
	var work []func() error
	for i, p := range pools {
		work = append(work, func() (err error) {
			asked[i], results[i], err = buildImage(ctx, run, h, r, s, p, keys)
			return err
		})
	}
	if err := inOrder(work, h.Together); err != nil {
		return nil, nil, err
	}
	requests, images := map[string]build.Request{}, map[string]*build.Result{}
	for i, p := range pools {
		requests[p.Name], images[p.Name] = asked[i], &results[i]
	}
	return requests, images, nil
}

func inOrder(work []func() error, together bool) error {
	if together {
		return journal.Together(work)
	}
	for _, do := range work {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func buildImage(ctx context.Context, run *journal.Run, h Host, r *Registry, s Sources,
	p preflight.Pool, keys *sign.Keys) (request build.Request, built build.Result, err error) {
	built, err = journal.Do(ctx, run, journal.Step[build.Result]{Name: buildPhase(p.Name),
		Inputs: func() (_ any, err error) {
			if request, err = NewRequest(h, r, s, p); err != nil {
				return nil, err
			}
			return request.Address()
		},
		Work: func(ctx context.Context) (build.Result, error) {
			keys.Prepare()
			builder, err := newBuilder(h, p.Name, keys)
			if err != nil {
				return build.Result{}, err
			}
			out, err := builder.Build(ctx, request)
			if s.Signatures != nil && build.BaseRefused(err) { // it may have been signed since it was copied
				copied := s.Signatures(ctx, request.BaseName)
				if out, err = builder.Build(ctx, request); err != nil && copied != nil {
					h.Log.WithError(copied).WithField("image", request.BaseName).Warn("signatures cannot be copied")
				}
			}
			if err != nil {
				return build.Result{}, err
			}
			return *out, nil
		},
		Holds: func(ctx context.Context, built build.Result) error {
			if err := r.Holds(ctx, built.Reference); err != nil {
				return err
			}
			// the journal says that this host has built it, maybe before it signed images
			return keys.Sign(ctx, r.signed(built.Reference, p))
		},
	})
	return request, built, err
}

// newBuilder has an engine whose storage is in the state directory. Builds that run at the same time have one each.
func newBuilder(h Host, pool string, keys *sign.Keys) (*build.Builder, error) {
	dir := h.Path(buildDir)
	if h.Together {
		dir = h.Path(buildDir, pool)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make build directory: %w", err)
	}
	engine, err := h.NewEngine(dir)
	if err != nil {
		return nil, err
	}
	return build.NewBuilder(build.BuilderOptions{Engine: engine, StateDir: dir, Keys: keys,
		Place: build.DefaultPlace + "/bootstrap", BillsOfMaterials: h.BillsOfMaterials,
		Log: h.Log.WithField("pool", pool), Progress: func(e build.Event) { h.BuildProgress(pool, e) }}), nil
}

func buildOptions(h Host) build.Options {
	limits := h.In.Sidecar.Config.Build
	return build.Options{Timeout: limits.Timeout.Duration(), DiskLimit: int64(limits.Disk), Attempts: limits.Attempts,
		Offline: limits.Offline, ProxyEnvironment: build.HostProxies(os.Environ()),
		BasePolicy: h.In.Signing.BasePolicy}
}

// NewRequest is the build request of a pool, in both flows.
func NewRequest(h Host, r *Registry, s Sources, p preflight.Pool) (build.Request, error) {
	source, options := s.Pools[p.Name], buildOptions(h)
	access, mirrors, err := h.access(r, p)
	if err != nil {
		return build.Request{}, err
	}
	options.RegistriesConf = mirrors
	return build.NewRequest(build.Spec{
		Pool: p.Name, Config: source.Config, Controller: source.Controller, Base: source.Base, Copies: s.Copies,
		Containerfile: p.Containerfile, ContainerfileName: p.MachineOSConfig.Origin.File,
		Platform: h.Platform, Target: r.Name(p.Repository), Final: p.Repository,
		Registry: access, Options: options,
	})
}

// access is how a pool's build reaches the embedded registry and those of images that its Containerfile names. It is no
// part of the image.
func (h Host) access(r *Registry, p preflight.Pool) (a build.Access, registriesConf string, err error) {
	sources, err := h.In.Sources(p)
	if err != nil {
		return a, "", err
	}
	if sources, err = sources.Over(h.Images); err != nil {
		return a, "", err
	}
	if h.BaseCAFile != "" {
		ca, err := os.ReadFile(h.BaseCAFile)
		if err != nil {
			return a, "", fmt.Errorf("read CA of the base image's registry: %w", err)
		}
		sources.CA = slices.Concat(sources.CA, ca)
	}
	return sources.Access(build.Access{CAFile: r.Identity.CAFile, AuthFile: r.Identity.PushAuth}, h.Path(scratchDir),
		"build-"+p.Name)
}

// SigningSecret is the key that signs, with the policy of base images, for the builder in the cluster.
func SigningSecret(id *Identity, basePolicy []byte) (*corev1.Secret, error) {
	keys, err := id.Keys()
	if err != nil {
		return nil, err
	}
	out := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Data: map[string][]byte{
		sign.PublicFile: keys.Key.Public}}
	if basePolicy != nil {
		out.Data[sign.BasePolicyFile] = basePolicy
	}
	out.Name, out.Namespace = cluster.SigningKey, cluster.DefaultNamespace
	for name, file := range map[string]string{sign.KeyFile: id.keyFile, sign.PassphraseFile: id.passphraseFile} {
		if out.Data[name], err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("read signing key: %w", err)
		}
	}
	return out, nil
}

// Outcome is what both flows hand over; a flow adds the objects and the nodes.
func Outcome[F any](h Host, l Layered[F]) (handover.Outcome, error) {
	out := handover.Outcome{Registry: l.Registry.Address, Platform: h.Platform, Built: map[string]handover.Built{},
		Nodes: map[string]int{}, HandOver: h.In.Sidecar.Config.HandOver, FinalCA: string(h.In.RegistryCA),
		ClusterRegistry: h.In.Sidecar.Config.Registry.Name}
	for _, p := range BuiltHere(h.In) {
		ground, err := l.Requests[p.Name].Ground()
		if err != nil {
			return out, err
		}
		out.Built[p.Name] = handover.Built{Result: l.Images[p.Name], Repository: p.Repository, Ground: ground}
	}
	return out, nil
}
