package releasecontroller

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// ConfigMaps that the cluster-version operator keeps in MCO's namespace (MCO, pkg/controller/common/constants.go).
const (
	imagesName   = "machine-config-operator-images"
	osImagesName = "machine-config-osimageurl"
)

// release is what the two ConfigMaps say.
type release struct {
	version string
	// operator is the image with machine-config-controller.
	operator string
	// os and extensions are the base images of nodes.
	os, extensions string
	// images are those of the ControllerConfig.
	images map[string]string
}

// stateError is why a state cannot be followed, or not yet.
type stateError struct {
	reason  string
	text    string
	waiting bool
}

func (e stateError) Error() string { return e.text }

func malformed(format string, args ...any) error {
	return stateError{reason: "ReleaseMalformed", text: fmt.Sprintf(format, args...) +
		": nodes keep what they have; the cluster-version operator writes this ConfigMap: see what it says of the release"}
}

// parseRelease reads the release. It fails with a stateError when something is missing, or when one ConfigMap is of
// another release than the other: the cluster-version operator is between them.
func parseRelease(images, osImages *corev1.ConfigMap) (release, error) {
	all := map[string]string{}
	if err := json.Unmarshal([]byte(images.Data["images.json"]), &all); err != nil {
		return release{}, malformed("ConfigMap %s: images.json: %v", imagesName, err)
	}
	r := release{version: all["releaseVersion"], operator: all["machineConfigOperator"],
		os: osImages.Data["baseOSContainerImage"], extensions: osImages.Data["baseOSExtensionsContainerImage"],
		images: controllerImages(all)}
	if _, err := version.ParseSemantic(r.version); err != nil {
		return r, malformed("ConfigMap %s: releaseVersion %q: %v", imagesName, r.version, err)
	}
	for _, image := range []struct{ in, key, value string }{
		{imagesName, "machineConfigOperator", r.operator}, {imagesName, "infraImage", all["infraImage"]},
		{osImagesName, "baseOSContainerImage", r.os}, {osImagesName, "baseOSExtensionsContainerImage", r.extensions},
	} {
		if _, err := reference.ParseNamed(image.value); err != nil {
			return r, malformed("ConfigMap %s: %s %q: %v", image.in, image.key, image.value, err)
		}
	}
	if other := osImages.Data["releaseVersion"]; other != r.version {
		return r, stateError{reason: "ReleaseHalfWritten", waiting: true, text: fmt.Sprintf("ConfigMap %s is of release %s, "+
			"ConfigMap %s of %q: the cluster-version operator is between them", imagesName, r.version, osImagesName, other)}
	}
	return r, nil
}

// controllerImages are the images of the ControllerConfig by the keys that MCO gives them (pkg/controller/template,
// constants.go; pkg/operator/sync.go). Keys in -Image are the same in both; so a later release's are taken along.
func controllerImages(all map[string]string) map[string]string {
	out := map[string]string{"machineConfigOperator": all["machineConfigOperator"],
		"apiServerWatcherKey": all["machineConfigOperator"], "infraImageKey": all["infraImage"],
		"kubeRbacProxyImage": all["kubeRbacProxy"]}
	for key, image := range all {
		if strings.HasSuffix(key, "Image") && key != "infraImage" {
			out[key] = image
		}
	}
	return out
}

// older says whether a release is before another. What is no version is before nothing.
func older(a, b string) bool {
	x, err := version.ParseSemantic(a)
	y, err2 := version.ParseSemantic(b)
	return err == nil && err2 == nil && x.LessThan(y)
}
