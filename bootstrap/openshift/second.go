package openshift

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/manifests"
)

const (
	// stagingDir takes MCO's second rendering until it is proved to name the images; beside mcsDir, so on the same file
	// system.
	stagingDir = "/etc/mcs/dayone"
	// renderLimit bounds one run of MCO's controller: it takes seconds, and a minute where it reads an image stream.
	renderLimit = 5 * time.Minute
	// renderAttempts bounds the runs in one process.
	renderAttempts = 3
)

// renderSecond puts the inputs among MCO's manifests, lets its controller render aside, proves that the result names
// the images, and only then publishes it to the config server.
func renderSecond(ctx context.Context, f flow, y layering, mco controller) (day1.Rendered, error) {
	if err := setAside(f); err != nil {
		return day1.Rendered{}, err
	}
	auth, err := y.pullAuth()
	if err != nil {
		return day1.Rendered{}, err
	}
	if err := mergePullSecret(f.Options, auth); err != nil {
		return day1.Rendered{}, err
	}
	out, err := renderWith(ctx, f, y, mco, false)
	if errors.Is(err, errOtherImage) {
		f.Log.WithError(err).
			Warn("this MCO does not read images from MachineOSConfigs at install time, naming them in MachineConfigs")
		out, err = renderWith(ctx, f, y, mco, true)
	}
	if err != nil {
		return day1.Rendered{}, err
	}
	return out, publish(f.at(stagingDir), f.at(mcsDir), out.Configs)
}

func renderWith(ctx context.Context, f flow, y layering, mco controller, osImageURL bool) (day1.Rendered, error) {
	objects, err := y.objects(osImageURL)
	if err != nil {
		return day1.Rendered{}, err
	}
	for name, object := range objects {
		raw, err := manifests.Marshal(object)
		if err != nil {
			return day1.Rendered{}, err
		}
		if err := renameio.WriteFile(filepath.Join(f.at(mccDir), name), raw, 0o644); err != nil {
			return day1.Rendered{}, fmt.Errorf("write MCO's manifest: %w", err)
		}
	}
	if osImageURL {
		if err := removeInputs(f.Options, y.pools, moscFile); err != nil {
			return day1.Rendered{}, err
		}
	}
	for attempt := 1; ; attempt++ {
		err := renderOnce(ctx, f, mco)
		if err == nil {
			break
		}
		if attempt == renderAttempts || ctx.Err() != nil {
			return day1.Rendered{}, err
		}
		f.Log.WithError(err).WithField("attempt", attempt).Warn("second rendering failed, trying again")
		select {
		case <-ctx.Done():
		case <-time.After(f.Interval):
		}
	}
	return y.proved(f.at(stagingDir), osImageURL)
}

func renderOnce(ctx context.Context, f flow, mco controller) error {
	ctx, cancel := context.WithTimeout(ctx, renderLimit)
	defer cancel()
	dest := f.at(stagingDir)
	if err := errors.Join(os.RemoveAll(dest), os.MkdirAll(dest, 0o755)); err != nil {
		return fmt.Errorf("make directory for the second rendering: %w", err)
	}
	return f.Renderer.Render(ctx, Rendering{Image: mco.Image, Argv: withDest(mco.Argv, dest), Source: f.at(mccDir),
		Dest: dest})
}

var errOtherImage = errors.New("the second rendering does not name the image that was built")

// proved reads a rendering and refuses one that would boot nodes into anything else.
func (y layering) proved(dir string, osImageURL bool) (day1.Rendered, error) {
	out := day1.Rendered{Configs: map[string]string{}, Images: map[string]string{}, OSImageURL: osImageURL}
	for _, p := range y.pools {
		config, _, _, err := rendered(dir, p.Name)
		if err != nil {
			return out, err
		}
		want := y.images[p.Name]
		if got := config.Spec.OSImageURL; got != want {
			return out, fmt.Errorf("pool %s: %w: %s instead of %s; remove osImageURL from the pool's MachineConfigs", p.Name,
				errOtherImage, got, want)
		}
		out.Configs[p.Name], out.Images[p.Name] = config.Name, want
	}
	return out, nil
}

// shown checks that the config server still has a rendering.
func shown(f flow, r day1.Rendered) error {
	for pool, name := range r.Configs {
		config, _, _, err := rendered(f.at(mcsDir), pool)
		if err != nil {
			return err
		}
		if config.Name != name {
			return fmt.Errorf("pool %s: the config server has %s, not %s", pool, config.Name, name)
		}
	}
	return nil
}

// removeInputs removes files of all pools from MCO's manifests.
func removeInputs(o Options, pools []preflight.Pool, names ...func(pool string) string) error {
	for _, p := range pools {
		for _, name := range names {
			err := os.Remove(filepath.Join(o.at(mccDir), name(p.Name)))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove MCO's manifest: %w", err)
			}
		}
	}
	return nil
}
