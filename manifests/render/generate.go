package render

import (
	"fmt"
	"slices"
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

// made are the components that are generated, and what is to be said of what they are made of.
type made struct {
	report.Report
	components []component
}

// take notes what is to be said of an object, and an error of our own making.
func (m *made) take(found []report.Finding, err error) {
	m.Add(found...)
	if err != nil {
		m.Add(report.Finding{Severity: report.Error, Rule: "internal", Message: err.Error()})
	}
}

// add makes a pool's component of files, of which it needs one at least; mark completes its metadata.
func (m *made) add(name, pool string, files []nodeconf.File, from manifests.Origin, mark func(*metav1.ObjectMeta)) {
	if len(files) == 0 {
		return
	}
	c, err := generated(name, pool, files)
	m.take(nil, err)
	if c != nil {
		mark(&c.ObjectMeta)
		m.components = append(m.components, component{Object: c, Origin: from})
	}
}

// generate makes the components that follow from other kinds of objects, in MCO's order: registries, container runtime,
// kubelet. hash is the version that they carry.
func generate(set *manifests.Set, pools []pool, hash string) ([]component, []report.Finding) {
	var out made
	versioned := func(m *metav1.ObjectMeta) {
		m.Annotations = map[string]string{manifests.AnnotationGeneratedByController: hash}
	}
	out.registries(set, pools)
	out.take(imagePolicies(set), nil)
	out.inheritedTLS(set, pools, versioned)
	taken := map[string]manifests.Origin{}
	for _, s := range nodeSettings(set) {
		out.take(unsupported(set, s.origin), nil)
		files, found, err := s.files()
		out.take(found, err)
		names, found := targets(pools, s, taken)
		out.take(found, nil)
		for _, name := range names {
			out.add("99-"+name+"-generated-"+s.suffix, name, files, s.origin, versioned)
		}
	}
	return out.components, out.Findings
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

// registries makes each pool's component with mirrors and image policies. As MCO leaves it: without a version, so that
// the cluster's own controller takes it over at once.
func (m *made) registries(set *manifests.Set, pools []pool) {
	files, found, err := mirrors.Files(set, nil)
	m.take(found, err)
	for _, item := range set.ClusterImagePolicies {
		m.take(unsupported(set, item.Origin), nil)
	}
	for _, p := range pools {
		files := files
		if len(set.ClusterImagePolicies) > 0 {
			policy, found := policyOf(ownFiles(set, p), files)
			m.takeNew(found)
			if len(policy.data) > 0 {
				files, found, err = mirrors.Files(set, policy.data)
				m.take(nil, err)
				m.takeNew(policy.place(found))
			}
		}
		var list []nodeconf.File
		for _, f := range files {
			list = append(list, nodeconf.File(f))
		}
		m.add(registriesName(p.Object.Name), p.Object.Name, list, manifests.Origin{},
			func(m *metav1.ObjectMeta) {
				m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "config.openshift.io/v1", Kind: "Image"}}
			})
	}
}

// takeNew notes what another pool has not brought already.
func (m *made) takeNew(found []report.Finding) {
	for _, f := range found {
		if !slices.Contains(m.Findings, f) {
			m.Add(f)
		}
	}
}

// inheritedTLS makes each pool's component with the TLS profile of the APIServer cluster.
func (m *made) inheritedTLS(set *manifests.Set, pools []pool, mark func(*metav1.ObjectMeta)) {
	server, ok := apiServer(set)
	if !ok {
		return
	}
	files, found, err := nodeconf.InheritedTLS(server)
	m.take(found, err)
	for _, p := range pools {
		m.add("98-"+p.Object.Name+"-generated-kubelet", p.Object.Name, files, server.Origin, mark)
	}
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

// generated is a component that this renderer makes for a pool.
func generated(name, pool string, files []nodeconf.File) (*mcfgv1.MachineConfig, error) {
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
