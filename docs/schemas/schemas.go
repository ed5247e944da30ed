// Package schemas has the JSON schemas of what commands print with -o json, a file a kind, made by make generate.
//
//	kind -> Of -> JSON schema
package schemas

import (
	"embed"
	"path"
	"strings"
)

//go:embed *.json
var files embed.FS

// Of is the schema of a kind; upper and lower case are the same. It is nil when there is no such kind.
func Of(kind string) []byte {
	for _, k := range Kinds() {
		if strings.EqualFold(k, kind) {
			raw, _ := files.ReadFile(k + ".json") // the name is of this list
			return raw
		}
	}
	return nil
}

// Kinds are all kinds, by name.
func Kinds() []string {
	entries, _ := files.ReadDir(".") // an embedded directory can be read
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}
	return out
}
