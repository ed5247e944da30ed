package trialbuild

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/transfer"
)

// Options of Run. StateDir and NewEngine are needed.
type Options struct {
	// StateDir keeps images, layers and logs between builds.
	StateDir string
	// Platform is GOOS/GOARCH of the nodes.
	Platform string
	// Base is where the base image comes from; an empty Reference means its own name, an empty AuthFile the base image
	// pull Secret. The openshift flow, where the release names the image, needs a Reference.
	Base transfer.Endpoint
	// Push copies the image to the repository that the MachineOSConfig names.
	Push bool
	// PushCAFile and PushAuthFile reach that repository; an empty PushAuthFile means the push Secret.
	PushCAFile, PushAuthFile string
	// CheckReproducible builds twice from nothing and compares the images.
	CheckReproducible bool
	// Build changes how the request is carried out.
	Build build.Options
	// Versions are the renderer's.
	Versions render.Versions
	// NewEngine opens a container engine with its storage in a directory.
	NewEngine func(dir string) (build.ContainerEngine, error)
	// Progress takes events of the builds; default drops them.
	Progress func(build.Event)
	// Log takes messages for people; default drops them.
	Log *logrus.Entry
}

// Outcome is the image and what happened to it.
type Outcome struct {
	*build.Result
	// Pushed is the reference in the final registry, empty without Options.Push.
	Pushed string `json:"pushed,omitempty"`
	// Reproducible and Differences are set with Options.CheckReproducible.
	Reproducible *bool              `json:"reproducible,omitempty"`
	Differences  []build.Difference `json:"differences,omitempty"`
}

// shutdownTimeout bounds the wait for the registry's last requests.
const shutdownTimeout = 5 * time.Second

// Run builds the image of a pool of the install directory.
func Run(ctx context.Context, in *preflight.Input, pool preflight.Pool, o Options) (*Outcome, error) {
	o.Log = cmp.Or(o.Log, report.NoLog())
	local, err := openRegistry(o.StateDir, o.Log)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := local.server.Shutdown(ctx); err != nil {
			o.Log.WithError(err).Warn("registry was not stopped in order")
		}
	}()
	local.signatures = preflight.JudgesBases(in)
	request, err := newRequest(ctx, in, pool, local, o)
	if err != nil {
		return nil, err
	}
	var out *Outcome
	if o.CheckReproducible {
		out, err = buildTwice(ctx, request, o)
	} else {
		out, err = buildOnce(ctx, request, "engine", o)
	}
	if err != nil || !o.Push {
		return out, err
	}
	out.Pushed = pool.Repository + "@" + out.Digest
	return out, push(ctx, pool, local.endpoint(out.Reference), o)
}

// localRegistry is the registry that a trial build uses.
type localRegistry struct {
	server   *registry.Server
	address  string
	account  registry.User
	caFile   string
	authFile string
	// signatures are copied with images that builds begin with.
	signatures bool
}

// openRegistry starts a registry on loopback, on the same files each time and with a new password.
func openRegistry(stateDir string, log *logrus.Entry) (*localRegistry, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory for builds: %w", err)
	}
	account, err := registry.NewUser("dayone-build", registry.RolePush)
	if err != nil {
		return nil, err
	}
	o := registry.Options{Root: filepath.Join(stateDir, "registry"), Listen: "127.0.0.1:0",
		Users: []registry.User{account}, Log: log}
	server, err := registry.New(o)
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	r := &localRegistry{server: server, address: server.Addr(), account: account, caFile: o.CAFile(),
		authFile: filepath.Join(stateDir, "push-auth.json")}
	return r, account.WriteAuthFile(r.authFile, r.address)
}

func (r *localRegistry) endpoint(reference string) transfer.Endpoint {
	return transfer.Endpoint{Reference: "docker://" + reference, CAFile: r.caFile, Username: r.account.Name,
		Password: r.account.Password}
}

// name is where this registry keeps a repository.
func (r *localRegistry) name(repository string) string {
	return r.address + "/" + installconfig.RepositoryPath(repository)
}

// imported copies an image into the registry and gives its digest.
func (r *localRegistry) imported(ctx context.Context, from transfer.Endpoint, repository, tag string,
	o Options) (string, error) {
	copyImage := transfer.Copy
	if r.signatures {
		copyImage = transfer.CopySigned
	}
	copied, err := copyImage(ctx, from, r.endpoint(r.name(repository)+":"+tag), transfer.Options{
		Platform: o.Platform, CacheDir: filepath.Join(o.StateDir, "cache"), Log: o.Log})
	if err != nil {
		return "", fmt.Errorf("import %s image %s: %w", tag, from.Reference, err)
	}
	return copied.Digest.String(), nil
}

// baseEndpoint reaches the base image, at its own name unless the options say where else it is.
func baseEndpoint(o Options, name string, sources preflight.Sources) (transfer.Endpoint, error) {
	from := o.Base
	from.Reference = cmp.Or(from.Reference, name)
	if strings.HasPrefix(from.Reference, "oci:") || strings.HasPrefix(from.Reference, "docker-archive:") {
		return from, nil
	}
	access, _, err := sources.Access(build.Access{CAFile: from.CAFile, AuthFile: from.AuthFile}, o.StateDir, "base")
	from.CAFile, from.AuthFile, from.RegistriesConf = access.CAFile, access.AuthFile, sources.RegistriesConf
	return from, err
}

// newRequest imports the images and renders the config, as the bootstrap host does.
func newRequest(ctx context.Context, in *preflight.Input, pool preflight.Pool, local *localRegistry,
	o Options) (build.Request, error) {
	name := in.Sidecar.Config.BaseImage
	if name == "" { // the openshift flow: the release names it on the bootstrap node
		name = preflight.UnknownBase
	}
	sources, err := in.Sources(pool)
	if err != nil {
		return build.Request{}, err
	}
	from, err := baseEndpoint(o, name, sources)
	if err != nil {
		return build.Request{}, err
	}
	repository := installconfig.Repository(name)
	digest, err := local.imported(ctx, from, repository, "base", o)
	if err != nil {
		return build.Request{}, err
	}
	base := repository + "@" + digest
	config, err := renderPool(in, pool.Name, base, o.Versions)
	if err != nil {
		return build.Request{}, err
	}
	copies := map[string]string{base: local.name(repository) + "@" + digest}
	if image := build.ExtensionsImage(config, in.ControllerConfig(), pool.Containerfile); image != "" {
		from.Reference = "docker://" + image // with the base image's credentials
		repository := installconfig.Repository(image)
		digest, err := local.imported(ctx, from, repository, "extensions", o)
		if err != nil {
			return build.Request{}, err
		}
		copies[image] = local.name(repository) + "@" + digest
	}
	access, mirrors, err := sources.Access(build.Access{CAFile: local.caFile, AuthFile: local.authFile}, o.StateDir,
		"build-"+pool.Name)
	if err != nil {
		return build.Request{}, err
	}
	o.Build.RegistriesConf = cmp.Or(o.Build.RegistriesConf, mirrors)
	if policy := in.Signing.BasePolicy; name != preflight.UnknownBase {
		o.Build.BasePolicy = policy
	} else if policy != nil {
		o.Log.Warn("baseImagePolicy is not asked here: the release names the base image on the bootstrap node")
	}
	return build.NewRequest(build.Spec{
		Pool: pool.Name, Config: config, Controller: in.ControllerConfig(), Base: base, Copies: copies,
		Containerfile: pool.Containerfile, ContainerfileName: pool.MachineOSConfig.Origin.File, Platform: o.Platform,
		Target:   local.name(pool.Repository),
		Registry: access, Options: o.Build,
	})
}

func renderPool(in *preflight.Input, pool, base string, v render.Versions) (*mcfgv1.MachineConfig, error) {
	result, err := render.Render(in.Inputs(base, v), in.Options(v))
	if err != nil {
		return nil, err
	}
	config := result.Config(pool)
	if config == nil {
		return nil, fmt.Errorf("render pool %s: the pool has no rendered config", pool)
	}
	return config, nil
}

// buildOnce builds with an engine whose storage is in a directory of the state directory.
func buildOnce(ctx context.Context, request build.Request, engineDir string, o Options) (*Outcome, error) {
	engine, err := o.NewEngine(filepath.Join(o.StateDir, engineDir))
	if err != nil {
		return nil, err
	}
	builder := build.NewBuilder(build.BuilderOptions{Engine: engine, StateDir: filepath.Join(o.StateDir, "state"),
		Log: o.Log, Progress: o.Progress})
	result, err := builder.Build(ctx, request)
	if err != nil {
		return nil, err
	}
	return &Outcome{Result: result}, nil
}

// buildTwice builds from nothing on two storages and compares the images.
func buildTwice(ctx context.Context, request build.Request, o Options) (*Outcome, error) {
	request.Options.Rebuild, request.Options.NoCache = true, true
	out, err := buildOnce(ctx, request, "engine", o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := os.RemoveAll(filepath.Join(o.StateDir, "engine-check")); err != nil {
			o.Log.WithError(err).Warn("cannot remove the storage of the second build")
		}
	}()
	again := request
	again.Target += "-again"
	second, err := buildOnce(ctx, again, "engine-check", o)
	if err != nil {
		return nil, fmt.Errorf("build a second time: %w", err)
	}
	same := second.Digest == out.Digest
	out.Reproducible = &same
	out.Differences, err = build.Compare(ctx, request.Registry, o.Platform, out.Reference, second.Reference)
	return out, err
}

// push copies the image to its final repository, under the tag of the push spec.
func push(ctx context.Context, pool preflight.Pool, from transfer.Endpoint, o Options) error {
	auth, spec := o.PushAuthFile, pool.MachineOSConfig.Object.Spec
	if auth == "" {
		var err error
		if auth, err = credentials.File(o.StateDir, "final-auth.json", pool.PushAuth); err != nil {
			return err
		}
	}
	to := transfer.Endpoint{Reference: "docker://" + string(spec.RenderedImagePushSpec), CAFile: o.PushCAFile,
		AuthFile: auth}
	if _, err := transfer.Copy(ctx, from, to, transfer.Options{Log: o.Log}); err != nil {
		return fmt.Errorf("push image to %s: %w", spec.RenderedImagePushSpec, err)
	}
	return nil
}
