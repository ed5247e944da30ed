package render

import (
	"fmt"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render/mirrors"
	"dayone.dev/dayone/manifests/render/nodeconf"
)

// generatedFileMode is the mode of every generated file.
const generatedFileMode = 0o644

// nodeSetting is an object of one kind that configures the nodes of the pools that it selects.
type nodeSetting struct {
	kind, suffix string
	selector     *metav1.LabelSelector
	origin       manifests.Origin
	files        func() ([]nodeconf.File, []report.Finding, error)
}

// generate makes the components that follow from other kinds of objects, in MCO's order: registries, container runtime,
// kubelet. hash is the version that they carry.
func generate(set *manifests.Set, pools []pool, hash string) ([]component, []report.Finding) {
	out, found := registries(set, pools)
	all := report.Report{Findings: found}
	all.Add(imagePolicies(set)...)
	taken := map[string]manifests.Origin{}
	tls, found := inheritedTLS(set, pools, hash)
	all.Add(found...)
	out = append(out, tls...)
	for _, s := range nodeSettings(set) {
		all.Add(unsupported(set, s.origin)...)
		files, found, err := s.files()
		all.Add(found...)
		if err != nil {
			all.Add(internal(err))
		}
		names, found := targets(pools, s, taken)
		all.Add(found...)
		for _, name := range names {
			c, err := generated("99-"+name+"-generated-"+s.suffix, name, files)
			if err != nil {
				all.Add(internal(err))
			} else if c != nil {
				c.Annotations = map[string]string{manifests.AnnotationGeneratedByController: hash}
				out = append(out, component{Object: c, Origin: s.origin})
			}
		}
	}
	return out, all.Findings
}

func nodeSettings(set *manifests.Set) []nodeSetting {
	var out []nodeSetting
	for _, item := range set.ContainerRuntimeConfigs {
		out = append(out, nodeSetting{"ContainerRuntimeConfig", "containerruntime",
			item.Object.Spec.MachineConfigPoolSelector, item.Origin,
			func() ([]nodeconf.File, []report.Finding, error) { return nodeconf.Runtime(item) }})
	}
	for _, item := range set.KubeletConfigs {
		out = append(out, nodeSetting{"KubeletConfig", "kubelet", item.Object.Spec.MachineConfigPoolSelector, item.Origin,
			func() ([]nodeconf.File, []report.Finding, error) { return nodeconf.Kubelet(item) }})
	}
	return out
}

// imagePolicies refuses the kinds by which MCO has nodes verify images: nothing is made of them here, and nodes that
// verify nothing are not what their user wants.
func imagePolicies(set *manifests.Set) []report.Finding {
	var out report.Report
	for _, item := range set.Skipped {
		o := item.Object
		if !strings.HasPrefix(o.APIVersion, "config.openshift.io/") || o.Kind != "ClusterImagePolicy" &&
			o.Kind != "ImagePolicy" {
			continue
		}
		at := item.Origin.At("", "image-policy")
		at.Next = "write /etc/containers/policy.json and a file in /etc/containers/registries.d with a MachineConfig; " +
			"signaturePolicyFile in install-config.yaml is for the nodes' own images"
		out.Errorf(at, "%s %s is not supported: no node would verify its images", o.Kind, o.Name)
	}
	return out.Findings
}

// unsupported refuses fields that the document's kind does not have: elsewhere they are another tool's and do no harm,
// but users rely on every node setting that they write.
func unsupported(set *manifests.Set, at manifests.Origin) []report.Finding {
	var out report.Report
	for _, f := range set.Findings {
		if f.Rule == manifests.RuleUnknownField && f.File == at.File && f.Document == at.Document &&
			strings.HasPrefix(f.Path, "spec.") {
			out.Errorf(f, "%s is not supported", strings.TrimPrefix(f.Path, "spec."))
		}
	}
	return out.Findings
}

// internal is a refusal because of an error of our own making.
func internal(err error) report.Finding {
	return report.Finding{Severity: report.Error, Rule: "internal", Message: err.Error()}
}

// registries makes each pool's component with the mirrors. As MCO leaves it: without a version, so that the cluster's
// own controller takes it over at once.
func registries(set *manifests.Set, pools []pool) ([]component, []report.Finding) {
	files, found, err := mirrors.Files(set)
	all := report.Report{Findings: found}
	if err != nil {
		all.Add(internal(err))
	}
	var list []nodeconf.File
	for _, f := range files {
		list = append(list, nodeconf.File(f))
	}
	var out []component
	for _, p := range pools {
		c, err := generated("99-"+p.Object.Name+"-generated-registries", p.Object.Name, list)
		if err != nil {
			all.Add(internal(err))
		} else if c != nil {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "config.openshift.io/v1", Kind: "Image"}}
			out = append(out, component{Object: c})
		}
	}
	return out, all.Findings
}

// inheritedTLS makes each pool's component with the TLS profile of the APIServer cluster.
func inheritedTLS(set *manifests.Set, pools []pool, hash string) ([]component, []report.Finding) {
	var out []component
	server, ok := apiServer(set)
	if !ok {
		return nil, nil
	}
	files, found, err := nodeconf.InheritedTLS(server)
	all := report.Report{Findings: found}
	if err != nil {
		all.Add(internal(err))
	}
	for _, p := range pools {
		c, err := generated("98-"+p.Object.Name+"-generated-kubelet", p.Object.Name, files)
		if err != nil {
			all.Add(internal(err))
		} else if c != nil {
			c.Annotations = map[string]string{manifests.AnnotationGeneratedByController: hash}
			out = append(out, component{Object: c, Origin: server.Origin})
		}
	}
	return out, all.Findings
}

// targets returns the pools that a setting selects by their labels; one object of a kind a pool. taken has, by kind and
// pool, the first object of each, and is added to.
func targets(pools []pool, s nodeSetting, taken map[string]manifests.Origin) ([]string, []report.Finding) {
	var bad report.Report
	chosen, err := metav1.LabelSelectorAsSelector(s.selector)
	place := s.origin.At("spec.machineConfigPoolSelector", "pool-selector")
	if err != nil {
		place.Next = "see the Kubernetes documentation on label selectors"
		bad.Errorf(place, "%s: %s", s.kind, err)
		return nil, bad.Findings
	}
	var out []string
	for _, p := range pools {
		name := p.Object.Name
		if chosen.Empty() || !chosen.Matches(labels.Set(p.Object.Labels)) {
			continue
		}
		if first, twice := taken[s.kind+" "+name]; twice {
			place.Next = "join it with the one in " + first.File
			bad.Errorf(place, "pool %s has two objects of kind %s", name, s.kind)
			continue
		}
		taken[s.kind+" "+name] = s.origin
		out = append(out, name)
	}
	if len(out) == 0 {
		place.Next = "select pools by their labels, for example pools.operator.machineconfiguration.openshift.io/worker"
		bad.Warnf(place, "%s selects no pool and has no effect", s.kind)
	}
	return out, bad.Findings
}

// generated is a component that this renderer makes for a pool, nil without files.
func generated(name, pool string, files []nodeconf.File) (*mcfgv1.MachineConfig, error) {
	if len(files) == 0 {
		return nil, nil
	}
	config := ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version}}
	for _, f := range files {
		mode, yes := generatedFileMode, true
		config.Storage.Files = append(config.Storage.Files, ign35.File{
			Node:          ign35.Node{Path: f.Path, Overwrite: &yes},
			FileEmbedded1: ign35.FileEmbedded1{Mode: &mode, Contents: machineconfig.Inline(f.Data)},
		})
	}
	raw, err := machineconfig.Encode(config)
	if err != nil {
		return nil, fmt.Errorf("write MachineConfig %s: %w", name, err)
	}
	return &mcfgv1.MachineConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{manifests.LabelRole: pool}},
		Spec:       mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}},
	}, nil
}
