package render

import (
	"cmp"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// OSImageStreamName is the name of the one OSImageStream (openshift/api).
const OSImageStreamName = "cluster"

// featureStreams is the feature gate with which MCO takes OS images from the OSImageStream (openshift/api, features).
const featureStreams = "OSStreams"

// osBase is what a pool's nodes run unless a MachineConfig names other images: the stream's images, else those of the
// ControllerConfig.
type osBase struct {
	// controller is the ControllerConfig with the images that count for the pool.
	controller *mcfgv1.ControllerConfig
	// stream is the OS image stream that the images are of, "" for the ControllerConfig's.
	stream string
}

// streams are the OS image streams of an input.
type streams struct {
	// on is false where the FeatureGate lists features and does not enable this one: MCO passes over the object and the
	// pools' fields then. A FeatureGate without any, as StandaloneInputs makes it, stands for MCO's default feature set.
	on bool
	// object is the OSImageStream that counts, nil if there is none.
	object *manifests.Item[*mcfgv1.OSImageStream]
	pools  []pool
}

// streamsOf finds the OSImageStream, the last one as in MCO, and the feature gate for the payload version.
func streamsOf(set *manifests.Set, pools []pool, payload string) streams {
	out := streams{pools: pools}
	if gate := featureGate(set); gate != nil {
		out.on = slices.ContainsFunc(gate.Object.Status.FeatureGates, func(d configv1.FeatureGateDetails) bool {
			return d.Version == payload && (len(d.Enabled)+len(d.Disabled) == 0 || slices.ContainsFunc(d.Enabled,
				func(a configv1.FeatureGateAttributes) bool { return a.Name == featureStreams }))
		})
	}
	if n := len(set.OSImageStreams); n > 0 {
		out.object = &set.OSImageStreams[n-1]
	}
	return out
}

// PoolStream is the OS image stream that a pool asks for by name, "" for the default one. Custom pools inherit the
// worker's (MCO, pkg/controller/common, GetEffectiveOSImageStreamName).
func PoolStream(p *mcfgv1.MachineConfigPool, pools []*mcfgv1.MachineConfigPool) string {
	if name := p.Spec.OSImageStream.Name; name != "" {
		return name
	}
	if slices.Contains([]string{"master", workerRole, "arbiter"}, p.Name) {
		return ""
	}
	for _, other := range pools {
		if other.Name == workerRole {
			return other.Spec.OSImageStream.Name
		}
	}
	return ""
}

// FindStream is the stream of a name, "" for the default one; nil when the object does not have it. The spec's default
// counts before the status's, which MCO writes after it.
func FindStream(object *mcfgv1.OSImageStream, name string) *mcfgv1.OSImageStreamSet {
	name = cmp.Or(name, object.Spec.DefaultStream, object.Status.DefaultStream)
	for i := range object.Status.AvailableStreams {
		if object.Status.AvailableStreams[i].Name == name {
			return &object.Status.AvailableStreams[i]
		}
	}
	return nil
}

// settle returns the ControllerConfig with the default stream's images, as MCO writes it.
func (s streams) settle(controller *mcfgv1.ControllerConfig) *mcfgv1.ControllerConfig {
	if !s.on || s.object == nil {
		return controller
	}
	if found := FindStream(s.object.Object, ""); found != nil {
		return withImages(controller, found)
	}
	return controller // refused where a pool needs it
}

func withImages(controller *mcfgv1.ControllerConfig, s *mcfgv1.OSImageStreamSet) *mcfgv1.ControllerConfig {
	out := controller.DeepCopy()
	out.Spec.BaseOSContainerImage = string(s.OSImage)
	out.Spec.BaseOSExtensionsContainerImage = string(s.OSExtensionsImage)
	return out
}

// base finds the images of a pool; it is false when it refuses the pool.
func (s streams) base(p pool, controller *mcfgv1.ControllerConfig, strict bool) (osBase, []report.Finding, bool) {
	out := findings{strict: strict}
	var all []*mcfgv1.MachineConfigPool
	for _, other := range s.pools {
		all = append(all, other.Object)
	}
	name, own := PoolStream(p.Object, all), osBase{controller: controller}
	place := p.Origin.At("spec.osImageStream.name", "os-stream")
	if !s.on {
		if p.Object.Spec.OSImageStream.Name != "" {
			place.Next = "enable the feature gate " + featureStreams + ", or remove the stream from the pool"
			out.doubtf(place, "pool %s names the OS image stream %s, which has no effect without the feature gate %s",
				p.Object.Name, name, featureStreams)
		}
		return own, out.Findings, true
	}
	const fill = "write the OSImageStream with its status beside the pools: the output of " +
		"`oc get osimagestream cluster -o yaml`, or of MCO's `machine-config-osimagestream get osimagestream`"
	switch {
	case s.object == nil && name == "":
		return own, nil, true // the ControllerConfig names the release's own default
	case s.object == nil:
		place.Next = fill
		out.Errorf(place, "pool %s takes the OS image stream %s, and there is no OSImageStream that says which image that is",
			p.Object.Name, name)
		return own, out.Findings, false
	case len(s.object.Object.Status.AvailableStreams) == 0:
		place = s.object.Origin.At("status.availableStreams", "os-stream")
		place.Next = fill
		out.Errorf(place, "the OSImageStream names no images: MCO finds them in the release, which is not read here")
		return own, out.Findings, false
	}
	found := FindStream(s.object.Object, name)
	if found == nil {
		var known []string
		for _, stream := range s.object.Object.Status.AvailableStreams {
			known = append(known, stream.Name)
		}
		if name == "" {
			name = "of spec.defaultStream, " + cmp.Or(s.object.Object.Spec.DefaultStream, "which is empty")
		}
		place.Next = "use one of " + strings.Join(known, ", ")
		out.Errorf(place, "pool %s takes the OS image stream %s, which the OSImageStream does not have", p.Object.Name, name)
		return own, out.Findings, false
	}
	return osBase{controller: withImages(controller, found), stream: found.Name}, nil, true
}

// lacksRunc is true of the streams whose images have no runc: MCO reads their rendered configs for it (IsRHEL10Stream).
func (b osBase) lacksRunc() bool { return b.stream == "rhel-10" || b.stream == "centos-10" }

// checkRuntime refuses runc, which a drop-in makes the default runtime, if the pool runs the image of a stream that has
// none (MCO, validateNoRuncOnRHEL10FromOSImageStream, which looks at drop-ins alone).
func (b osBase) checkRuntime(p pool, image, runc string) []report.Finding {
	if image != b.controller.Spec.BaseOSContainerImage || !b.lacksRunc() ||
		!strings.HasPrefix(runc, "/etc/crio/crio.conf.d/") {
		return nil
	}
	var out report.Report
	place := p.Origin.At("", "runc-on-stream")
	place.Next = "use crun: remove defaultRuntime: runc from the ContainerRuntimeConfig, or default_runtime from " + runc
	out.Errorf(place, "pool %s: %s makes runc the default runtime, which the OS image stream %s does not have",
		p.Object.Name, runc, b.stream)
	return out.Findings
}
