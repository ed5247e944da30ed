package buildpod

import (
	"context"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render/mirrors"
	"dayone.dev/dayone/registry/places"
)

// registriesOf is a rendered config's registries.conf; nil where it says nothing of registries.
func registriesOf(config *mcfgv1.MachineConfig) []byte {
	raw := machineconfig.FilesAt(config.Spec.Config.Raw, mirrors.RegistriesPath)[mirrors.RegistriesPath]
	if !places.InConfig(raw) {
		return nil
	}
	return raw
}

// mirrored lets a build read its images where nodes of the pool do. An image that no mirror has keeps its own name,
// with which the build fails.
func mirrored(ctx context.Context, r build.Request, log *logrus.Entry) (build.Request, error) {
	if r.Options.RegistriesConf == "" {
		return r, nil
	}
	client, err := appendengine.NewClient(appendengine.Access{CAFile: r.Registry.CAFile, AuthFile: r.Registry.AuthFile})
	if err != nil {
		return r, nil //nolint:nilerr // the build says so
	}
	defer client.Close()
	base, err := placeOf(ctx, client, r.Options.RegistriesConf, r.Base.Reference, log)
	if err != nil {
		return r, err
	}
	if base != r.Base.Reference && r.BaseName == "" {
		r.BaseName = r.Base.Reference
	}
	r.Base.Reference = base
	if r.Extensions != nil {
		extensions := *r.Extensions
		extensions.Reference, err = placeOf(ctx, client, r.Options.RegistriesConf, extensions.Reference, log)
		r.Extensions = &extensions
	}
	return r, err
}

// placeOf is the first mirror that has an image, or else the image's own name.
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
