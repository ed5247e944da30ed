package nodeconf

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/installconfig/strict"
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
	for _, f := range faultsOf(config.Raw, strict.Options{Null: true}) {
		at := item.Origin.At("spec.kubeletConfig."+f.Path, manifests.RuleUnknownField)
		at.Next = nextOf(f)
		switch {
		case f.Rule != strict.RuleUnknown:
			at.Rule = "type"
			rep.Errorf(at, "%s", f.Message)
		case report.Suggests(at):
			rep.Warnf(at, "the kubelet has no field %s and ignores it", f.Path)
		default:
			at.Rule = "kubelet-field"
			rep.Warnf(at, "the field %s is not known here: the kubelet ignores it if it does not know it either", f.Path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var entries map[string]any
		if json.Unmarshal(fields[name], &entries) == nil {
			resourceEntries(name, entries, item.Origin, &rep)
		}
	}
	return rep.Findings
}

// resourceEntries warns of resources that the kubelet does not know.
func resourceEntries(field string, entries map[string]any, origin manifests.Origin, rep *report.Report) {
	known := resources(field)
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if known == nil || slices.Contains(known, key) {
			continue
		}
		at := origin.At("spec.kubeletConfig."+field+"."+key, manifests.RuleUnknownField)
		at.Next = report.DidYouMean(key, known, "the kubelet knows "+strings.Join(known, ", "))
		if !report.Suggests(at) {
			at.Rule = "kubelet-field"
		}
		rep.Warnf(at, "%s has no effect for %s", field, key)
	}
}
