package preview

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/poolrequest"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/rollout"
)

// ImageOf is the forecast.ImageFunc of dayone's builder: it asks for an image by the same function, and knows it by the
// same content address.
func ImageOf(in *forecast.Input, pool *mcfgv1.MachineConfigPool, mosc *mcfgv1.MachineOSConfig) (*mcfgv1.MachineOSBuild,
	error) {
	config := in.Configs[pool.Spec.Configuration.Name]
	if config == nil {
		return nil, fmt.Errorf("there is no rendered config %q", pool.Spec.Configuration.Name)
	}
	cc := in.Controller
	if cc == nil {
		cc = &mcfgv1.ControllerConfig{}
	}
	request, err := poolrequest.Of(mosc, config, cc, baseOf(in, pool, mosc, config, cc), platformOf(in))
	if err != nil {
		return nil, fmt.Errorf("find out what the image of pool %s is built of: %w", pool.Name, err)
	}
	address, addressErr := request.Address()
	ground, groundErr := request.Ground()
	if err := errors.Join(addressErr, groundErr); err != nil {
		return nil, fmt.Errorf("find out what the image of pool %s is built of: %w", pool.Name, err)
	}
	forced := manifests.RequestsRebuild(mosc) || manifests.RequestsRebuild(pool)
	if have := existing(in.Cluster.Builds, address, request.Target); have != nil && !forced {
		return have, nil
	}
	b := &mcfgv1.MachineOSBuild{}
	b.Name, b.CreationTimestamp = rollout.Unbuilt+address, metav1.NewTime(in.At)
	for i := range in.Cluster.Builds {
		if made := &in.Cluster.Builds[i].CreationTimestamp; b.CreationTimestamp.Before(made) { // clocks differ
			b.CreationTimestamp = *made
		}
	}
	b.Annotations = machineosbuild.Annotations(address, "")
	b.Annotations[manifests.AnnotationBuildGround] = ground
	b.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(request.Target)
	if forced {
		b.Annotations[manifests.AnnotationBuildForced] = "true"
	}
	first := mosc.Annotations[manifests.AnnotationPreBuiltImage]
	if first != "" && mosc.Status.CurrentImagePullSpec == "" && len(buildsOf(in, mosc)) == 0 {
		b.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(first) // the admin has named it
		return b, nil
	}
	return rollout.AsImage(b), nil
}

// existing is the succeeded build of this content in this place, the latest attempt.
func existing(builds []mcfgv1.MachineOSBuild, address, repository string) *mcfgv1.MachineOSBuild {
	var out *mcfgv1.MachineOSBuild
	for i := range builds {
		b := &builds[i]
		if b.Annotations[manifests.AnnotationBuildAddress] == address && b.DeletionTimestamp == nil &&
			installconfig.Repository(string(b.Spec.RenderedImagePushSpec)) == repository &&
			machineosbuild.StateOf(b) == machineosbuild.Succeeded && (out == nil || attempt(out) <= attempt(b)) {
			out = b
		}
	}
	return out
}

func attempt(b *mcfgv1.MachineOSBuild) int {
	n, _ := strconv.Atoi(b.Annotations[manifests.AnnotationBuildAttempt]) // absent: the first
	return n
}

// buildsOf are the builds of a MachineOSConfig.
func buildsOf(in *forecast.Input, mosc *mcfgv1.MachineOSConfig) []*mcfgv1.MachineOSBuild {
	return slices.DeleteFunc(rollout.Pointers(in.Cluster.Builds), func(b *mcfgv1.MachineOSBuild) bool {
		return b.Spec.MachineOSConfig.Name != mosc.Name
	})
}

// baseOf is the image that the pool's image is built on.
func baseOf(in *forecast.Input, pool *mcfgv1.MachineConfigPool, mosc *mcfgv1.MachineOSConfig,
	config *mcfgv1.MachineConfig, cc *mcfgv1.ControllerConfig) string {
	release := poolrequest.ReleaseImage(cc, in.Streams, pool, rollout.Pointers(in.Cluster.Pools))
	component := ""
	if c := in.Configs[manifests.PreBuiltComponentPrefix+pool.Name]; c != nil {
		component = c.Spec.OSImageURL
	}
	return poolrequest.Base(config.Spec.OSImageURL, release, component,
		poolrequest.BuiltImages(mosc, buildsOf(in, mosc)))
}

// platformOf is the nodes' platform, for which the cluster's builder builds.
func platformOf(in *forecast.Input) string {
	architecture := ""
	for _, n := range in.Cluster.Nodes {
		architecture = cmp.Or(architecture, n.Status.NodeInfo.Architecture)
	}
	return "linux/" + cmp.Or(architecture, runtime.GOARCH)
}
