package nodeconf

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/installconfig/strict"
)

// faultsOf are what the kubelet could not read of its configuration, as Kubernetes' own type says; their paths begin
// at its fields.
func faultsOf(raw []byte, o strict.Options) []report.Finding {
	var root yaml.Node
	if yaml.Unmarshal(raw, &root) != nil || len(root.Content) != 1 { // JSON is YAML
		return nil
	}
	return strict.Check(root.Content[0], reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), "", o)
}

// reference is where the kubelet's fields are told; a list of all of them would help nobody.
const reference = "see the kubelet's configuration reference"

// nextOf is what to do about a fault: an unknown field gets a suggestion at most.
func nextOf(f report.Finding) string {
	if f.Rule == strict.RuleUnknown && !report.Suggests(f) {
		return reference
	}
	return f.Next
}

// checkFields refuses what the platform sets and what the kubelet could not read: it would not start.
func checkFields(raw []byte, fields map[string]any, at placer, bad *report.Report) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		path := "spec.kubeletConfig." + name
		if slices.Contains(reservedFields(), name) {
			bad.Errorf(at(path, "kubelet-field", "remove the field"), "%s is set by the platform", name)
		}
		have, _ := fields[name].(map[string]any)
		known := resources(name)
		for _, key := range slices.Sorted(maps.Keys(have)) {
			if known != nil && !slices.Contains(known, key) {
				next := report.DidYouMean(key, known, "known here: "+strings.Join(known, ", "))
				bad.Errorf(at(path+"["+key+"]", "kubelet-field", next), "the kubelet knows no %s", key)
			}
		}
	}
	for _, f := range faultsOf(raw, strict.Options{}) {
		rule := "type"
		if f.Rule == strict.RuleUnknown {
			rule = "kubelet-field"
		}
		bad.Errorf(at("spec.kubeletConfig."+f.Path, rule, nextOf(f)), "%s", f.Message)
	}
}

// resources are what the kubelet reserves, and the signals by which it evicts pods, in the fields that hold amounts of
// them (k8s.io/kubelet, config/v1beta1); nil in others.
func resources(field string) []string {
	switch field {
	case "evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim":
		return []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available",
			"imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "allocatableMemory.available",
			"pid.available"}
	case "kubeReserved", "systemReserved":
		return []string{"cpu", "memory", "ephemeral-storage", "pid"}
	}
	return nil
}
