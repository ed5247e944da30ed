package openshift

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/places"
	"dayone.dev/dayone/registry/transfer"
)

// firstRendering is MCO's first rendering.
type firstRendering struct {
	Pools map[string]firstPool `json:"pools"`
	// TrustBundle is the cluster's additional one, PEM: it takes part in the images' content addresses.
	TrustBundle []byte `json:"trustBundle,omitempty"`
	// MCO is how its static pod renders.
	MCO controller `json:"mco"`
	// proxy is the nodes', with what the installer adds to noProxy; nil: they have none.
	proxy *configv1.ProxyStatus
}

// firstPool is one pool of it.
type firstPool struct {
	Config string `json:"config"`
	// Base is the release's OS image, Extensions the image with packages beside it: empty when the config asks for none.
	Base       string `json:"base"`
	Extensions string `json:"extensions,omitempty"`
}

// Bases are the images that builds begin with, each once.
func (r firstRendering) Bases() []string {
	var out []string
	for _, p := range r.Pools {
		out = append(out, p.Base)
		if p.Extensions != "" {
			out = append(out, p.Extensions)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sources are what builds begin with: the configs that are kept, and the images in the embedded registry.
func (r firstRendering) sources(o Options, embedded map[string]string) (day1.Sources, error) {
	out := day1.Sources{Pools: map[string]day1.Source{}, Copies: embedded}
	for name, p := range r.Pools {
		config, err := keptConfig(o, name)
		if err != nil {
			return out, err
		}
		if embedded[p.Base] == "" {
			return out, fmt.Errorf("prepare build of pool %s: %s is not in the embedded registry", name, p.Base)
		}
		out.Pools[name] = day1.Source{Config: config, Base: p.Base,
			Controller: &mcfgv1.ControllerConfigSpec{AdditionalTrustBundle: r.TrustBundle,
				BaseOSExtensionsContainerImage: p.Extensions}}
	}
	return out, nil
}

// kept checks that the configs that are kept are those of this rendering.
func (r firstRendering) kept(o Options) error {
	for pool, p := range r.Pools {
		config, err := keptConfig(o, pool)
		if err != nil {
			return err
		}
		if config.Name != p.Config {
			return fmt.Errorf("pool %s: %s was rendered first, %s is kept", pool, p.Config, config.Name)
		}
	}
	return nil
}

// readable checks that MCO will be able to read the configs once their pools have images of their own. Only now its own
// files are known, which users' MachineConfigs may change.
func (r firstRendering) readable(o Options) error {
	var errs []error
	for _, pool := range slices.Sorted(maps.Keys(r.Pools)) {
		config, err := keptConfig(o, pool)
		if err == nil {
			err = render.CheckRendered(pool, config)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// direct checks that nodes will not ask the registry at HOST:PORT through their proxy. dayone prepare checks the host
// that bootstrapRegistry.host names; the address of one that it does not name is known only here.
func (r firstRendering) direct(registry string) error {
	host, _, err := net.SplitHostPort(registry)
	if err != nil || r.proxy == nil {
		return err
	}
	proxy := installconfig.Proxy{HTTP: r.proxy.HTTPProxy, HTTPS: r.proxy.HTTPSProxy, No: r.proxy.NoProxy}
	if proxy.Passes(host) {
		return nil
	}
	return fmt.Errorf("nodes would ask the registry on this host, %s, through their proxy: install again with %s in "+
		"proxy.noProxy of %s, or with its network in networking.machineNetwork", host, host, installconfig.FileName)
}

// firstDir keeps the first configs below the state directory: the second rendering replaces them at the config server.
const firstDir = "first"

func keptConfig(o Options, pool string) (*mcfgv1.MachineConfig, error) {
	set, _, err := readSet(o.Path(firstDir, pool+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("pool %s has no first rendering: %w", pool, err)
	}
	if len(set.MachineConfigs) != 1 {
		return nil, fmt.Errorf("pool %s has no first rendering", pool)
	}
	return set.MachineConfigs[0].Object, nil
}

// waitFirst waits until MCO has rendered every pool that is built here.
func waitFirst(ctx context.Context, f flow) (firstRendering, error) {
	last := ""
	for {
		first, err := readFirst(f.Options, f.pools())
		if err == nil {
			return first, errors.Join(first.readable(f.Options), first.direct(f.host.Registry))
		}
		if text := err.Error(); text != last {
			f.waits(phaseRenderFirst, text)
			last = text
		}
		if err := setAside(f); err != nil {
			return first, err
		}
		select {
		case <-ctx.Done():
			return first, fmt.Errorf("wait for MCO's first rendering: %w", errors.Join(ctx.Err(), err))
		case <-time.After(f.Interval):
		}
	}
}

// readFirst reads the first rendering and keeps its configs; an error says what is missing yet.
func readFirst(o Options, pools []preflight.Pool) (firstRendering, error) {
	out := firstRendering{Pools: map[string]firstPool{}}
	mco, err := readController(o.at(podManifest))
	if err != nil {
		return out, err
	}
	out.MCO = mco
	if err := os.MkdirAll(o.Path(firstDir), 0o700); err != nil {
		return out, fmt.Errorf("keep the first rendering: %w", err)
	}
	var cc mcfgv1.ControllerConfigSpec
	set, _, err := readSet(filepath.Join(o.at(mcsDir), render.ControllerDir, render.ControllerFile))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return out, fmt.Errorf("read MCO's ControllerConfig: %w", err)
	case err == nil && len(set.ControllerConfigs) > 0:
		cc = set.ControllerConfigs[0].Object.Spec
	}
	out.TrustBundle, out.proxy = cc.AdditionalTrustBundle, cc.Proxy
	for _, pool := range pools {
		config, _, raw, err := rendered(o.at(mcsDir), pool.Name)
		if err != nil {
			return out, err
		}
		if err := renameio.WriteFile(o.Path(firstDir, pool.Name+".yaml"), raw, 0o600); err != nil {
			return out, fmt.Errorf("keep the first rendering: %w", err)
		}
		out.Pools[pool.Name] = firstPool{Config: config.Name, Base: config.Spec.OSImageURL,
			Extensions: build.ExtensionsImage(config, &cc, pool.Containerfile)}
	}
	return out, nil
}

// importedBases are the release's OS and extensions images in the embedded registry.
type importedBases struct {
	// Embedded maps each image to its name there, by digest.
	Embedded map[string]string `json:"embedded"`
	Bytes    int64             `json:"bytes"`
}

// baseTag and a digest keep an imported image from being collected as an untagged manifest: a release has all its
// images in one repository.
const baseTag = phaseBase + "-"

// prefetch imports the base and makes the storages of the builds ready for it while MCO renders, and closes the channel
// when it has ended. What fails here fails again, and is reported, in the base's own phase or in the build's.
func prefetch(ctx context.Context, f flow, r *day1.Registry) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if f.Base == nil {
			return
		}
		image, err := f.Base(ctx)
		var base day1.Imported
		if err == nil {
			base, err = importBase(ctx, f, r, image)
		}
		switch {
		case ctx.Err() != nil: // the phases before the builds are over
		case err == nil:
			day1.TakeIn(ctx, f.host, r, base.Reference)
		default:
			f.Log.WithError(err).Info("base image is not prefetched")
		}
	}()
	return ended
}

func importBases(ctx context.Context, f flow, r *day1.Registry, images []string) (importedBases, error) {
	out := importedBases{Embedded: map[string]string{}}
	for _, image := range images {
		got, err := importBase(ctx, f, r, image)
		if err != nil {
			return out, fmt.Errorf("copy %s, which the build begins with, into the embedded registry: %w", image, err)
		}
		out.Embedded[image], out.Bytes = got.Reference, out.Bytes+got.Bytes
	}
	return out, nil
}

// hostSources is how programs of the installer's bootstrap node read images: with the cluster's pull secret, at the
// mirrors of install-config.yaml.
func hostSources(o Options) (s preflight.Sources, err error) {
	read := func(file string) []byte {
		raw, failed := os.ReadFile(o.at(file))
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("read how this host reads images: %w", failed))
		}
		return raw
	}
	s.Auth, s.RegistriesConf = read(hostPullSecret), read(hostRegistries)
	if !places.InConfig(s.RegistriesConf) {
		s.RegistriesConf = nil
	}
	return s, err
}

// importBase imports from the first place that has the image: the mirrors of this host's registries.conf, then its own
// registry.
func importBase(ctx context.Context, f flow, r *day1.Registry, image string) (day1.Imported, error) {
	places, err := basePlaces(f, image)
	if err != nil {
		return day1.Imported{}, err
	}
	repository, tag := baseName(image)
	var errs []error
	for _, from := range places {
		got, err := r.Import(ctx, from, repository, tag)
		if err == nil {
			return got, nil
		}
		errs = append(errs, err)
	}
	return day1.Imported{}, errors.Join(errs...)
}

// copySignatures copies the signatures of an image that was imported, from each place that has some.
func copySignatures(ctx context.Context, f flow, r *day1.Registry, image string) error {
	places, err := basePlaces(f, image)
	_, tag := baseName(image)
	errs := []error{err}
	for _, from := range places {
		errs = append(errs, r.CopySignatures(ctx, from, image, tag))
	}
	return errors.Join(errs...)
}

// baseName is the own repository of an image that is imported, and its tag in the embedded registry.
func baseName(image string) (repository, tag string) {
	repository, digest, _ := strings.Cut(image, "@")
	_, hash, _ := strings.Cut(digest, ":")
	return repository, baseTag + hash
}

// basePlaces are where an image may be read: the mirrors of this host's registries.conf, then its own registry.
func basePlaces(f flow, image string) (out []transfer.Endpoint, err error) {
	all, err := places.Of(f.at(hostRegistries), image)
	for _, place := range all {
		out = append(out, transfer.Endpoint{Reference: "docker://" + place, CAFile: f.BaseCAFile,
			AuthFile: f.at(hostPullSecret)})
	}
	return out, err
}
