package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/bootstrap/progress"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/transfer"
)

// trial is a build on any machine.
type trial struct {
	dir, platform, pool, stateDir string
	base                          transfer.Endpoint
	push, check                   bool
	pushAuth, pushCA              string
	isolation                     string
	options                       build.Options

	log  *logrus.Entry
	view *progress.View
}

// outcome is what is printed with -o json.
type outcome struct {
	*build.Result
	// Pushed is the reference in the final registry, empty without --push.
	Pushed string `json:"pushed,omitempty"`
	// Reproducible and Differences are set with --check-reproducible.
	Reproducible *bool              `json:"reproducible,omitempty"`
	Differences  []build.Difference `json:"differences,omitempty"`
}

// shutdownTimeout bounds the wait for the registry's last requests.
const shutdownTimeout = 5 * time.Second

func (t *trial) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if err := t.validate(); err != nil {
		return err
	}
	t.log, t.view = cli.Log(cmd), progress.New(cmd.ErrOrStderr())
	defer t.view.Close()
	t.log.Logger.SetOutput(t.view)
	in, err := preflight.Load(t.dir, t.platform)
	if err != nil {
		return err
	}
	cli.WriteFindings(t.view, in.Warnings)
	pool, err := t.choose(in)
	if err != nil {
		return err
	}
	t.pool = pool.Name
	shop, err := t.open()
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := shop.server.Shutdown(ctx); err != nil {
			t.log.WithError(err).Warn("registry was not stopped in order")
		}
	}()
	request, err := t.request(ctx, in, pool, shop)
	if err != nil {
		return err
	}
	out, err := t.build(ctx, request)
	if err != nil {
		return err
	}
	if t.push {
		if err := t.copyOut(ctx, in, pool, shop, out); err != nil {
			return err
		}
	}
	return t.print(cmd, out)
}

// validate refuses values of flags before anything is read or fetched.
func (t *trial) validate() error {
	switch t.options.Engine {
	case build.EngineAuto, build.EngineAppend, build.EngineBuildah:
	default:
		return cli.Usagef("there is no engine %q; use append or buildah, or leave --engine out", t.options.Engine)
	}
	switch t.isolation {
	case buildahengine.IsolationAuto, buildahengine.IsolationChroot, buildahengine.IsolationOCI:
	default:
		return cli.Usagef("there is no isolation %q; use auto, chroot or oci", t.isolation)
	}
	if t.options.Timeout <= 0 {
		return cli.Usagef("--timeout must be above 0")
	}
	return nil
}

func (t *trial) choose(in *preflight.Input) (preflight.Pool, error) {
	var names []string
	for _, p := range in.Pools {
		names = append(names, p.Name)
		if p.Name == t.pool || t.pool == "" && (len(in.Pools) == 1 || p.Name == "master") {
			return p, nil
		}
	}
	return preflight.Pool{}, cli.Usagef("there is no layered pool %q in %s; there are: %s", t.pool, t.dir,
		strings.Join(names, ", "))
}

// workshop is the registry that a trial build uses.
type workshop struct {
	server         *registry.Server
	addr           string
	push           registry.User
	caFile, pushAs string
}

// open starts a registry on loopback, on the same files each time and with a new password.
func (t *trial) open() (*workshop, error) {
	if err := os.MkdirAll(t.stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory for builds: %w", err)
	}
	push, err := registry.NewUser("dayone-build", registry.RolePush)
	if err != nil {
		return nil, err
	}
	o := registry.Options{Root: filepath.Join(t.stateDir, "registry"), Listen: "127.0.0.1:0", Users: []registry.User{push},
		Log: t.log}
	server, err := registry.New(o)
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	w := &workshop{server: server, addr: server.Addr(), push: push, caFile: o.CAFile(),
		pushAs: filepath.Join(t.stateDir, "push-auth.json")}
	if err := push.WriteAuthFile(w.pushAs, w.addr); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *workshop) endpoint(reference string) transfer.Endpoint {
	return transfer.Endpoint{Reference: "docker://" + reference, CAFile: w.caFile, Username: w.push.Name,
		Password: w.push.Password}
}

// request renders the config and takes the base in, as the bootstrap host's phases do.
func (t *trial) request(ctx context.Context, in *preflight.Input, pool preflight.Pool, w *workshop) (build.Request,
	error) {
	from, name := t.base, in.Sidecar.Config.BaseImage
	if name == "" { // the openshift flow: the release names it on the bootstrap node
		name = preflight.UnknownBase
		if from.Reference == "" {
			return build.Request{},
				cli.Usagef("the release names the OS image of the openshift flow: give it with --base")
		}
	}
	if from.Reference == "" {
		from.Reference = name
	}
	if from.AuthFile == "" && pool.BasePull != nil && !strings.Contains(from.Reference, "oci:") &&
		!strings.Contains(from.Reference, "docker-archive:") {
		from.AuthFile = filepath.Join(t.stateDir, "base-auth.json")
		if err := os.WriteFile(from.AuthFile, pool.BasePull, 0o600); err != nil {
			return build.Request{}, fmt.Errorf("write base image credentials: %w", err)
		}
	}
	final := installconfig.Repository(name)
	inside := w.addr + "/" + installconfig.RepositoryPath(final)
	copied, err := transfer.Copy(ctx, from, w.endpoint(inside+":base"), transfer.Options{Platform: t.platform,
		CacheDir: filepath.Join(t.stateDir, "cache"), Log: t.log})
	if err != nil {
		return build.Request{}, fmt.Errorf("take in base image %s: %w", from.Reference, err)
	}
	config, err := t.render(in, pool.Name, final+"@"+copied.Digest.String())
	if err != nil {
		return build.Request{}, err
	}
	own := final + "@" + copied.Digest.String()
	copies := map[string]string{own: inside + "@" + copied.Digest.String()}
	if image := build.ExtensionsImage(config, in.ControllerConfig(), pool.Containerfile); image != "" {
		if copies[image], err = t.takeExtensions(ctx, from, image, w); err != nil {
			return build.Request{}, err
		}
	}
	return build.NewRequest(build.Spec{
		Pool: pool.Name, Config: config, Controller: in.ControllerConfig(), Base: own, Copies: copies,
		Containerfile: pool.Containerfile, ContainerfileName: pool.MachineOSConfig.Origin.File, Platform: t.platform,
		Target:   w.addr + "/" + installconfig.RepositoryPath(pool.Repository),
		Registry: build.Access{CAFile: w.caFile, AuthFile: w.pushAs}, Options: t.options,
	})
}

// takeExtensions copies the image with extension packages, with the base image's credentials.
func (t *trial) takeExtensions(ctx context.Context, from transfer.Endpoint, image string, w *workshop) (string, error) {
	from.Reference = "docker://" + image
	inside := w.addr + "/" + installconfig.RepositoryPath(installconfig.Repository(image))
	copied, err := transfer.Copy(ctx, from, w.endpoint(inside+":extensions"), transfer.Options{Platform: t.platform,
		CacheDir: filepath.Join(t.stateDir, "cache"), Log: t.log})
	if err != nil {
		return "", fmt.Errorf("take in extensions image %s: %w", image, err)
	}
	return inside + "@" + copied.Digest.String(), nil
}

func (t *trial) render(in *preflight.Input, pool, base string) (*mcfgv1.MachineConfig, error) {
	result, err := render.Render(in.Inputs(base, render.VersionsOf(version)),
		render.Options{Versions: render.VersionsOf(version), Unbuilt: render.IgnoreUnbuilt, Strict: true})
	if err != nil {
		return nil, err
	}
	config := result.Config(pool)
	if config == nil {
		return nil, fmt.Errorf("render pool %s: the pool has no rendered config", pool)
	}
	return config, nil
}

func (t *trial) builder(dir string) (*build.Builder, error) {
	engine, err := buildahengine.New(buildahengine.Options{Root: filepath.Join(t.stateDir, dir), Isolation: t.isolation,
		Log: t.log})
	if err != nil {
		return nil, err
	}
	return build.NewBuilder(build.BuilderOptions{Engine: engine, StateDir: filepath.Join(t.stateDir, "state"), Log: t.log,
		Progress: func(e build.Event) { t.view.Build(t.pool, e) }}), nil
}

// build builds once, or with --check-reproducible twice on storage of its own.
func (t *trial) build(ctx context.Context, request build.Request) (*outcome, error) {
	builder, err := t.builder("engine")
	if err != nil {
		return nil, err
	}
	if t.check {
		request.Options.Rebuild, request.Options.NoCache = true, true
	}
	result, err := builder.Build(ctx, request)
	if err != nil {
		return nil, err
	}
	out := &outcome{Result: result}
	if !t.check {
		return out, nil
	}
	second, err := t.builder("engine-check")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := os.RemoveAll(filepath.Join(t.stateDir, "engine-check")); err != nil {
			t.log.WithError(err).Warn("storage of the second build was left behind")
		}
	}()
	again := request
	again.Target += "-again"
	other, err := second.Build(ctx, again)
	if err != nil {
		return nil, fmt.Errorf("build a second time: %w", err)
	}
	same := other.Digest == result.Digest
	out.Reproducible = &same
	out.Differences, err = build.Compare(ctx, request.Registry, t.platform, result.Reference, other.Reference)
	return out, err
}

// copyOut pushes the image to its final repository, under the tag of the push spec.
func (t *trial) copyOut(ctx context.Context, in *preflight.Input, pool preflight.Pool, w *workshop,
	out *outcome) error {
	auth := t.pushAuth
	if auth == "" {
		secret := pool.MachineOSConfig.Object.Spec.RenderedImagePushSecret.Name
		raw := secretContent(in.Set, secret)
		auth = filepath.Join(t.stateDir, "final-auth.json")
		if err := os.WriteFile(auth, raw, 0o600); err != nil {
			return fmt.Errorf("write push credentials: %w", err)
		}
	}
	spec := string(pool.MachineOSConfig.Object.Spec.RenderedImagePushSpec)
	_, err := transfer.Copy(ctx, w.endpoint(out.Reference), transfer.Endpoint{Reference: "docker://" + spec,
		CAFile: t.pushCA, AuthFile: auth}, transfer.Options{Log: t.log})
	if err != nil {
		return fmt.Errorf("push image to %s: %w", spec, err)
	}
	out.Pushed = pool.Repository + "@" + out.Digest
	return nil
}

func secretContent(set *manifests.Set, name string) []byte {
	for _, s := range set.Secrets {
		if s.Object.Name == name {
			if raw, ok := s.Object.Data[".dockerconfigjson"]; ok {
				return raw
			}
			return []byte(s.Object.StringData[".dockerconfigjson"])
		}
	}
	return nil
}

func (t *trial) print(cmd *cobra.Command, out *outcome) error {
	if cli.Output(cmd) == "json" {
		return cli.Print(cmd, out, nil)
	}
	w := cmd.OutOrStdout()
	cli.WriteFindings(t.view, out.Warnings)
	for _, p := range out.Placements {
		fmt.Fprintf(t.view, "not in the image: %s: %s (%s)\n", p.Path, p.Where, p.Reason)
	}
	if out.Reused {
		fmt.Fprintf(w, "%s\nnothing was built: %s\n", out.Digest, out.Reason)
	} else {
		fmt.Fprintf(w, "%s\n%s engine (%s), %d layers, %d MiB, %.2fs\n", out.Digest, out.Engine, out.Reason, len(out.Layers),
			out.Size>>20, out.Duration.Seconds())
	}
	if out.Isolation != "" {
		fmt.Fprintf(w, "RUN: %s (%s)\n", out.Isolation, out.IsolationReason)
	}
	if out.Pushed != "" {
		fmt.Fprintf(w, "pushed: %s\n", out.Pushed)
	}
	if out.Reproducible == nil {
		return nil
	}
	if *out.Reproducible {
		fmt.Fprintln(w, "reproducible: a second build from nothing has the same digest")
		return nil
	}
	for _, d := range out.Differences {
		fmt.Fprintf(w, "differs: layer %d %s: %s (%s)\n", d.Layer, d.Path, d.What, d.CreatedBy)
	}
	return fmt.Errorf("check reproducibility: two builds gave different images")
}
