package preflight

import (
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// Input is everything that the install directory says, checked.
type Input struct {
	// Sidecar is the layering field and the cluster's name.
	Sidecar *installconfig.Sidecar
	// Set holds all objects of manifests/, openshift/ and the layering directory, and those that were generated.
	Set *manifests.Set
	// Nodes are the settings of install-config.yaml that this flow brings to every node; the Set has their objects. Empty
	// in the openshift flow.
	Nodes installconfig.NodeSettings
	// Pools are the pools to layer, in the user's order.
	Pools []Pool
	// Generated are the objects that dayone makes for the user, with the files that WriteGenerated writes them to.
	Generated []Generated
	// SignaturePolicy is the content of the signature policy that nodes apply, nil without one.
	SignaturePolicy []byte
	// Signing are the keys of the cluster's images.
	Signing Signing
	// RegistryCA is PEM of the CA that signs the final registry's certificate, nil without one.
	RegistryCA []byte
	// Shared is what the registries of the cluster's own control plane share, nil where the images go elsewhere.
	Shared *clusterregistry.Shared
	// LogSpool is what reaches the machine that keeps the last log bundle, nil without one.
	LogSpool *LogSpool
	// Warnings are findings that do not stop the installation.
	Warnings []report.Finding
	// earlier are the files of the layering directory that an earlier run generated.
	earlier []string
}

// Pool is one pool to layer.
type Pool struct {
	installconfig.Pool
	// MachineOSConfig is the pool's; its spec has been checked.
	MachineOSConfig manifests.Item[*mcfgv1.MachineOSConfig]
	// Containerfile is the user's content for the platform; empty means that only the rendered config goes into the image.
	Containerfile string
	// Repository is where the image ends up: the push spec without its tag.
	Repository string
	// PushAuth is the content of the push Secret (.dockerconfigjson).
	PushAuth []byte
	// NodePull is what the pool's nodes pull with (auth.json), nil where the install directory does not say.
	NodePull []byte
	// BasePull is the content of the base image pull Secret (.dockerconfigjson), nil without one.
	BasePull []byte
}

// Generated is an object that dayone makes because the user's files have none.
type Generated struct {
	// File is where WriteGenerated puts it, relative to the install directory.
	File string
	// Object is a typed API object.
	Object any
	// Secret keeps the file from others.
	Secret bool
}

// openshift says that the installer's own bootstrap renders and serves.
func (in *Input) openshift() bool { return in.Sidecar.Config.Flow == installconfig.FlowOpenShift }

// ControllerConfig is the install directory's, the last one as in rendering, with the CAs and the proxy of
// install-config.yaml where it has none.
func (in *Input) ControllerConfig() *mcfgv1.ControllerConfigSpec {
	spec := &mcfgv1.ControllerConfigSpec{}
	if n := len(in.Set.ControllerConfigs); n > 0 {
		spec = in.Set.ControllerConfigs[n-1].Object.Spec.DeepCopy()
	}
	if len(spec.AdditionalTrustBundle) == 0 {
		spec.AdditionalTrustBundle = in.Nodes.TrustBundle
	}
	if p := in.Nodes.Proxy; p != (installconfig.Proxy{}) && (spec.Proxy == nil || *spec.Proxy == configv1.ProxyStatus{}) {
		spec.Proxy = &configv1.ProxyStatus{HTTPProxy: p.HTTP, HTTPSProxy: p.HTTPS, NoProxy: p.No}
	}
	return spec
}

// Options are those with which Inputs are rendered here.
func (in *Input) Options(versions render.Versions) render.Options {
	o := render.Options{Versions: versions, Unbuilt: render.IgnoreUnbuilt, Strict: true, OwnServer: !in.openshift()}
	if in.openshift() {
		for _, p := range in.Pools {
			o.Layered = append(o.Layered, p.Name)
		}
	}
	return o
}

// Inputs are the objects that are rendered on a base image, with those that the flow adds. In the openshift flow they
// are the users' own objects only: MCO renders its templates and the release's objects on the bootstrap host.
func (in *Input) Inputs(base string, versions render.Versions) *manifests.Set {
	set := &manifests.Set{}
	set.Append(in.Set)
	if in.openshift() {
		set.FeatureGates, set.KubeletConfigs, set.ContainerRuntimeConfigs, set.Skipped = nil, nil, nil, nil
		set.MachineConfigs = append(set.MachineConfigs, brought(set)...)
		withoutStreams(set)
	}
	render.StandaloneInputs(set, base, versions)
	if !in.openshift() {
		in.settleControllerConfig(set, base, versions)
	}
	return set
}

// settleControllerConfig gives the last ControllerConfig, which counts, the base image that this host imports and what
// install-config.yaml says. A user's own was made before the base image's digest was known.
func (in *Input) settleControllerConfig(set *manifests.Set, base string, versions render.Versions) {
	item := &set.ControllerConfigs[len(set.ControllerConfigs)-1]
	object := item.Object.DeepCopy()
	object.Spec = *in.ControllerConfig()
	object.Spec.BaseOSContainerImage = base
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	object.Annotations[manifests.AnnotationGeneratedByVersion] = versions.Raw
	item.Object = object
}
