package render

import (
	"regexp"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

// merged is a pool's spec with what is worth knowing about its making.
type merged struct {
	spec mcfgv1.MachineConfigSpec
	// imageFrom names the MachineConfig that set osImageURL last, "" for the default.
	imageFrom string
	// layered says that osImageURL is a pre-built layered image.
	layered bool
}

// merge joins the components in order. Generated components (those with a generated-by-controller-version) never set
// images.
func (w *work) merge(pool manifests.Item[*mcfgv1.MachineConfigPool],
	selected []manifests.Item[*mcfgv1.MachineConfig]) merged {
	var (
		out    merged
		config machineconfig.Merger
		image  *manifests.Item[*mcfgv1.MachineConfig]
		size   int
	)
	out.spec = mcfgv1.MachineConfigSpec{
		OSImageURL:                     w.controller.Object.Spec.BaseOSContainerImage,
		BaseOSExtensionsContainerImage: w.controller.Object.Spec.BaseOSExtensionsContainerImage,
		KernelArguments:                []string{}, Extensions: []string{}, KernelType: kernelDefault,
	}
	for i := range selected {
		c := selected[i].Object
		config.Add(w.parsed.use(c))
		size += len(c.Spec.Config.Raw)
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
			w.checkOverride(pool, image, selected[i])
			out.spec.OSImageURL, out.imageFrom, image = c.Spec.OSImageURL, c.Name, &selected[i]
		}
		if c.Spec.BaseOSExtensionsContainerImage != "" {
			out.spec.BaseOSExtensionsContainerImage = c.Spec.BaseOSExtensionsContainerImage
		}
	}
	w.checkInherited(pool, image)
	out.layered = image != nil && isPreBuilt(image.Object)
	if out.spec.KernelType != kernelDefault && slices.Contains(out.spec.Extensions, kernelDevel) {
		place := pool.Origin.At("", "extension")
		place.Next = "remove the extension " + kernelDevel + " or the kernel type"
		w.report.Errorf(place, "pool %s: the extension %s does not go with kernel type %s", pool.Object.Name, kernelDevel,
			out.spec.KernelType)
	}
	result := config.Result()
	w.checkContents(pool, result)
	if image != nil {
		w.checkRuntime(pool, result)
	}
	raw, err := machineconfig.Encode(result, size)
	if err != nil {
		w.report.Errorf(pool.Origin.At("", "serialisation"), "pool %s: %s", pool.Object.Name, err)
	}
	out.spec.Config = runtime.RawExtension{Raw: raw}
	return out
}

// checkOverride reports a MachineConfig that takes the place of a pre-built image.
func (w *work) checkOverride(pool manifests.Item[*mcfgv1.MachineConfigPool],
	before *manifests.Item[*mcfgv1.MachineConfig], after manifests.Item[*mcfgv1.MachineConfig]) {
	if before == nil || !isPreBuilt(before.Object) || isPreBuilt(after.Object) ||
		before.Object.Spec.OSImageURL == after.Object.Spec.OSImageURL {
		return
	}
	place := after.Origin.At("spec.osImageURL", "layered-image-overridden")
	place.Next = "remove osImageURL from this MachineConfig and put its content into the Containerfile"
	w.doubt(place, "pool %s: osImageURL of MachineConfig %s takes the place of the pool's layered image %s",
		pool.Object.Name, after.Object.Name, before.Object.Spec.OSImageURL)
}

// checkInherited reports a pool that ends up with another pool's pre-built image.
func (w *work) checkInherited(pool manifests.Item[*mcfgv1.MachineConfigPool],
	image *manifests.Item[*mcfgv1.MachineConfig]) {
	if image == nil || !isPreBuilt(image.Object) || image.Object.Labels[manifests.LabelRole] == pool.Object.Name {
		return
	}
	place := pool.Origin.At("spec.machineConfigSelector", "layered-image-inherited")
	place.Next = "give the pool a MachineOSConfig of its own, or keep the other role out of its selector"
	w.doubt(place, "pool %s takes over the layered image of pool %s", pool.Object.Name,
		image.Object.Labels[manifests.LabelRole])
}

func isPreBuilt(c *mcfgv1.MachineConfig) bool {
	return c.Annotations[manifests.AnnotationPreBuiltImage] != ""
}

// checkContents reports files that no node can write. Remote contents and plain ones are not looked at.
func (w *work) checkContents(pool manifests.Item[*mcfgv1.MachineConfigPool], config ign35.Config) {
	for _, f := range config.Storage.Files {
		if f.Contents.Compression == nil || f.Contents.Source == nil {
			if !bareGzip(f.Contents.Source) {
				continue
			}
			place := pool.Origin.At("", "contents-still-packed")
			place.Next = "repeat the contents in the MachineConfig that changes the file's mode or owner"
			w.report.Warnf(place,
				"pool %s: %s would be written still packed: a later MachineConfig names the file without contents",
				pool.Object.Name, f.Path)
		}
	}
}

// runcDefault finds CRI-O's setting for runc.
var runcDefault = regexp.MustCompile(`(?m)^\s*default_runtime\s*=\s*"runc"`)

// checkRuntime reports runc as default runtime under an image of one's own. MCO looks into the image for RHEL 10, which
// has no runc; this renderer uses no network, so it can only point at it.
func (w *work) checkRuntime(pool manifests.Item[*mcfgv1.MachineConfigPool], config ign35.Config) {
	for _, f := range config.Storage.Files {
		if !strings.HasPrefix(f.Path, "/etc/crio/crio.conf") {
			continue
		}
		data, err := machineconfig.Contents(f.Contents)
		if err != nil || !runcDefault.Match(data) {
			continue
		}
		place := pool.Origin.At("", "runc-with-own-image")
		place.Next = "make sure that the image has runc, or use crun"
		w.report.Warnf(place, "pool %s: %s makes runc the default runtime, which images on RHEL 10 do not have",
			pool.Object.Name, f.Path)
	}
}

// bareGzip says whether an inline source starts with gzip's magic bytes (1f 8b 08) in base64.
func bareGzip(source *string) bool {
	const magic = ";base64,H4sI"
	if source == nil || len(*source) < len(magic) {
		return false
	}
	head := (*source)[:min(len(*source), 64)]
	for i := 0; i+len(magic) <= len(head); i++ {
		if head[i:i+len(magic)] == magic {
			return true
		}
	}
	return false
}
