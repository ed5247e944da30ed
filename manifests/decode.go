package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/installconfig/strict"
)

// API groups and versions that are read.
const (
	machineConfigAPI = "machineconfiguration.openshift.io/v1"
	// oldMachineConfigAPI had MachineOSConfigs before v1; MCO passes over them in silence.
	oldMachineConfigAPI = "machineconfiguration.openshift.io/v1alpha1"
	configAPI           = "config.openshift.io/v1"
	operatorAlphaAPI    = "operator.openshift.io/v1alpha1"
	coreAPI             = "v1"
)

// header is what every document must have.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// kind is how a kind is read: its type, and what decodes a document into the Set.
type kind struct {
	of    reflect.Type
	store func(s *Set, raw []byte, at Origin) error
}

// readKinds returns how each kind that is read is decoded, by apiVersion and kind.
func readKinds(o ReadOptions) map[string]map[string]kind {
	kinds := map[string]map[string]kind{
		machineConfigAPI: {
			"MachineConfig":     keep(func(s *Set) *[]Item[*mcfgv1.MachineConfig] { return &s.MachineConfigs }),
			"MachineConfigPool": keep(func(s *Set) *[]Item[*mcfgv1.MachineConfigPool] { return &s.Pools }),
			"MachineOSConfig":   keep(func(s *Set) *[]Item[*mcfgv1.MachineOSConfig] { return &s.MachineOSConfigs }),
			"ControllerConfig":  keep(func(s *Set) *[]Item[*mcfgv1.ControllerConfig] { return &s.ControllerConfigs }),
			"KubeletConfig":     keep(func(s *Set) *[]Item[*mcfgv1.KubeletConfig] { return &s.KubeletConfigs }),
			"ContainerRuntimeConfig": keep(func(s *Set) *[]Item[*mcfgv1.ContainerRuntimeConfig] {
				return &s.ContainerRuntimeConfigs
			}),
			"OSImageStream":  keep(func(s *Set) *[]Item[*mcfgv1.OSImageStream] { return &s.OSImageStreams }),
			"PinnedImageSet": keep(func(s *Set) *[]Item[*mcfgv1.PinnedImageSet] { return &s.PinnedImageSets }),
		},
		configAPI: {
			"FeatureGate":          keep(func(s *Set) *[]Item[*configv1.FeatureGate] { return &s.FeatureGates }),
			"ImageDigestMirrorSet": keep(func(s *Set) *[]Item[*configv1.ImageDigestMirrorSet] { return &s.IDMSs }),
			"ImageTagMirrorSet":    keep(func(s *Set) *[]Item[*configv1.ImageTagMirrorSet] { return &s.ITMSs }),
			"Image":                keep(func(s *Set) *[]Item[*configv1.Image] { return &s.Images }),
			"ClusterImagePolicy": keep(func(s *Set) *[]Item[*configv1.ClusterImagePolicy] {
				return &s.ClusterImagePolicies
			}),
			"APIServer": keep(func(s *Set) *[]Item[*configv1.APIServer] { return &s.APIServers }),
		},
		operatorAlphaAPI: {
			"ImageContentSourcePolicy": keep(func(s *Set) *[]Item[*operatorv1alpha1.ImageContentSourcePolicy] {
				return &s.ICSPs
			}),
		},
		coreAPI: {
			"Secret":    keep(func(s *Set) *[]Item[*corev1.Secret] { return &s.Secrets }),
			"ConfigMap": keep(func(s *Set) *[]Item[*corev1.ConfigMap] { return &s.ConfigMaps }),
		},
	}
	if o.ExpandLists {
		kinds[coreAPI]["List"] = kind{store: func(s *Set, raw []byte, at Origin) error {
			// Lists inside of lists are passed over.
			return decodeList(s, readKinds(ReadOptions{}), raw, at)
		}}
	}
	return kinds
}

// Rules of findings about what a document says and nothing reads.
const (
	// RuleUnknownField: the kind does not have the field.
	RuleUnknownField = "unknown-field"
	// RuleRepeatedKey: the key occurs twice, and all but its last value are lost.
	RuleRepeatedKey = strict.RuleRepeated
	// RuleOldVersion: the kind is read in a newer version only.
	RuleOldVersion = "machineosconfig-version"
)

// keep decodes into the list that pick names. Unknown fields are warnings; what is in a MachineConfig's config belongs
// to Ignition and is not checked here.
func keep[T any](pick func(*Set) *[]Item[*T]) kind {
	return kind{reflect.TypeFor[T](), func(s *Set, raw []byte, at Origin) error {
		object := new(T)
		unknown, err := kjson.UnmarshalStrict(raw, object, kjson.DisallowUnknownFields)
		if err != nil {
			return typeFinding(err, at)
		}
		for _, e := range unknown {
			if field, ok := e.(kjson.FieldError); ok {
				s.warn(unknownField(at, field.FieldPath()))
			}
		}
		list := pick(s)
		*list = append(*list, Item[*T]{Object: object, Origin: at})
		return nil
	}}
}

// decodeList adds the items of a v1 List.
func decodeList(s *Set, kinds map[string]map[string]kind, raw []byte, at Origin) error {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &list); err != nil {
		return typeFinding(err, at)
	}
	var bad report.Report
	for _, item := range list.Items {
		if err := decode(s, kinds, ReadOptions{}, document{raw: item, json: true}, at); err != nil {
			bad.Add(report.Of(err)...)
		}
	}
	return bad.Err()
}

// decode adds one document to the set. Kinds that are not read are listed in Skipped.
func decode(s *Set, kinds map[string]map[string]kind, o ReadOptions, doc document, at Origin) error {
	raw := doc.raw
	if !doc.json {
		var err error
		if raw, err = yaml.YAMLToJSON(doc.raw); err != nil {
			return syntaxFinding(err, at)
		}
	}
	if string(raw) == "null" {
		return nil
	}
	var h header
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &h); err != nil {
		return inPlace(typeFinding(err, at), doc, at)
	}
	if h.Kind == "" || h.APIVersion == "" {
		return kindMissing(doc, at)
	}
	if o.Inspect != nil {
		o.Inspect(raw, at)
	}
	into, ok := kinds[h.APIVersion][h.Kind]
	if !ok {
		s.skip(h, raw, at)
		return nil
	}
	before := len(s.Findings)
	err := into.store(s, raw, at)
	if into.of != nil && (err != nil || len(s.Findings) > before || o.repeated()) {
		err = placed(s, before, err, comparison(doc, into.of, at))
	}
	return err
}

// skip lists a document whose kind is not read. Its metadata may be anything: what is no name counts as none.
func (s *Set) skip(h header, raw []byte, at Origin) {
	var named struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	_ = kjson.UnmarshalCaseSensitivePreserveInts(raw, &named)
	name := named.Metadata.Name
	if h.APIVersion == oldMachineConfigAPI && h.Kind == "MachineOSConfig" {
		place := at.At("apiVersion", RuleOldVersion)
		place.Next = "write it for " + machineConfigAPI
		var r report.Report
		r.Warnf(place, "MachineOSConfig %s is of version %s, which is not read: its pool will not be layered", name,
			h.APIVersion)
		s.warn(r.Findings...)
	}
	s.Skipped = append(s.Skipped, Item[TypeName]{Object: TypeName{h.APIVersion, h.Kind, name}, Origin: at})
}

func (s *Set) warn(f ...report.Finding) { s.Findings = append(s.Findings, f...) }

func refuse(place report.Finding, format string, args ...any) error {
	var r report.Report
	r.Errorf(place, format, args...)
	return r.Err()
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// syntaxFinding turns the YAML library's error into a finding; its line counts from the document's first line.
func syntaxFinding(err error, at Origin) error {
	place := at.At("", "syntax")
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		if n, convErr := strconv.Atoi(m[1]); convErr == nil {
			place.Line = at.Line + n - 1
		}
		text = strings.Replace(text, m[0], "", 1)
	}
	place.Next = "mend the YAML or JSON, or move the file away if it is no manifest"
	return refuse(place, "cannot be read as YAML or JSON: %s", text)
}

// typeFinding turns a decoding error into a finding that names the field.
func typeFinding(err error, at Origin) error {
	place := at.At("", "type")
	text := err.Error()
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		place.Path = wrong.Field
		text = fmt.Sprintf("is a %s, but must be %s", wrong.Value, jsonKind(wrong.Type))
	} else if m := goField.FindStringSubmatch(text); m != nil {
		place.Path = m[2]
		text = fmt.Sprintf("is of type %s, but must be %s", m[1], m[3])
	}
	place.Next = "give the field the type that the API has for it; numbers and true/false as strings need quotes"
	return refuse(place, "%s", text)
}

// jsonKind names a Go type as a user of the manifest knows it.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Pointer:
		return jsonKind(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	}
	return t.String()
}

// goField takes the decoder's message apart: the type found, the field's path and the type wanted.
var goField = regexp.MustCompile(`cannot unmarshal (.+) into Go struct field [^ .]*\.?([^ ]*) of type (.+)$`)
