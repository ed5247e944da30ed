package manifests

import (
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/installconfig/report"
)

// Origin says where an object was read. The zero value means that it was made in memory.
type Origin struct {
	// File is relative to the directory that was read.
	File string
	// Document counts the YAML documents of File from 1.
	Document int
	// Line is the first line of the document, counted from 1.
	Line int
}

// At is a finding's place: path is the field inside the object and rule the finding's identifier.
func (o Origin) At(path, rule string) report.Finding {
	return report.Finding{File: o.File, Document: o.Document, Line: o.Line, Path: path, Rule: rule}
}

// Item is one object with the place where it was read.
type Item[T any] struct {
	Object T
	Origin Origin
}

// Set holds objects in reading order: file name, then document. Names may repeat; who uses the Set decides what that
// means. The zero value is empty and ready to use.
type Set struct {
	MachineConfigs          []Item[*mcfgv1.MachineConfig]
	Pools                   []Item[*mcfgv1.MachineConfigPool]
	MachineOSConfigs        []Item[*mcfgv1.MachineOSConfig]
	ControllerConfigs       []Item[*mcfgv1.ControllerConfig]
	KubeletConfigs          []Item[*mcfgv1.KubeletConfig]
	ContainerRuntimeConfigs []Item[*mcfgv1.ContainerRuntimeConfig]
	FeatureGates            []Item[*configv1.FeatureGate]
	ICSPs                   []Item[*operatorv1alpha1.ImageContentSourcePolicy]
	IDMSs                   []Item[*configv1.ImageDigestMirrorSet]
	ITMSs                   []Item[*configv1.ImageTagMirrorSet]
	Images                  []Item[*configv1.Image]
	APIServers              []Item[*configv1.APIServer]
	Secrets                 []Item[*corev1.Secret]
	// ConfigMaps is absent when it is empty: earlier versions kept hashes of Sets without it.
	ConfigMaps []Item[*corev1.ConfigMap] `json:"ConfigMaps,omitempty"`
	// OSImageStreams is absent when it is empty, as ConfigMaps.
	OSImageStreams []Item[*mcfgv1.OSImageStream] `json:"OSImageStreams,omitempty"`
	// PinnedImageSets is absent when it is empty, as ConfigMaps.
	PinnedImageSets []Item[*mcfgv1.PinnedImageSet] `json:"PinnedImageSets,omitempty"`
	// ClusterImagePolicies is absent when it is empty, as ConfigMaps.
	ClusterImagePolicies []Item[*configv1.ClusterImagePolicy] `json:"ClusterImagePolicies,omitempty"`
	// Findings are warnings of the reader, for example fields that the object's type does not know.
	Findings []report.Finding
	// Skipped lists documents whose kind this program does not read.
	Skipped []Item[TypeName]
}

// TypeName is the type of a document as its author wrote it.
type TypeName struct{ APIVersion, Kind, Name string }

// Append adds the objects of other after those of s; objects are shared, not copied.
func (s *Set) Append(other *Set) {
	if other == nil {
		return
	}
	s.MachineConfigs = append(s.MachineConfigs, other.MachineConfigs...)
	s.Pools = append(s.Pools, other.Pools...)
	s.MachineOSConfigs = append(s.MachineOSConfigs, other.MachineOSConfigs...)
	s.ControllerConfigs = append(s.ControllerConfigs, other.ControllerConfigs...)
	s.KubeletConfigs = append(s.KubeletConfigs, other.KubeletConfigs...)
	s.ContainerRuntimeConfigs = append(s.ContainerRuntimeConfigs, other.ContainerRuntimeConfigs...)
	s.FeatureGates = append(s.FeatureGates, other.FeatureGates...)
	s.ICSPs = append(s.ICSPs, other.ICSPs...)
	s.IDMSs = append(s.IDMSs, other.IDMSs...)
	s.ITMSs = append(s.ITMSs, other.ITMSs...)
	s.Images = append(s.Images, other.Images...)
	s.APIServers = append(s.APIServers, other.APIServers...)
	s.Secrets = append(s.Secrets, other.Secrets...)
	s.ConfigMaps = append(s.ConfigMaps, other.ConfigMaps...)
	s.OSImageStreams = append(s.OSImageStreams, other.OSImageStreams...)
	s.PinnedImageSets = append(s.PinnedImageSets, other.PinnedImageSets...)
	s.ClusterImagePolicies = append(s.ClusterImagePolicies, other.ClusterImagePolicies...)
	s.Findings = append(s.Findings, other.Findings...)
	s.Skipped = append(s.Skipped, other.Skipped...)
}

// NewItem wraps an object that was made in memory.
func NewItem[T any](object T) Item[T] { return Item[T]{Object: object} }
