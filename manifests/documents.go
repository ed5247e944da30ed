package manifests

import (
	"cmp"

	"go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"

	"dayone.dev/dayone/installconfig/report"
)

// Document is one YAML or JSON document of a file, of whatever kind.
type Document struct {
	// JSON is the value as kubectl would send it.
	JSON []byte
	// Node is the document as it is written; its first line is Origin's. Nil where only JSON can read it.
	Node   *yaml.Node
	Origin Origin
}

// Documents cuts a file into its documents and leaves out empty ones. The error is a report.
func Documents(raw []byte, name string, o ReadOptions) ([]Document, error) {
	docs, err := cut(raw, name, true)
	if err != nil {
		return nil, err
	}
	var out []Document
	var bad report.Report
	for _, doc := range docs {
		d := Document{JSON: doc.raw, Origin: Origin{File: name, Document: len(out) + 1, Line: doc.line}}
		place := d.Origin.At("", "too-large")
		place.Next = "divide the file, or the object: the cluster takes 1.5 MiB"
		if len(out) >= maxDocuments ||
			len(doc.raw) > cmp.Or(o.MaxDocumentBytes, DefaultMaxDocumentBytes) {
			bad.Errorf(place, "the document is the %d. of its file and has %d bytes: that is more than may be read",
				d.Origin.Document, len(doc.raw))
			break
		}
		if !doc.json {
			if d.JSON, err = kyaml.YAMLToJSON(doc.raw); err != nil {
				bad.Add(report.Of(syntaxFinding(err, d.Origin))...)
				d.JSON = []byte("null") // it counts, and is nothing
			}
		}
		d.Node = doc.node()
		out = append(out, d)
	}
	return out, bad.Err()
}
