package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode"

	"dayone.dev/dayone/installconfig"
)

// document is one YAML or JSON document of a file.
type document struct {
	raw  []byte
	line int // first line, from 1
	json bool
}

// cut is split for a file that findings name; strict is that of installconfig.RefuseUTF16.
func cut(raw []byte, name string, strict bool) ([]document, error) {
	if err := installconfig.RefuseUTF16(raw, name, strict); err != nil {
		return nil, err
	}
	docs, err := split(raw)
	if err != nil {
		at := Origin{File: name}
		if where, ok := errors.AsType[*lineError](err); ok {
			at.Line = where.line
		}
		return nil, syntaxFinding(err, at)
	}
	return docs, nil
}

// split cuts a file into its documents: JSON values one after the other, or YAML between lines that start with three
// dashes. Such a line may carry white space or a comment, nothing else, as with Kubernetes' own readers. Documents that
// hold nothing are left out.
func split(raw []byte) ([]document, error) {
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	trimmed := bytes.TrimLeftFunc(raw, unicode.IsSpace)
	if len(trimmed) > 0 && trimmed[0] == '{' {
		if docs, ok := splitJSON(raw); ok {
			return docs, nil
		}
	}
	return splitYAML(raw)
}

func splitJSON(raw []byte) ([]document, bool) {
	var docs []document
	dec := json.NewDecoder(bytes.NewReader(raw))
	line, last := 1, 0
	for dec.More() {
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return nil, false
		}
		start := int(dec.InputOffset()) - len(value)
		line += bytes.Count(raw[last:start], []byte("\n"))
		last = start
		docs = append(docs, document{raw: raw[start : start+len(value)], line: line, json: true})
	}
	// What is left must be white space: a file that goes on in YAML is read as YAML.
	return docs, len(bytes.TrimSpace(raw[dec.InputOffset():])) == 0
}

func splitYAML(raw []byte) ([]document, error) {
	var docs []document
	start, startLine, line := 0, 1, 0
	for pos := 0; pos < len(raw); {
		line++
		next := len(raw)
		if i := bytes.IndexByte(raw[pos:], '\n'); i >= 0 {
			next = pos + i + 1
		}
		if bytes.HasPrefix(raw[pos:next], []byte("---")) {
			rest := bytes.TrimSpace(raw[pos+3 : next])
			if len(rest) > 0 && rest[0] != '#' {
				return nil, &lineError{line: line, text: fmt.Sprintf("text %.40q on the line of the document separator", rest)}
			}
			docs = append(docs, document{raw: raw[start:pos], line: startLine})
			start, startLine = next, line+1
		}
		pos = next
	}
	return slices.DeleteFunc(append(docs, document{raw: raw[start:], line: startLine}), document.blank), nil
}

// lineError is a syntax error with its line in the file.
type lineError struct {
	line int
	text string
}

func (e *lineError) Error() string { return e.text }

// blank says whether a YAML document holds nothing but comments and white space.
func (d document) blank() bool {
	for rest := d.raw; len(rest) > 0; {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}
