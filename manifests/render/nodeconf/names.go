package nodeconf

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// KubeletSlips are the fields of a KubeletConfig that are most likely meant otherwise: the kubelet has no such field,
// and ignores it. It is for clusters where MCO makes the kubelet's configuration.
func KubeletSlips(item manifests.Item[*mcfgv1.KubeletConfig]) []report.Finding {
	var rep report.Report
	var fields map[string]json.RawMessage
	config := item.Object.Spec.KubeletConfig
	if config == nil || json.Unmarshal(config.Raw, &fields) != nil {
		return nil
	}
	forms := kubeletFields()
	known := append(slices.Sorted(maps.Keys(forms)), reservedFields()...)
	known = append(known, "apiVersion", "kind")
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at := item.Origin.At("spec.kubeletConfig."+name, manifests.RuleUnknownField)
		at.Next = report.DidYouMean(name, known, "correct or remove the field")
		var value any
		_ = json.Unmarshal(fields[name], &value) // a part of valid JSON
		switch want, mine := forms[name]; {
		case mine && value != nil && !hasForm(value, want):
			at.Rule, at.Next = "type", "see the kubelet's configuration reference"
			rep.Errorf(at, "%s must be of type %s", name, want)
		case slices.Contains(known, name):
		case report.Suggests(at):
			rep.Warnf(at, "the kubelet has no field %s and ignores it", name)
		default:
			at.Rule, at.Next = "kubelet-field", "see the kubelet's configuration reference"
			rep.Warnf(at, "the field %s is not known here: the kubelet ignores it if it does not know it either", name)
		}
		if entries, ok := value.(map[string]any); ok {
			resourceEntries(name, entries, item.Origin, &rep)
		}
	}
	return rep.Findings
}

// resources are what the kubelet reserves, and the signals by which it evicts pods (k8s.io/kubelet, config/v1beta1).
func resources(field string) []string {
	if strings.HasPrefix(field, "eviction") {
		return []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available",
			"imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "allocatableMemory.available",
			"pid.available"}
	}
	return []string{"cpu", "memory", "ephemeral-storage", "pid"}
}

// resourceEntries refuses amounts that are no strings, and warns of resources that the kubelet does not know.
func resourceEntries(field string, entries map[string]any, origin manifests.Origin, rep *report.Report) {
	if !strings.HasPrefix(field, "eviction") && !strings.HasSuffix(field, "Reserved") {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		at := origin.At("spec.kubeletConfig."+field+"."+key, manifests.RuleUnknownField)
		if _, isText := entries[key].(string); !isText {
			at.Rule, at.Next = "type", "put the amount into quotes, for example \"1Gi\""
			rep.Errorf(at, "%s.%s must be of type string", field, key)
			continue
		}
		known := resources(field)
		if slices.Contains(known, key) {
			continue
		}
		at.Next = report.DidYouMean(key, known, "the kubelet knows "+strings.Join(known, ", "))
		if !report.Suggests(at) {
			at.Rule = "kubelet-field"
		}
		rep.Warnf(at, "%s has no effect for %s", field, key)
	}
}
