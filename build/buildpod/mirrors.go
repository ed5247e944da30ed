package buildpod

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/registry/places"
)

// registriesPath is where nodes have the cluster's mirrors (ImageDigestMirrorSet and its kin).
const registriesPath = "/etc/containers/registries.conf"

// mirrored lets a build read its images where nodes of the pool do: a pod has no registries.conf of the node's. conf is
// where the rendered config's file goes. An image that no place has keeps its own name, with which the build fails.
func mirrored(ctx context.Context, r build.Request, conf string, log *logrus.Entry) (build.Request, error) {
	raw := fileOf(r.Config, registriesPath)
	if !places.InConfig(raw) {
		return r, nil
	}
	if err := os.WriteFile(conf, raw, 0o600); err != nil {
		return r, fmt.Errorf("write %s: %w", filepath.Base(conf), err)
	}
	r.Options.RegistriesConf = conf
	client, err := appendengine.NewClient(appendengine.Access{CAFile: r.Registry.CAFile, AuthFile: r.Registry.AuthFile})
	if err != nil {
		return r, err
	}
	defer client.Close()
	base, err := placeOf(ctx, client, conf, r.Base.Reference, log)
	if err != nil {
		return r, err
	}
	if base != r.Base.Reference && r.BaseName == "" {
		r.BaseName = r.Base.Reference
	}
	r.Base.Reference = base
	if r.Extensions != nil {
		extensions := *r.Extensions
		if extensions.Reference, err = placeOf(ctx, client, conf, extensions.Reference, log); err != nil {
			return r, err
		}
		r.Extensions = &extensions
	}
	return r, nil
}

// placeOf is the first place that has an image.
func placeOf(ctx context.Context, client *appendengine.Client, conf, image string, log *logrus.Entry) (string, error) {
	all, err := places.Of(conf, image)
	if err != nil {
		return "", err
	}
	for _, place := range all {
		if place == image {
			break // the build says what is wrong there
		}
		err := client.Exists(ctx, place)
		if err == nil {
			return place, nil
		}
		log.WithError(err).WithField("image", place).Warn("mirror does not have the image")
	}
	return image, nil
}

// fileOf is the content of a rendered config's file; nil where there is none, or none that can be read.
func fileOf(config *mcfgv1.MachineConfig, path string) []byte {
	parsed, err := machineconfig.ParseRendered(config.Spec.Config.Raw)
	if err != nil {
		return nil // the build says so
	}
	for _, f := range parsed.Storage.Files {
		if filepath.Clean(f.Path) == path {
			raw, _ := machineconfig.Contents(f.Contents) // the build says so
			return raw
		}
	}
	return nil
}
