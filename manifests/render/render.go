package render

import (
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/postconfig"
)

// The objects that rendering works on, with the place where each was read.
type (
	component = manifests.Item[*mcfgv1.MachineConfig]
	pool      = manifests.Item[*mcfgv1.MachineConfigPool]
)

// findings collects what is wrong with the input.
type findings struct {
	report.Report
	// strict makes errors of what MCO accepts without a word.
	strict bool
}

// doubtf reports what MCO accepts without a word: as an error when strict, else as a warning.
func (f *findings) doubtf(place report.Finding, format string, args ...any) {
	if f.strict {
		f.Errorf(place, format, args...)
		return
	}
	f.Warnf(place, format, args...)
}

// Render renders every pool of the set. It refuses as a whole: the error is a report with every refusal that was found.
func Render(set *manifests.Set, o Options) (*Result, error) {
	all := findings{strict: o.Strict}
	controller, found := inputs(set, o.Versions.Payload)
	all.Add(found...)
	if err := all.Err(); err != nil {
		return nil, err
	}
	pools, found := uniquePools(set.Pools)
	all.Add(found...)
	components := append([]component(nil), set.MachineConfigs...)
	if !o.ComponentsOnly {
		made, found := generate(set, pools, o.Versions.Hash)
		all.Add(found...)
		components = append(components, made...)
	}
	images, found := preBuilt(set.MachineOSConfigs, pools, o)
	all.Add(found...)
	if err := all.Err(); err != nil {
		return nil, err
	}
	components = append(components, images...)
	selections, found := selectAll(pools, components, o)
	all.Add(found...)
	if o.NeedTemplates && !o.ComponentsOnly {
		all.Add(checkTemplates(selections, controller)...)
	}
	checked, found := checkSelected(selections, controller, o)
	all.Add(found...)
	available := streamsOf(set, pools, o.Versions.Payload)
	result := &Result{Components: components, Controller: available.settle(controller.Object)}
	sources := references(components)
	for _, s := range selections {
		selected, ok := checked.of(s.components)
		if !ok {
			continue // refused before
		}
		on, found, ok := available.base(s.pool, controller.Object, o.Strict)
		all.Add(found...)
		if !ok {
			continue
		}
		config, found := renderPool(s.pool, selected, on, o)
		all.Add(found...)
		if config != nil {
			result.Configs = append(result.Configs, config)
			result.origins = append(result.origins, origin{selected, on})
			result.Pools = append(result.Pools, filledPool(s.pool.Object, config.Name, sources))
		}
	}
	if err := all.Err(); err != nil {
		return nil, err
	}
	result.Findings = append(append([]report.Finding(nil), set.Findings...), all.Warnings()...)
	return result, nil
}

// renderPool merges a pool's components and names the result; it returns nil when it refuses the pool.
func renderPool(p pool, selected []parsed, on osBase, o Options) (*mcfgv1.MachineConfig, []report.Finding) {
	controller := on.controller
	m, found := merge(p, selected, on, o)
	all := findings{report.Report{Findings: found}, o.Strict}
	if p.Object.Spec.OSImageStream.Name != "" && m.spec.OSImageURL != controller.Spec.BaseOSContainerImage {
		place := p.Origin.At("spec.osImageStream.name", "os-stream-and-override")
		place.Next = "remove the stream from the pool, or osImageURL from " + m.imageFrom
		all.Errorf(place, "pool %s names the OS image stream %s, but MachineConfig %s sets osImageURL", p.Object.Name,
			p.Object.Spec.OSImageStream.Name, m.imageFrom)
	}
	if all.Err() != nil {
		return nil, all.Findings
	}
	hash, err := specHash(m.spec)
	if err != nil {
		place := p.Origin.At("", "serialisation")
		place.Next = "remove the control character or the non-character from the pool's MachineConfigs"
		all.Errorf(place, "pool %s: the rendered config cannot be written as YAML: %s", p.Object.Name, err)
		return nil, all.Findings
	}
	name := "rendered-" + p.Object.Name + "-" + hash
	rules, found := ownerRules(name, selected, o.Strict)
	all.Add(found...)
	annotations := map[string]string{
		manifests.AnnotationGeneratedByController: o.Versions.Hash,
		manifests.AnnotationReleaseImageVersion:   controller.Annotations[manifests.AnnotationReleaseImageVersion],
	}
	if m.spec.OSImageURL != controller.Spec.BaseOSContainerImage {
		annotations[manifests.AnnotationOSImageURLOverridden] = "true"
	}
	if m.layered {
		// The server tells the node by this annotation that it boots a layered image; MCO's rendering drops it.
		annotations[manifests.AnnotationPreBuiltImage] = m.spec.OSImageURL
	}
	if rules != "" {
		annotations[manifests.AnnotationPostConfigActions] = rules
	}
	return rendered(p.Object, name, m.spec, annotations), all.Findings
}

// ownerRules encodes what the owners of the components want done when their files and units change. What cannot be read
// gives no rule: a change reboots the node then.
func ownerRules(name string, selected []parsed, strict bool) (string, []report.Finding) {
	components := make([]*mcfgv1.MachineConfig, 0, len(selected))
	for _, c := range selected {
		components = append(components, c.Object)
	}
	out := findings{strict: strict}
	place := report.Finding{Rule: "post-config-action",
		Next: "write actions such as Drain, DaemonReload, Restart app.service, or remove the annotation"}
	rules, err := postconfig.Owners(components)
	if err != nil {
		out.doubtf(place, "%s", err)
	}
	text, err := postconfig.Encode(rules)
	if err != nil {
		place.Next = "annotate fewer files, or set a policy for a directory in MachineConfiguration cluster"
		out.doubtf(place, "%s: %s", name, err)
	}
	return text, out.Findings
}

// rendered wraps a merged spec as MCO does (pkg/controller/render).
func rendered(p *mcfgv1.MachineConfigPool, name string, spec mcfgv1.MachineConfigSpec,
	annotations map[string]string) *mcfgv1.MachineConfig {
	yes := true
	return &mcfgv1.MachineConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfigPool", Name: p.Name, UID: p.UID,
				Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: spec,
	}
}

func references(components []component) []corev1.ObjectReference {
	var out []corev1.ObjectReference
	for _, c := range components {
		out = append(out, corev1.ObjectReference{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig",
			Name: c.Object.Name})
	}
	return out
}

func filledPool(p *mcfgv1.MachineConfigPool, config string,
	sources []corev1.ObjectReference) *mcfgv1.MachineConfigPool {
	filled := p.DeepCopy()
	filled.TypeMeta = metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfigPool"}
	filled.Spec.Configuration.Name = config
	filled.Spec.Configuration.Source = sources
	filled.Status.Configuration.Name = config
	filled.Status.Configuration.Source = sources
	return filled
}
