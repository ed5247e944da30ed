package render

import (
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

// merged is a pool's spec with the source of its image.
type merged struct {
	spec mcfgv1.MachineConfigSpec
	// imageFrom names the MachineConfig that set osImageURL last, "" for the default.
	imageFrom string
	// layered says that osImageURL is a pre-built layered image.
	layered bool
}

// merge joins the components in order over the images of the pool's base. Generated components (those with a
// generated-by-controller-version) never set images.
func merge(p pool, selected []parsed, on osBase, o Options) (merged, []report.Finding) {
	var (
		out   merged
		image *parsed
	)
	all := findings{strict: o.Strict}
	base := on.controller.Spec
	out.spec = mcfgv1.MachineConfigSpec{
		OSImageURL:                     base.BaseOSContainerImage,
		BaseOSExtensionsContainerImage: base.BaseOSExtensionsContainerImage,
		KernelArguments:                []string{}, Extensions: []string{}, KernelType: kernelDefault,
	}
	for i := range selected {
		c := selected[i].Object
		out.spec.KernelArguments = append(out.spec.KernelArguments, c.Spec.KernelArguments...)
		out.spec.Extensions = append(out.spec.Extensions, c.Spec.Extensions...)
		out.spec.FIPS = out.spec.FIPS || c.Spec.FIPS
		if c.Spec.KernelType == kernelRealtime || c.Spec.KernelType == kernel64k {
			out.spec.KernelType = c.Spec.KernelType
		}
		if c.Annotations[manifests.AnnotationGeneratedByController] != "" {
			continue
		}
		if c.Spec.OSImageURL != "" {
			all.checkOverride(p.Object.Name, image, selected[i])
			out.spec.OSImageURL, out.imageFrom, image = c.Spec.OSImageURL, c.Name, &selected[i]
		}
		if c.Spec.BaseOSExtensionsContainerImage != "" {
			out.spec.BaseOSExtensionsContainerImage = c.Spec.BaseOSExtensionsContainerImage
		}
	}
	out.layered = image != nil && isPreBuilt(image.Object)
	if out.layered {
		all.checkInherited(p, image.Object.Labels[manifests.LabelRole])
	}
	if out.spec.KernelType != kernelDefault && slices.Contains(out.spec.Extensions, kernelDevel) {
		place := p.Origin.At("", "extension")
		place.Next = "remove the extension " + kernelDevel + " or the kernel type"
		all.Errorf(place, "pool %s: the extension %s does not go with kernel type %s", p.Object.Name, kernelDevel,
			out.spec.KernelType)
	}
	result := mergeConfigs(selected)
	all.Add(checkContents(p, result)...)
	if image != nil {
		all.Add(checkRuntime(p, result)...)
	}
	own := out.spec.OSImageURL != base.BaseOSContainerImage || slices.Contains(o.Layered, p.Object.Name) ||
		on.lacksRunc()
	all.Add(checkReadable(p, selected, result, reader{o.Strict, own && !o.OwnServer, o.OwnServer})...)
	all.Add(on.checkRuntime(p, out.spec.OSImageURL, RuncDropIn(result))...)
	raw, err := machineconfig.Encode(result)
	if err != nil {
		all.Errorf(p.Origin.At("", "serialisation"), "pool %s: %s", p.Object.Name, err)
	}
	out.spec.Config = runtime.RawExtension{Raw: raw}
	return out, all.Findings
}

// mergeConfigs merges the components' Ignition configs. One without a config merges nothing, unless it is the first.
func mergeConfigs(selected []parsed) ign35.Config {
	var m machineconfig.Merger
	for i, c := range selected {
		if i == 0 || len(c.Object.Spec.Config.Raw) > 0 {
			m.Add(c.config)
		}
	}
	return m.Result()
}

func isPreBuilt(c *mcfgv1.MachineConfig) bool {
	return c.Annotations[manifests.AnnotationPreBuiltImage] != ""
}

// checkOverride reports a MachineConfig that replaces a pre-built image by another image.
func (f *findings) checkOverride(pool string, before *parsed, after parsed) {
	if before == nil || !isPreBuilt(before.Object) || isPreBuilt(after.Object) ||
		before.Object.Spec.OSImageURL == after.Object.Spec.OSImageURL {
		return
	}
	place := after.Origin.At("spec.osImageURL", "layered-image-overridden")
	place.Next = "remove osImageURL from this MachineConfig and put its content into the Containerfile"
	f.doubtf(place, "pool %s: osImageURL of MachineConfig %s replaces the pool's layered image %s", pool,
		after.Object.Name, before.Object.Spec.OSImageURL)
}

// checkInherited reports a pool that ends up with the pre-built image of another role.
func (f *findings) checkInherited(p pool, role string) {
	if role == p.Object.Name {
		return
	}
	place := p.Origin.At("spec.machineConfigSelector", "layered-image-inherited")
	place.Next = "give the pool a MachineOSConfig of its own, or keep the other role out of its selector"
	f.doubtf(place, "pool %s takes over the layered image of pool %s", p.Object.Name, role)
}

// checkContents reports files that a node would write still compressed: a later MachineConfig has removed the mark.
func checkContents(p pool, config ign35.Config) []report.Finding {
	var out report.Report
	for _, f := range config.Storage.Files {
		if f.Contents.Compression != nil || !bareGzip(f.Contents.Source) {
			continue
		}
		place := p.Origin.At("", "contents-still-packed")
		place.Next = "repeat the contents in the MachineConfig that changes the file's mode or owner"
		out.Warnf(place, "pool %s: %s would be written still compressed: a later MachineConfig names the file without "+
			"contents", p.Object.Name, f.Path)
	}
	return out.Findings
}

// bareGzip says whether an inline source starts with gzip's magic bytes (1f 8b 08) in base64.
func bareGzip(source *string) bool {
	return source != nil && strings.Contains((*source)[:min(len(*source), 64)], ";base64,H4sI")
}
