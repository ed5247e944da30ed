package manifests

import (
	_ "embed"
	"regexp"
)

//go:embed keys.go
var keysSource string

var keyConstant = regexp.MustCompile(`(?m)^\s*(?:Annotation|Label)\w+\s*=\s*(MCOPrefix|DayonePrefix)\s*\+\s*"([^"]+)"`)

// Keys are the labels and annotations that have a name here, as this package's own source lists them.
func Keys() []string {
	var out []string
	for _, m := range keyConstant.FindAllStringSubmatch(keysSource, -1) {
		prefix := MCOPrefix
		if m[1] == "DayonePrefix" {
			prefix = DayonePrefix
		}
		out = append(out, prefix+m[2])
	}
	return out
}
