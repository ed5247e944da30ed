package render

import (
	"fmt"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render/mirrors"
	"dayone.dev/dayone/manifests/render/nodeconf"
)

// generatedFileMode is the mode of every generated file.
const generatedFileMode = 0o644

// generate adds the components that follow from other kinds of objects, in MCO's order: registries, container runtime,
// kubelet.
func (w *work) generate(set *manifests.Set, pools []manifests.Item[*mcfgv1.MachineConfigPool]) {
	w.registries(set, pools)
	runtimes := map[string]manifests.Origin{}
	for _, item := range set.ContainerRuntimeConfigs {
		w.unsupported(set, item.Origin)
		files, findings, err := nodeconf.Runtime(item)
		w.report.Add(findings...)
		w.check(err)
		for _, pool := range w.targets(pools, item.Object.Spec.MachineConfigPoolSelector, item.Origin, runtimes,
			"ContainerRuntimeConfig") {
			w.generated("99-"+pool+"-generated-containerruntime", pool, item.Origin, fileList(files))
		}
	}
	kubelets := map[string]manifests.Origin{}
	for _, item := range set.KubeletConfigs {
		w.unsupported(set, item.Origin)
		files, findings, err := nodeconf.Kubelet(item)
		w.report.Add(findings...)
		w.check(err)
		for _, pool := range w.targets(pools, item.Object.Spec.MachineConfigPoolSelector, item.Origin, kubelets,
			"KubeletConfig") {
			w.generated("99-"+pool+"-generated-kubelet", pool, item.Origin, fileList(files))
		}
	}
}

// unsupported refuses fields that the document's kind does not have: elsewhere they are another tool's and do no harm,
// but a node setting that is passed over is one that somebody relies on.
func (w *work) unsupported(set *manifests.Set, at manifests.Origin) {
	for _, f := range set.Findings {
		if f.Rule == manifests.RuleUnknownField && f.File == at.File && f.Document == at.Document &&
			strings.HasPrefix(f.Path, "spec.") {
			w.report.Errorf(f, "%s is not supported", strings.TrimPrefix(f.Path, "spec."))
		}
	}
}

// check turns an error of our own making into a refusal.
func (w *work) check(err error) {
	if err != nil {
		w.report.Errorf(manifests.Origin{}.At("", "internal"), "%s", err)
	}
}

func (w *work) registries(set *manifests.Set, pools []manifests.Item[*mcfgv1.MachineConfigPool]) {
	files, findings, err := mirrors.Files(set)
	w.report.Add(findings...)
	w.check(err)
	if len(files) == 0 {
		return
	}
	var list []nodeconf.File
	for _, f := range files {
		list = append(list, nodeconf.File(f))
	}
	for _, pool := range pools {
		component := w.generated("99-"+pool.Object.Name+"-generated-registries", pool.Object.Name, manifests.Origin{},
			fileList(list))
		if component != nil {
			// As MCO leaves it: without a version, so that the cluster's own controller takes it over at once.
			delete(component.Annotations, manifests.AnnotationGeneratedByController)
			component.OwnerReferences = []metav1.OwnerReference{{APIVersion: "config.openshift.io/v1", Kind: "Image"}}
		}
	}
}

// targets returns the pools that a selector chooses by their labels; one object of a kind a pool.
func (w *work) targets(pools []manifests.Item[*mcfgv1.MachineConfigPool], selector *metav1.LabelSelector,
	at manifests.Origin, taken map[string]manifests.Origin, kind string) []string {
	chosen, err := metav1.LabelSelectorAsSelector(selector)
	place := at.At("spec.machineConfigPoolSelector", "pool-selector")
	if err != nil {
		place.Next = "see the Kubernetes documentation on label selectors"
		w.report.Errorf(place, "%s: %s", kind, err)
		return nil
	}
	var out []string
	for _, p := range pools {
		if chosen.Empty() || !chosen.Matches(labels.Set(p.Object.Labels)) {
			continue
		}
		if first, twice := taken[p.Object.Name]; twice {
			place.Next = "join it with the one in " + first.File
			w.report.Errorf(place, "pool %s has two objects of kind %s", p.Object.Name, kind)
			continue
		}
		taken[p.Object.Name] = at
		out = append(out, p.Object.Name)
	}
	if len(out) == 0 {
		place.Next = "select pools by their labels, for example pools.operator.machineconfiguration.openshift.io/worker"
		w.report.Warnf(place, "%s selects no pool and has no effect", kind)
	}
	return out
}

func fileList(files []nodeconf.File) []ign35.File {
	var out []ign35.File
	for _, f := range files {
		mode, yes := generatedFileMode, true
		out = append(out, ign35.File{
			Node:          ign35.Node{Path: f.Path, Overwrite: &yes},
			FileEmbedded1: ign35.FileEmbedded1{Mode: &mode, Contents: machineconfig.Inline(f.Data)},
		})
	}
	return out
}

// generated adds a component of this renderer's own for a pool, nil without files.
func (w *work) generated(name, pool string, origin manifests.Origin, files []ign35.File) *mcfgv1.MachineConfig {
	if len(files) == 0 {
		return nil
	}
	config := ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version}, Storage: ign35.Storage{Files: files}}
	raw, err := machineconfig.Encode(config, 0)
	if err != nil {
		w.check(fmt.Errorf("write MachineConfig %s: %w", name, err))
		return nil
	}
	component := &mcfgv1.MachineConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{manifests.LabelRole: pool},
			Annotations: map[string]string{manifests.AnnotationGeneratedByController: w.options.Versions.Hash},
		},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}},
	}
	w.components = append(w.components, manifests.Item[*mcfgv1.MachineConfig]{Object: component, Origin: origin})
	return component
}
