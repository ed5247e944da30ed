package installconfig

import (
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
)

// strict compares a YAML node with a Go type and reports every unknown key, repeated key and value of the wrong kind
// with its line and column. The decoder of the YAML library stops at a line number and knows neither the path nor the
// column.
type strict struct{ report *report.Report }

var (
	durationType = reflect.TypeOf(Duration(0))
	sizeType     = reflect.TypeOf(Size(0))
)

func (s strict) check(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == sizeType:
		var size Size
		if n.Kind != yaml.ScalarNode || size.UnmarshalText([]byte(n.Value)) != nil {
			s.refuse(n, path, "wrong-type", "%q is not a size", "write a number of bytes, or one with a unit, such as 8Gi",
				n.Value)
		}
	case t == durationType:
		var d Duration
		if n.Kind != yaml.ScalarNode {
			s.refuse(n, path, "wrong-type", "expected a duration", "write a number with a unit, such as 30m or 1h")
		} else if d.UnmarshalText([]byte(n.Value)) != nil {
			s.refuse(n, path, "wrong-type", "%q is not a duration", "write a number with a unit, such as 30m or 1h", n.Value)
		}
	case t.Kind() == reflect.Struct:
		s.mapping(n, t, path)
	case t.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			s.refuse(n, path, "wrong-type", "expected a list", "start each entry with a dash")
			return
		}
		for i, e := range n.Content {
			s.check(e, t.Elem(), path+"["+strconv.Itoa(i)+"]")
		}
	case t.Kind() == reflect.Int:
		s.scalar(n, path, "a whole number", "!!int")
	case t.Kind() == reflect.Bool:
		s.scalar(n, path, "true or false", "!!bool")
	case t.Kind() == reflect.String:
		s.scalar(n, path, "a string", "!!str")
	}
}

func (s strict) mapping(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind != yaml.MappingNode {
		s.refuse(n, path, "wrong-type", "expected a mapping of keys to values", "indent the keys below "+lastPart(path))
		return
	}
	fields := map[string]reflect.Type{}
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		fields[name] = t.Field(i).Type
		names = append(names, name)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := path + "." + key.Value
		field, known := fields[key.Value]
		switch {
		case !known:
			s.refuse(key, at, "unknown-key", "unknown key %q", "known here: "+strings.Join(names, ", "), key.Value)
		case seen[key.Value]:
			s.refuse(key, at, "repeated-key", "key %q occurs twice", "keep one of them", key.Value)
		default:
			s.check(value, field, at)
		}
		seen[key.Value] = true
	}
}

func (s strict) scalar(n *yaml.Node, path, want, tag string) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != tag {
		s.refuse(n, path, "wrong-type", "expected %s", "see docs/users/install-config.md for the field", want)
	}
}

func (s strict) refuse(n *yaml.Node, path, rule, format, next string, args ...any) {
	s.report.Errorf(report.Finding{File: FileName, Line: n.Line, Column: n.Column, Path: path, Rule: rule, Next: next},
		format, args...)
}

func lastPart(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
