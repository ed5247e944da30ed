package render

import (
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/postconfig"
)

// featureGateName is the only FeatureGate that counts (MCO, pkg/controller/bootstrap).
const featureGateName = "cluster"

// Render renders every pool of the set. It refuses as a whole: the error is a report with every refusal that was found.
func Render(set *manifests.Set, o Options) (*Result, error) {
	w := &work{options: o, parsed: newParsed()}
	w.controllerConfig(set)
	w.featureGate(set)
	if err := w.report.Err(); err != nil {
		return nil, err
	}
	pools := uniquePools(set.Pools)
	w.checkNames(pools)
	w.components = append(w.components, set.MachineConfigs...)
	if !o.ComponentsOnly {
		w.generate(set, pools)
	}
	w.preBuilt(set, pools)
	if err := w.report.Err(); err != nil {
		return nil, err
	}
	pools = slices.DeleteFunc(pools,
		func(p manifests.Item[*mcfgv1.MachineConfigPool]) bool { return !o.wants(p.Object.Name) })
	result := &Result{Components: w.components}
	sources := references(w.components)
	selections := w.selections(pools)
	for i, pool := range pools {
		config := w.pool(pool, selections[i])
		if config == nil {
			continue
		}
		result.Configs = append(result.Configs, config)
		result.Pools = append(result.Pools, filledPool(pool.Object, config.Name, sources))
	}
	if err := w.report.Err(); err != nil {
		return nil, err
	}
	result.Findings = append(append([]report.Finding(nil), set.Findings...), w.report.Warnings()...)
	return result, nil
}

// work is the state of one rendering.
type work struct {
	options    Options
	report     report.Report
	controller manifests.Item[*mcfgv1.ControllerConfig]
	components []manifests.Item[*mcfgv1.MachineConfig]
	parsed     *parsed
}

// doubt reports what MCO accepts in silence: a refusal when strict, else a warning.
func (w *work) doubt(place report.Finding, format string, args ...any) {
	if w.options.Strict {
		w.report.Errorf(place, format, args...)
		return
	}
	w.report.Warnf(place, format, args...)
}

func (w *work) controllerConfig(set *manifests.Set) {
	n := len(set.ControllerConfigs)
	if n == 0 {
		w.report.Errorf(report.Finding{Rule: "controllerconfig-missing",
			Next: "add the ControllerConfig machine-config-controller"}, "there is no ControllerConfig")
		return
	}
	w.controller = set.ControllerConfigs[n-1]
}

func (w *work) featureGate(set *manifests.Set) {
	var found *manifests.Item[*configv1.FeatureGate]
	for i := range set.FeatureGates {
		if set.FeatureGates[i].Object.Name == featureGateName {
			found = &set.FeatureGates[i]
		}
	}
	if found == nil {
		w.report.Errorf(report.Finding{Rule: "featuregate-missing", Next: "add the FeatureGate cluster"},
			"there is no FeatureGate named %s", featureGateName)
		return
	}
	for _, details := range found.Object.Status.FeatureGates {
		if details.Version == w.options.Versions.Payload {
			return
		}
	}
	place := found.Origin.At("status.featureGates", "featuregate-version")
	place.Next = "render the FeatureGate with the same release, or name its version as the payload version"
	w.report.Errorf(place, "the payload version %q is not listed", w.options.Versions.Payload)
}

// checkNames refuses pool names that the API would not take: they become file names.
func (w *work) checkNames(pools []manifests.Item[*mcfgv1.MachineConfigPool]) {
	for _, p := range pools {
		if problems := validation.IsDNS1123Subdomain(p.Object.Name); len(problems) > 0 {
			place := p.Origin.At("metadata.name", "name")
			place.Next = "use lower case letters, digits, dashes and dots"
			w.report.Errorf(place, "pool name %q: %s", p.Object.Name, problems[0])
		}
	}
}

// selections selects for every pool and counts how many pools want each component.
func (w *work) selections(pools []manifests.Item[*mcfgv1.MachineConfigPool]) [][]manifests.Item[*mcfgv1.MachineConfig] {
	var out [][]manifests.Item[*mcfgv1.MachineConfig]
	for _, pool := range pools {
		selected := w.selectComponents(pool)
		for _, c := range selected {
			w.parsed.wanted[c.Object]++
		}
		out = append(out, selected)
	}
	return out
}

// pool renders one pool, nil when it was refused.
func (w *work) pool(pool manifests.Item[*mcfgv1.MachineConfigPool],
	selected []manifests.Item[*mcfgv1.MachineConfig]) *mcfgv1.MachineConfig {
	before := len(w.report.Findings)
	if len(selected) == 0 {
		return nil // refused before
	}
	w.guard(selected)
	if refusedSince(w.report, before) {
		return nil
	}
	merged := w.merge(pool, selected)
	w.checkStream(pool, merged)
	if refusedSince(w.report, before) {
		return nil
	}
	hash, err := specHash(merged.spec)
	if err != nil {
		place := pool.Origin.At("", "serialisation")
		place.Next = "remove the control character or the non-character from the pool's MachineConfigs"
		w.report.Errorf(place, "pool %s: the rendered config cannot be written as YAML: %s", pool.Object.Name, err)
		return nil
	}
	config := w.rendered(pool.Object, merged, hash)
	w.owners(config, selected)
	return config
}

// owners lets the rendered config carry what the owners of its components say that follows a change of their files and
// units. What cannot be read gives no rule: a change reboots the node then.
func (w *work) owners(config *mcfgv1.MachineConfig, selected []manifests.Item[*mcfgv1.MachineConfig]) {
	components := make([]*mcfgv1.MachineConfig, 0, len(selected))
	for _, c := range selected {
		components = append(components, c.Object)
	}
	rules, err := postconfig.Owners(components)
	place := report.Finding{Rule: "post-config-action",
		Next: "write actions such as Drain, DaemonReload, Restart app.service, or take the annotation away"}
	if err != nil {
		w.doubt(place, "%s", err)
	}
	text, err := postconfig.Encode(rules)
	if err != nil {
		place.Next = "annotate fewer files, or give a policy for a directory in MachineConfiguration cluster"
		w.doubt(place, "%s: %s", config.Name, err)
	}
	if text != "" {
		config.Annotations[manifests.AnnotationPostConfigActions] = text
	}
}

func refusedSince(r report.Report, from int) bool {
	for _, f := range r.Findings[from:] {
		if f.Severity == report.Error {
			return true
		}
	}
	return false
}

// checkStream refuses an image override in a pool that names an OS image stream.
func (w *work) checkStream(pool manifests.Item[*mcfgv1.MachineConfigPool], m merged) {
	if pool.Object.Spec.OSImageStream.Name == "" || m.spec.OSImageURL == w.controller.Object.Spec.BaseOSContainerImage {
		return
	}
	place := pool.Origin.At("spec.osImageStream.name", "os-stream-and-override")
	place.Next = "remove the stream from the pool, or osImageURL from " + m.imageFrom
	w.report.Errorf(place, "pool %s names the OS image stream %s, but MachineConfig %s sets osImageURL", pool.Object.Name,
		pool.Object.Spec.OSImageStream.Name, m.imageFrom)
}

// rendered wraps the merged spec; owner and annotations are those that MCO sets (pkg/controller/render).
func (w *work) rendered(pool *mcfgv1.MachineConfigPool, m merged, hash string) *mcfgv1.MachineConfig {
	yes := true
	annotations := map[string]string{
		manifests.AnnotationGeneratedByController: w.options.Versions.Hash,
		manifests.AnnotationReleaseImageVersion:   w.controller.Object.Annotations[manifests.AnnotationReleaseImageVersion],
	}
	if m.spec.OSImageURL != w.controller.Object.Spec.BaseOSContainerImage {
		annotations[manifests.AnnotationOSImageURLOverridden] = "true"
	}
	if m.layered {
		// The server tells the node by this annotation that it boots a layered image; MCO meant to, but its rendering drops
		// it.
		annotations[manifests.AnnotationPreBuiltImage] = m.spec.OSImageURL
	}
	return &mcfgv1.MachineConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        "rendered-" + pool.Name + "-" + hash,
			Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfigPool", Name: pool.Name, UID: pool.UID,
				Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: m.spec,
	}
}

func references(components []manifests.Item[*mcfgv1.MachineConfig]) []corev1.ObjectReference {
	var out []corev1.ObjectReference
	for _, c := range components {
		out = append(out, corev1.ObjectReference{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig",
			Name: c.Object.Name})
	}
	return out
}

func filledPool(pool *mcfgv1.MachineConfigPool, config string,
	sources []corev1.ObjectReference) *mcfgv1.MachineConfigPool {
	filled := pool.DeepCopy()
	filled.TypeMeta = metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfigPool"}
	filled.Spec.Configuration.Name = config
	filled.Spec.Configuration.Source = sources
	filled.Status.Configuration.Name = config
	filled.Status.Configuration.Source = sources
	return filled
}

// quoted lists names for people.
func quoted(names []string) string {
	return fmt.Sprintf("%q", strings.Join(names, ", "))
}
