package openshift

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/transfer"
)

// firstResult is MCO's first rendering.
type firstResult struct {
	Pools map[string]firstPool `json:"pools"`
	// TrustBundle is the cluster's additional one, PEM: it takes part in the images' content addresses.
	TrustBundle []byte `json:"trustBundle,omitempty"`
	// MCO is how its static pod renders.
	MCO controller `json:"mco"`
}

// firstPool is one pool of it.
type firstPool struct {
	Config string `json:"config"`
	// Base is the release's OS image, Extensions the image with packages beside it: empty when the config asks for none.
	Base       string `json:"base"`
	Extensions string `json:"extensions,omitempty"`
}

// Bases are the images that builds begin with, each once.
func (r firstResult) Bases() []string {
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

// firstRendering waits until MCO has rendered every pool that is built here, and keeps a copy: the second rendering
// replaces it.
func (f *flow) firstRendering(ctx context.Context) (firstResult, error) {
	said := ""
	for {
		result, err := f.lookFirst()
		if err == nil {
			return result, nil
		}
		if text := err.Error(); text != said {
			f.waits("render-first", text)
			said = text
		}
		if err := f.setAside(); err != nil {
			return firstResult{}, err
		}
		select {
		case <-ctx.Done():
			return firstResult{}, fmt.Errorf("wait for MCO's first rendering: %w", errors.Join(ctx.Err(), err))
		case <-time.After(f.Interval):
		}
	}
}

// lookFirst reads the first rendering; an error says what is missing yet.
func (f *flow) lookFirst() (firstResult, error) {
	out := firstResult{Pools: map[string]firstPool{}}
	mco, err := readController(f.at(podManifest))
	if err != nil {
		return out, err
	}
	out.MCO = mco
	if err := os.MkdirAll(f.path("first"), 0o700); err != nil {
		return out, fmt.Errorf("keep the first rendering: %w", err)
	}
	var cc mcfgv1.ControllerConfigSpec
	set, _, err := readSet(filepath.Join(f.at(mcsDir), render.ControllerDir, render.ControllerFile))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return out, fmt.Errorf("read MCO's ControllerConfig: %w", err)
	case err == nil && len(set.ControllerConfigs) > 0:
		cc = set.ControllerConfigs[0].Object.Spec
	}
	out.TrustBundle = cc.AdditionalTrustBundle
	for _, pool := range f.pools() {
		config, _, raw, err := rendered(f.at(mcsDir), pool)
		if err != nil {
			return out, err
		}
		if err := renameio.WriteFile(f.path("first", pool+".yaml"), raw, 0o600); err != nil {
			return out, fmt.Errorf("keep the first rendering: %w", err)
		}
		out.Pools[pool] = firstPool{Config: config.Name, Base: config.Spec.OSImageURL,
			Extensions: build.ExtensionsImage(config, &cc, f.pool(pool).Containerfile)}
	}
	return out, nil
}

// rendered is a pool with its rendered config, also as it stands there, in a directory of MCO's layout.
func rendered(dir, pool string) (*mcfgv1.MachineConfig, *mcfgv1.MachineConfigPool, []byte, error) {
	pools, _, err := readSet(filepath.Join(dir, render.PoolsDir, pool+".yaml"))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("pool %s is not rendered: %w", pool, err)
	}
	if len(pools.Pools) != 1 || pools.Pools[0].Object.Status.Configuration.Name == "" {
		return nil, nil, nil, fmt.Errorf("pool %s is not rendered: its file names no config", pool)
	}
	name := pools.Pools[0].Object.Status.Configuration.Name
	set, raw, err := readSet(filepath.Join(dir, render.ConfigsDir, name+".yaml"))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("pool %s: read rendered config %s: %w", pool, name, err)
	}
	if len(set.MachineConfigs) != 1 {
		return nil, nil, nil, fmt.Errorf("pool %s: %s holds no MachineConfig", pool, name)
	}
	return set.MachineConfigs[0].Object, pools.Pools[0].Object, raw, nil
}

func readSet(file string) (*manifests.Set, []byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	set, err := manifests.Read(raw, filepath.Base(file), manifests.ReadOptions{})
	return set, raw, err
}

func (f *flow) firstConfig(pool string) (*mcfgv1.MachineConfig, error) {
	set, _, err := readSet(f.path("first", pool+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w: %w", pool, errNoFirst, err)
	}
	if len(set.MachineConfigs) != 1 {
		return nil, fmt.Errorf("pool %s: %w", pool, errNoFirst)
	}
	return set.MachineConfigs[0].Object, nil
}

func (f *flow) firstHolds(_ context.Context, r firstResult) error {
	for pool, p := range r.Pools {
		config, err := f.firstConfig(pool)
		if err != nil {
			return err
		}
		if config.Name != p.Config {
			return fmt.Errorf("pool %s: %s was rendered first, %s is kept", pool, p.Config, config.Name)
		}
	}
	return nil
}

// waitFirst waits for the first rendering when an earlier phase has failed.
func (f *flow) waitFirst(ctx context.Context) (err error) {
	f.first, err = f.firstRendering(ctx)
	return err
}

// setAside moves MachineOSConfigs without an image out of MCO's manifests: with one of them its controller refuses to
// render at all, and no node ever gets a config. dayone puts back those that it builds an image for.
func (f *flow) setAside() error {
	entries, err := os.ReadDir(f.at(mccDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at MCO's manifests: %w", err)
	}
	for _, e := range entries {
		file := filepath.Join(f.at(mccDir), e.Name())
		raw, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(raw), "MachineOSConfig") {
			continue // a directory, or a file that was there a moment ago
		}
		set, err := manifests.Read(raw, e.Name(), manifests.ReadOptions{})
		if err != nil || !slices.ContainsFunc(set.MachineOSConfigs, unbuilt) {
			continue // MCO says itself what it cannot read
		}
		if len(set.MachineOSConfigs) != 1 || objects(set) != 1 || len(set.Skipped) > 0 {
			return fmt.Errorf(
				"%s has a MachineOSConfig without an image beside other objects, which keeps MCO from rendering: take it out of that file", file)
		}
		if err := os.MkdirAll(f.path("set-aside"), 0o700); err != nil {
			return fmt.Errorf("set %s aside: %w", file, err)
		}
		if err := renameio.WriteFile(f.path("set-aside", e.Name()), raw, 0o600); err != nil {
			return fmt.Errorf("set %s aside: %w", file, err)
		}
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("set %s aside: %w", file, err)
		}
		text := fmt.Sprintf("%s: a MachineOSConfig without an image keeps MCO from rendering; it is set aside in %s", file,
			f.path("set-aside"))
		f.Log.Warn(text)
		f.records.note("mosc-set-aside", text)
	}
	return nil
}

func unbuilt(m manifests.Item[*mcfgv1.MachineOSConfig]) bool {
	return m.Object.Annotations[manifests.AnnotationPreBuiltImage] == "" &&
		m.Object.Annotations[manifests.AnnotationCurrentBuild] == ""
}

// objects counts what a file holds beside kinds that are not read.
func objects(s *manifests.Set) int {
	return len(s.MachineConfigs) + len(s.Pools) + len(s.MachineOSConfigs) + len(s.ControllerConfigs) +
		len(s.KubeletConfigs) +
		len(s.ContainerRuntimeConfigs) + len(s.FeatureGates) + len(s.ICSPs) + len(s.IDMSs) + len(s.ITMSs) + len(s.Images) +
		len(s.APIServers) + len(s.Secrets)
}

// baseResult are the release's OS and extensions images in the embedded registry.
type baseResult struct {
	// Embedded maps each image to its name there, by digest.
	Embedded map[string]string `json:"embedded"`
	Bytes    int64             `json:"bytes"`
}

// baseTag and a digest keep a copied image from being collected as an untagged manifest: a release has all its images
// in one repository.
const baseTag = "base-"

// copyAhead takes the base in while MCO renders. What fails here fails again, and is told, in the base's own phase.
func (f *flow) copyAhead(ctx context.Context) {
	defer close(f.early)
	if f.Base == nil {
		return
	}
	image, err := f.Base(ctx)
	if err == nil {
		_, _, err = f.copyBase(ctx, image)
	}
	if err != nil {
		f.Log.WithError(err).Info("base image is not copied ahead")
	}
}

func (f *flow) takeBase(ctx context.Context) (baseResult, error) {
	select {
	case <-f.early:
	case <-ctx.Done():
		return baseResult{}, ctx.Err()
	}
	out := baseResult{Embedded: map[string]string{}}
	for _, image := range f.first.Bases() {
		name, n, err := f.copyBase(ctx, image)
		if err != nil {
			return out, fmt.Errorf("copy %s, which the build begins with, into the embedded registry: %w", image, err)
		}
		out.Embedded[image], out.Bytes = name, out.Bytes+n
	}
	return out, nil
}

// copyBase copies from the first place that has the image: the mirrors of this host's registries.conf, then its own
// registry.
func (f *flow) copyBase(ctx context.Context, image string) (name string, n int64, err error) {
	places, err := mirrors(f.at("/etc/containers/registries.conf"), image)
	if err != nil {
		return "", 0, err
	}
	if err := os.MkdirAll(f.path("tmp"), 0o700); err != nil {
		return "", 0, fmt.Errorf("make scratch directory: %w", err)
	}
	repository, digest, _ := strings.Cut(image, "@")
	inside := f.inEmbedded(repository)
	_, hash, _ := strings.Cut(digest, ":")
	to := transfer.Endpoint{Reference: "docker://" + inside + ":" + baseTag + hash, CAFile: f.id.CAFile,
		AuthFile: f.id.PushAuth}
	var errs []error
	for _, place := range places {
		from := transfer.Endpoint{Reference: "docker://" + place, CAFile: f.BaseCAFile, AuthFile: f.at(hostPullSecret)}
		res, err := transfer.Copy(ctx, from, to, transfer.Options{Platform: f.Platform, TempDir: f.path("tmp"),
			CacheDir: f.path("cache"), Log: f.Log.WithField("phase", "base")})
		if err == nil {
			return inside + "@" + res.Digest.String(), res.Bytes, nil
		}
		errs = append(errs, err)
	}
	return "", 0, errors.Join(errs...)
}

func (f *flow) baseHolds(ctx context.Context, r baseResult) error {
	for _, name := range r.Embedded {
		if err := f.holds(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
