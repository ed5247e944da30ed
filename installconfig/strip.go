package installconfig

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
)

// stripped returns install-config.yaml without the layering field. All other bytes, comments and order stay as they
// are; comments directly above the field go with it. A file in flow style ({...}) is written anew in block style.
func (d *Document) stripped() ([]byte, error) {
	root, err := rootMapping(d.raw)
	if err != nil {
		return nil, err
	}
	var key *yaml.Node
	for i := 0; i < len(root.Content); i += 2 {
		if root.Content[i].Value == Field {
			key = root.Content[i]
			if root.Style&yaml.FlowStyle != 0 {
				root.Content = append(root.Content[:i:i], root.Content[i+2:]...)
				root.Style = 0
				return reencode(root)
			}
		}
	}
	if key == nil {
		return d.raw, nil
	}
	out := removeBlock(d.raw, key.Line-1)
	if again, err := parse(out); err != nil || again.Config != nil || !sameButField(d.raw, out) {
		return nil, report.Finding{File: FileName, Line: key.Line, Column: key.Column, Path: Field, Rule: "layout",
			Message: "the field cannot be cut out of the file without touching its neighbours",
			Next:    "write it as a key with a block of indented lines that nothing else refers to"}
	}
	return out, nil
}

// sameButField says whether after holds everything that before does, except the field.
func sameButField(before, after []byte) bool {
	var want, got map[string]any
	if yaml.Unmarshal(before, &want) != nil || yaml.Unmarshal(after, &got) != nil {
		return false
	}
	delete(want, Field)
	return reflect.DeepEqual(want, got)
}

func reencode(root *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("write %s: %w", FileName, err)
	}
	return b.Bytes(), enc.Close()
}

// removeBlock cuts the top-level block that starts at line index first, and the comment lines that touch it from above.
func removeBlock(raw []byte, first int) []byte {
	lines := strings.SplitAfter(string(raw), "\n")
	end := first + 1
	for end < len(lines) && !startsTopLevel(lines[end]) {
		end++
	}
	// Blank and comment lines at the left margin before the next key belong to that key.
	for end > first+1 && !strings.HasPrefix(lines[end-1], " ") && !strings.HasPrefix(lines[end-1], "\t") {
		end--
	}
	start := first
	for start > 0 && strings.HasPrefix(lines[start-1], "#") {
		start--
	}
	return []byte(strings.Join(append(lines[:start:start], lines[end:]...), ""))
}

func startsTopLevel(line string) bool {
	trimmed := strings.TrimRight(line, "\r\n")
	return trimmed != "" && !strings.ContainsAny(trimmed[:1], " \t#")
}
