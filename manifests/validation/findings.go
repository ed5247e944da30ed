package validation

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// RuleAPI is the rule of findings that the API server would answer with.
const RuleAPI = "api"

// Findings says what the API server would refuse in a JSON object, and which fields it would drop. Objects of other
// kinds than the CRDs' are passed over, and so is what is no object: the reader of manifests refuses it.
func (v *Validator) Findings(ctx context.Context, raw []byte, at manifests.Origin) ([]report.Finding, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, nil // the reader has said so, with the place
	}
	kind, name := object.GetKind(), object.GetName()
	faults, unknown, err := v.Create(ctx, object)
	if err != nil {
		return nil, err
	}
	var rep report.Report
	for _, path := range unknown {
		place := at.At(path, "unknown-field")
		place.Next = "correct or remove the field"
		rep.Warnf(place, "the field is not known for this kind and has no effect")
	}
	for _, f := range faults {
		place := at.At(f.Field, RuleAPI)
		place.Next = "mend the field: the cluster would refuse the object, and the installation would wait for it in vain"
		rep.Errorf(place, "the API refuses %s %q: %s", kind, name, text(f))
	}
	return rep.Findings, nil
}

// maxValue bounds what is quoted of a refused value, in characters.
const maxValue = 80

// text is a fault in one line. Values are quoted where they are short and plain.
func text(f *field.Error) string {
	switch value := f.BadValue.(type) {
	case string:
		if value != "" && len([]rune(value)) <= maxValue && f.Type != field.ErrorTypeRequired {
			return fmt.Sprintf("%s: %q: %s", f.Type, value, f.Detail)
		}
	case int64, float64, bool:
		return fmt.Sprintf("%s: %v: %s", f.Type, value, f.Detail)
	}
	if f.Detail == "" {
		return f.Type.String()
	}
	return fmt.Sprintf("%s: %s", f.Type, f.Detail)
}
