package poolrequest

import (
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// Reasons why there is no request, or none that can be built.
const (
	ReasonBaseMissing = "BaseImageMissing"
	ReasonPushSpec    = "PushSpecUnusable"
	ReasonInvalid     = "InvalidRequest"
)

// refused is the error of what an admin has to mend.
func refused(reason, format string, args ...any) error {
	return &decide.Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Of is the build that a MachineOSConfig needs with a rendered config on a base image. The error is a
// *decide.Problem. Credentials and limits are the Job's.
func Of(mosc *mcfgv1.MachineOSConfig, config *mcfgv1.MachineConfig, cc *mcfgv1.ControllerConfig, base,
	platform string) (build.Request, error) {
	repository := installconfig.Repository(string(mosc.Spec.RenderedImagePushSpec))
	if fault := machineosbuild.Unrecordable(repository); fault != "" {
		return build.Request{}, refused(ReasonPushSpec, "spec.renderedImagePushSpec: %s", fault)
	}
	if base == "" {
		return build.Request{}, refused(ReasonBaseMissing,
			"neither the rendered config %s nor the pool's OS image stream or the ControllerConfig names a base image; set "+
				"osImageURL in a MachineConfig", config.Name)
	}
	_, architecture, _ := strings.Cut(platform, "/")
	text, err := job.Containerfile(mosc, architecture)
	if err != nil {
		return build.Request{}, refused(ReasonInvalid, "%s", err)
	}
	request, err := build.NewRequest(build.Spec{
		Pool: mosc.Spec.MachineConfigPool.Name, Config: config, Controller: &cc.Spec, Base: base, Platform: platform,
		Containerfile: text, ContainerfileName: "MachineOSConfig " + mosc.Name, Target: repository,
		Options: build.Options{ProxyEnvironment: proxies(cc)},
	})
	if err != nil {
		return build.Request{}, refused(ReasonInvalid, "%s", err)
	}
	return request, nil
}

// proxies are the cluster's: build pods and their RUN reach the network as nodes do.
func proxies(cc *mcfgv1.ControllerConfig) map[string]string {
	if p := cc.Spec.Proxy; p != nil {
		return build.Proxies(p.HTTPProxy, p.HTTPSProxy, p.NoProxy)
	}
	return nil
}

// BuiltImages lists the images that were built for a pool, as far as its MachineOSConfig and that one's builds know
// them, sorted.
func BuiltImages(config *mcfgv1.MachineOSConfig, builds []*mcfgv1.MachineOSBuild) []string {
	images := []string{config.Annotations[manifests.AnnotationPreBuiltImage], string(config.Status.CurrentImagePullSpec)}
	for _, b := range builds {
		images = append(images, string(b.Status.DigestedImagePushSpec))
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// Base is the image that a pool's image is built on: url, the rendered config's osImageURL, unless that names an image
// that was built for the pool; otherwise the release's. The pool's first image stands in osImageURL by way of a
// MachineConfig of its own, and outlives the MachineOSConfig there: component is that one's osImageURL, or empty.
func Base(url, release, component string, built []string) string {
	if url == "" || url == component || slices.Contains(built, url) {
		return release
	}
	return url
}

// ReleaseImage is the OS image that a pool runs before anything is built for it; streams is nil where the cluster has
// no OSImageStream, and others have the pool worker among them. It is empty when the streams do not have the pool's.
func ReleaseImage(cc *mcfgv1.ControllerConfig, streams *mcfgv1.OSImageStream, pool *mcfgv1.MachineConfigPool,
	others []*mcfgv1.MachineConfigPool) string {
	if streams == nil || len(streams.Status.AvailableStreams) == 0 { // MCO has not filled it in, and renders nothing on it
		return cc.Spec.BaseOSContainerImage
	}
	found := render.FindStream(streams, render.PoolStream(pool, others))
	if found == nil {
		return ""
	}
	return string(found.OSImage)
}

// TrustedCAs are the CAs that sign certificates of registries, in PEM: own ones, those of the cluster's users and those
// of single registries. Builds trust them, and who reads what a build has pushed.
func TrustedCAs(own []byte, cc *mcfgv1.ControllerConfig) []byte {
	parts := []string{string(own), string(cc.Spec.AdditionalTrustBundle)}
	for _, b := range slices.Concat(cc.Spec.ImageRegistryBundleData, cc.Spec.ImageRegistryBundleUserData) {
		parts = append(parts, string(b.Data))
	}
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return []byte(strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "\n"))
}
