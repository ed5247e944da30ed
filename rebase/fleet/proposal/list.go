package proposal

import (
	"encoding/json"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/installconfig/strict"
)

// listFields refuses what a list does not have.
func (r *reader) listFields(o object) {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(o.raw, &fields) // the caller has read it
	known := []string{"apiVersion", "items", "kind", "metadata"}
	for key := range fields {
		if slices.Contains(known, key) {
			continue
		}
		place := o.find(key, strict.RuleUnknown, true)
		place.Next = report.DidYouMean(key, known, "known here: "+strings.Join(known, ", "))
		r.bad.Errorf(place, "unknown key %q", key)
	}
}

// entry is a list's entry as it is written, nil where the file does not show it.
func entry(n *yaml.Node, key string, i int) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for k := 0; k+1 < len(n.Content); k += 2 {
		list := n.Content[k+1]
		if n.Content[k].Value == key && list.Kind == yaml.SequenceNode && i < len(list.Content) {
			return list.Content[i]
		}
	}
	return nil
}
