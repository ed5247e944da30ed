package manifests

import (
	"bytes"
	"reflect"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/installconfig/strict"
)

// node is a document's YAML, with lines counted from the file's first; nil where it cannot be read.
func (d document) node() *yaml.Node {
	var root yaml.Node
	if yaml.NewDecoder(bytes.NewReader(d.raw)).Decode(&root) != nil || len(root.Content) != 1 {
		return nil
	}
	return root.Content[0]
}

// comparison is what a document has beside its type, with the place in the file.
func comparison(doc document, t reflect.Type, at Origin) []report.Finding {
	n := doc.node()
	if n == nil {
		return nil
	}
	found := strict.Check(n, t, "", strict.Options{Null: true})
	for i := range found {
		f := &found[i]
		f.File, f.Document, f.Line = at.File, at.Document, f.Line+at.Line-1
		if f.Rule == strict.RuleUnknown {
			next := f.Next
			*f = unknownField(at, f.Path)
			f.Line, f.Column, f.Next = found[i].Line, found[i].Column, next
		}
	}
	return found
}

// inPlace gives a refusal of a document the line and the column of its path.
func inPlace(refusal error, doc document, at Origin) error {
	found := report.Of(refusal)
	n := doc.node()
	for i := range found {
		if n == nil {
			break
		}
		if line, column, ok := strict.Place(n, found[i].Path, false); ok {
			found[i].Line, found[i].Column = at.Line+line-1, column
		}
	}
	return &report.Invalid{Findings: found}
}

// kindMissing refuses a document without apiVersion or kind, where one of its keys is a slip at that key.
func kindMissing(doc document, at Origin) error {
	place := at.At("kind", "kind-missing")
	place.Next = "every document needs apiVersion and kind; files that are no manifests belong elsewhere"
	if n := doc.node(); n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			if near := report.Nearest(key.Value, []string{"apiVersion", "kind"}); near != "" && near != key.Value {
				place.Path, place.Line, place.Column = key.Value, at.Line+key.Line-1, key.Column
				place.Next = "did you mean " + near + "? " + place.Next
			}
		}
	}
	return refuse(place, "the document has no apiVersion or no kind")
}

// unknownField warns of a field that a kind does not have.
func unknownField(at Origin, path string) report.Finding {
	place := at.At(path, RuleUnknownField)
	place.Severity, place.Message = report.Warning, "the field is not known for this kind and has no effect"
	place.Next = "correct or remove the field"
	return place
}

// placed gives the reader's findings about a document, its warnings from before on and its refusal, the places that the
// comparison with the type has found. What the reader takes is not refused because of the comparison.
func placed(s *Set, before int, refusal error, found []report.Finding) error {
	var bad report.Report
	for _, f := range found {
		switch {
		case f.Rule == RuleUnknownField:
			for i := range s.Findings[before:] {
				if have := &s.Findings[before+i]; have.Rule == f.Rule && have.Path == f.Path {
					*have = f
				}
			}
		case f.Rule == RuleRepeatedKey:
			f.Severity, f.Message = report.Warning, f.Message+": all but its last value are lost"
			s.warn(f)
		default:
			f.Rule = "type"
			bad.Add(f)
		}
	}
	if refusal == nil || bad.Err() == nil {
		return refusal
	}
	return bad.Err()
}

// Locate gives a finding about a document the line and the column of its path, where it has only the document's first
// line or none. file is the content of the finding's file.
func Locate(file []byte, f *report.Finding) {
	if f.Column > 0 || f.Path == "" {
		return
	}
	docs, err := split(file)
	at := max(f.Document, 1) - 1
	if err != nil || at >= len(docs) {
		return
	}
	doc := docs[at]
	n := doc.node()
	if n == nil || f.Line != 0 && f.Line != doc.line {
		return
	}
	if line, column, ok := strict.Place(n, f.Path, f.Rule == RuleUnknownField); ok {
		f.Line, f.Column = doc.line+line-1, column
	}
}
