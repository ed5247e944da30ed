package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v35 "github.com/coreos/ignition/v2/config/v3_5"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

// Paths of the files that the server adds to every config (MCO, pkg/server and pkg/daemon/constants).
const (
	pathKubeletCA       = "/etc/kubernetes/kubelet-ca.crt"
	pathCloudCA         = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem"
	pathNodeAnnotations = "/etc/machine-config-daemon/node-annotations.json"
	pathKubeconfig      = "/etc/kubernetes/kubeconfig"
	pathContent         = "/etc/mcs-machine-config-content.json"
	pathEncapsulated    = "/etc/ignition-machine-config-encapsulated.json"
	dirDockerCerts      = "/etc/docker/certs.d/"
)

// appendedMode is the mode of every file that the server adds.
const appendedMode = 0o644

// material is what one pool's answers are made of.
type material struct {
	config     *mcfgv1.MachineConfig
	ignition   ign35.Config
	kubeletCA  []byte
	cloudCA    []byte
	kubeconfig []byte
	certs      map[string][]byte // by registry host
	additions  []ign35.Config
}

// compose makes the config of one version: the MachineConfig's own, the server's files in MCO's order, the additions,
// and last the encapsulated MachineConfig, which holds what Ignition does not apply. moveArguments is for versions that
// have no kernelArguments.
func (m *material) compose(moveArguments bool) (ign35.Config, error) {
	config := m.ignition
	config.Storage.Files = mendAppends(config.Storage.Files)
	mc := m.config.DeepCopy()
	if moveArguments {
		if err := moveKernelArguments(&config, mc); err != nil {
			return config, err
		}
	}
	put := placer{config: &config}
	put.replace(pathKubeletCA, m.kubeletCA)
	put.replace(pathCloudCA, m.cloudCA)
	annotations, err := nodeAnnotations(mc)
	if err != nil {
		return config, err
	}
	put.own(pathNodeAnnotations, annotations)
	if m.kubeconfig != nil {
		put.unless(pathKubeconfig, m.kubeconfig)
	}
	content, err := json.MarshalIndent(mc, "", "    ")
	if err != nil {
		return config, fmt.Errorf("write MachineConfig: %w", err)
	}
	put.own(pathContent, content)
	for _, host := range slices.Sorted(maps.Keys(m.certs)) {
		put.unless(dirDockerCerts+host+"/ca.crt", m.certs[host])
	}
	for _, addition := range m.additions {
		config = add(config, addition)
	}
	if moveArguments {
		if err := moveKernelArguments(&config, mc); err != nil {
			return config, err
		}
	}
	capsule, err := encapsulated(mc)
	if err != nil {
		return config, err
	}
	put.own(pathEncapsulated, capsule)
	return config, nil
}

// kept lists the server's files that are not added because the MachineConfig brings them itself.
func (m *material) kept() []string {
	optional := map[string]bool{pathKubeconfig: m.kubeconfig != nil}
	for host := range m.certs {
		optional[dirDockerCerts+host+"/ca.crt"] = true
	}
	var out []string
	for _, f := range m.ignition.Storage.Files {
		if optional[f.Path] {
			out = append(out, f.Path)
		}
	}
	return out
}

// add merges an addition over the config. Its plain contents replace packed ones wholly: Ignition's merge alone would
// keep the mark.
func add(config, addition ign35.Config) ign35.Config {
	addition.Ignition.Version = config.Ignition.Version
	addition.Storage.Files = slices.Clone(addition.Storage.Files)
	none := ""
	for i := range addition.Storage.Files {
		if f := &addition.Storage.Files[i]; f.Contents.Source != nil && f.Contents.Compression == nil {
			f.Contents.Compression = &none
		}
	}
	config = v35.Merge(config, addition)
	for i := range config.Storage.Files {
		if f := &config.Storage.Files[i]; f.Contents.Compression != nil && *f.Contents.Compression == "" {
			f.Contents.Compression = nil
		}
	}
	return config
}

// mendAppends drops overwrite from files that only append: rendering sets it on every file, Ignition refuses the pair.
func mendAppends(files []ign35.File) []ign35.File {
	out := slices.Clone(files)
	for i := range out {
		if f := &out[i]; f.Contents.Source == nil && len(f.Append) > 0 && f.Overwrite != nil && *f.Overwrite {
			f.Overwrite = nil
		}
	}
	return out
}

// moveKernelArguments moves what an old Ignition does not know to the MachineConfig, where the node's agent reads it.
func moveKernelArguments(config *ign35.Config, mc *mcfgv1.MachineConfig) error {
	if len(config.KernelArguments.ShouldNotExist) > 0 {
		return fmt.Errorf("move kernel arguments: the config removes %q, which Ignition below 3.3.0 cannot",
			config.KernelArguments.ShouldNotExist)
	}
	for _, a := range config.KernelArguments.ShouldExist {
		mc.Spec.KernelArguments = append(mc.Spec.KernelArguments, string(a))
	}
	config.KernelArguments = ign35.KernelArguments{}
	return nil
}

// nodeAnnotations are what the node's agent sets on its Node; a layered pool's image is the current and the desired
// one.
func nodeAnnotations(mc *mcfgv1.MachineConfig) ([]byte, error) {
	annotations := map[string]string{
		manifests.AnnotationCurrentConfig:    mc.Name,
		manifests.AnnotationDesiredConfig:    mc.Name,
		manifests.AnnotationFirstPivotConfig: mc.Name,
		manifests.AnnotationState:            manifests.StateDone,
	}
	if image := mc.Annotations[manifests.AnnotationPreBuiltImage]; image != "" {
		annotations[manifests.AnnotationCurrentImage] = image
		annotations[manifests.AnnotationDesiredImage] = image
	}
	raw, err := json.Marshal(annotations)
	if err != nil {
		return nil, fmt.Errorf("write node annotations: %w", err)
	}
	return raw, nil
}

// encapsulated is the MachineConfig without its Ignition config.
func encapsulated(mc *mcfgv1.MachineConfig) ([]byte, error) {
	bare := mc.DeepCopy()
	bare.Spec.Config = runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"` + machineconfig.Version + `"}}`)}
	bare.TypeMeta = metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"}
	raw, err := json.Marshal(bare)
	if err != nil {
		return nil, fmt.Errorf("write encapsulated MachineConfig: %w", err)
	}
	return raw, nil
}

// placer adds files to a config whose paths must stay unique.
type placer struct{ config *ign35.Config }

func (p *placer) find(path string) *ign35.File {
	for i := range p.config.Storage.Files {
		if p.config.Storage.Files[i].Path == path {
			return &p.config.Storage.Files[i]
		}
	}
	return nil
}

func (p *placer) add(path string, data []byte) {
	mode, yes := appendedMode, true
	p.config.Storage.Files = append(p.config.Storage.Files, ign35.File{
		Node:          ign35.Node{Path: path, Overwrite: &yes},
		FileEmbedded1: ign35.FileEmbedded1{Mode: &mode, Contents: machineconfig.Escaped(data)},
	})
}

// replace puts data into the file if the config has it, keeping mode and owner, else adds it; no data is nothing.
func (p *placer) replace(path string, data []byte) {
	if len(data) == 0 {
		return
	}
	if f := p.find(path); f != nil {
		f.Contents, f.Append = machineconfig.Escaped(data), nil
		return
	}
	p.add(path, data)
}

// own adds a file that only the server can know; one of the MachineConfig's at that path is taken out.
func (p *placer) own(path string, data []byte) {
	p.config.Storage.Files = slices.DeleteFunc(p.config.Storage.Files, func(f ign35.File) bool { return f.Path == path })
	p.add(path, data)
}

// unless adds a file that the MachineConfig may bring itself; then the MachineConfig's counts.
func (p *placer) unless(path string, data []byte) {
	if p.find(path) == nil {
		p.add(path, data)
	}
}
