package proposal

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/installconfig/strict"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render/nodeconf"
	"dayone.dev/dayone/manifests/validation"
)

// object is one object of a file.
type object struct {
	raw             []byte
	kind            schema.GroupVersionKind
	namespace, name string
	origin          manifests.Origin
	// node is the object as it is written, and prefix its path in the document: it may be an item of a list. Placed: the
	// node's lines are those of the file.
	node   *yaml.Node
	prefix string
	placed bool
}

// String names the object with its place.
func (o *object) String() string {
	return o.kind.Kind + " " + o.name + " (" + o.at("", "").Place() + ")"
}

// at is a field's place: that of its key where key is set, else that of its value.
func (o *object) at(path, rule string) report.Finding { return o.find(path, rule, false) }

func (o *object) find(path, rule string, key bool) report.Finding {
	f := o.origin.At(joined(o.prefix, path), rule)
	if !o.placed {
		return f
	}
	f.Line, f.Column = o.origin.Line+o.node.Line-1, o.node.Column
	if line, column, found := strict.Place(o.node, path, key); found {
		f.Line, f.Column = o.origin.Line+line-1, column
	}
	return f
}

func joined(prefix, path string) string {
	if prefix == "" || path == "" {
		return prefix + path
	}
	return prefix + "." + path
}

// check compares the object with its type, Ignition's and the kubelet's among them, and asks for the API's own rules.
func (o *object) check(ctx context.Context, t reflect.Type, api *validation.Validator, bad *report.Report) error {
	var found report.Report
	for _, f := range strict.Check(o.node, t, "", strict.Options{Null: true}) {
		place := o.find(f.Path, f.Rule, f.Rule != strict.RuleType)
		if o.placed {
			place.Line, place.Column = o.origin.Line+f.Line-1, f.Column
		}
		place.Next = f.Next
		found.Errorf(place, "%s", f.Message)
	}
	o.keys(&found)
	o.ignition(&found)
	if found.Err() != nil {
		bad.Add(found.Findings...)
		return nil
	}
	answers, err := api.Findings(ctx, o.raw, o.origin)
	for _, f := range answers {
		place := o.at(f.Path, f.Rule)
		if place.Next = f.Next; f.Severity == report.Warning {
			place.Next = "see that the cluster has the gates on"
			found.Warnf(place, "the API has the field only with feature gates that are off by default")
			continue
		}
		place.Next = "correct the field"
		found.Errorf(place, "%s", f.Message)
	}
	if found.Err() == nil {
		o.settings(&found)
	}
	bad.Add(found.Findings...)
	return err
}

// keys refuses labels and annotations that are nearly, but not quite, ones that programs look at.
func (o *object) keys(bad *report.Report) {
	var head struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	_ = json.Unmarshal(o.raw, &head) // what has another form is refused already
	known := manifests.Keys()
	for part, has := range map[string]map[string]string{"labels": head.Metadata.Labels,
		"annotations": head.Metadata.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(has)) {
			near := nearKey(key, known)
			if near == "" {
				continue
			}
			place := o.find("metadata."+part+"["+key+"]", strict.RuleUnknown, true)
			place.Next = "did you mean " + near + "?"
			bad.Errorf(place, "nothing looks at this key")
		}
	}
}

// nearKey is the key that another one is a slip of. Other programs have keys of their own: it must be very near.
func nearKey(key string, known []string) string {
	if slices.Contains(known, key) {
		return ""
	}
	if i := slices.IndexFunc(known, func(k string) bool { return alike(key, k) }); i >= 0 {
		return known[i]
	}
	return ""
}

// alike tells that two words differ in one place only, by two letters at most.
func alike(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(a) <= 2 && len(b) <= 2
}

// ignition lets Ignition look at a MachineConfig's config: keys of its own version, and its rules.
func (o *object) ignition(bad *report.Report) {
	var config mcfgv1.MachineConfig
	if o.kind.Kind != "MachineConfig" || json.Unmarshal(o.raw, &config) != nil || len(config.Spec.Config.Raw) == 0 {
		return
	}
	found := machineconfig.Strict(config.Spec.Config.Raw)
	if len(found) == 0 {
		_, err := machineconfig.Parse(config.Spec.Config.Raw)
		found = report.Of(err)
	}
	for _, f := range found {
		place := o.find(joined("spec.config", f.Path), f.Rule, f.Rule == manifests.RuleUnknownField)
		place.Next = f.Next
		bad.Errorf(place, "%s", f.Message)
	}
}

// settings lets the renderer look at what becomes of a node setting, whichever pool it is for.
func (o *object) settings(bad *report.Report) {
	var found []report.Finding
	switch o.kind.Kind {
	case "KubeletConfig":
		var c mcfgv1.KubeletConfig
		if json.Unmarshal(o.raw, &c) == nil {
			_, found, _ = nodeconf.Kubelet(manifests.NewItem(&c))
		}
	case "ContainerRuntimeConfig":
		var c mcfgv1.ContainerRuntimeConfig
		if json.Unmarshal(o.raw, &c) == nil {
			_, found, _ = nodeconf.Runtime(manifests.NewItem(&c))
		}
	}
	for _, f := range found {
		place := o.at(f.Path, f.Rule)
		place.Next, place.Severity, place.Message = f.Next, f.Severity, f.Message
		bad.Add(place)
	}
}
