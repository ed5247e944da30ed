package strict

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
)

// Rules of the findings.
const (
	RuleUnknown  = "unknown-key"
	RuleRepeated = "repeated-key"
	RuleType     = "wrong-type"
)

// Options say how strict a comparison is; the zero value lets no value be null.
type Options struct {
	// Null lets every value be null, which leaves a field of an API object unset. Default: null is of the wrong kind.
	Null bool
}

// Check compares a node with a type, whose JSON names count. path stands before the findings' paths, and may be empty.
// The findings have line, column, path, rule, message and next; their file is left to the caller.
func Check(n *yaml.Node, t reflect.Type, path string, o Options) []report.Finding {
	c := checker{options: o}
	c.value(n, t, path)
	return c.report.Findings
}

type checker struct {
	options Options
	report  report.Report
	// open are the aliased nodes that are being looked at: an alias may lead to itself.
	open []*yaml.Node
}

var (
	jsonType  = reflect.TypeFor[json.Unmarshaler]()
	textType  = reflect.TypeFor[encoding.TextUnmarshaler]()
	bytesType = reflect.TypeFor[[]byte]()
)

func (c *checker) value(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind == yaml.AliasNode {
		if slices.Contains(c.open, n.Alias) {
			return
		}
		c.open = append(c.open, n.Alias)
		defer func() { c.open = c.open[:len(c.open)-1] }()
		n = n.Alias
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if c.options.Null && n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	switch {
	case reflect.PointerTo(t).Implements(jsonType):
		c.decode(n, t, path)
	case reflect.PointerTo(t).Implements(textType):
		c.text(n, t, path)
	case t == bytesType:
		c.base64(n, path)
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		c.mapping(n, t, path)
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		c.list(n, t, path)
	case t.Kind() == reflect.Interface:
		c.free(n, path)
	default:
		c.scalar(n, t, path)
	}
}

func (c *checker) list(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind != yaml.SequenceNode {
		c.refuse(n, path, RuleType, "expected a list", "start each entry with a dash")
		return
	}
	for i, e := range n.Content {
		c.value(e, t.Elem(), path+"["+strconv.Itoa(i)+"]")
	}
}

func (c *checker) mapping(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind != yaml.MappingNode {
		c.refuse(n, path, RuleType, "expected a mapping of keys to values", "indent the keys below "+lastPart(path))
		return
	}
	known := fields(t)
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			c.merge(value, t, path)
			continue
		}
		at := join(path, key.Value, t.Kind() == reflect.Map)
		switch {
		case seen[key.Value]:
			c.repeated(key, at)
		case t.Kind() == reflect.Map:
			c.value(value, t.Elem(), at)
		case known.of[key.Value] == nil:
			c.refuse(key, at, RuleUnknown, fmt.Sprintf("unknown key %q", key.Value),
				report.DidYouMean(key.Value, known.names, "known here: "+strings.Join(known.names, ", ")))
		default:
			c.value(value, known.of[key.Value], at)
		}
		seen[key.Value] = true
	}
}

// merge looks at what a mapping takes over: one mapping or several.
func (c *checker) merge(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind != yaml.SequenceNode {
		c.value(n, t, path)
		return
	}
	for _, e := range n.Content {
		c.value(e, t, path)
	}
}

// structure has a struct's fields by the names that JSON gives them, with those of embedded structs.
type structure struct {
	names []string
	of    map[string]reflect.Type
}

func fields(t reflect.Type) structure {
	out := structure{of: map[string]reflect.Type{}}
	if t.Kind() != reflect.Struct {
		return out
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case name == "" && f.Anonymous:
			inner := fields(f.Type)
			for _, name := range inner.names {
				out.add(name, inner.of[name])
			}
		case name == "":
			out.add(f.Name, f.Type)
		default:
			out.add(name, f.Type)
		}
	}
	return out
}

func (s *structure) add(name string, t reflect.Type) {
	if s.of[name] == nil {
		s.names = append(s.names, name)
	}
	s.of[name] = t
}

// free looks at what may have any form, where a key that occurs twice is still a fault.
func (c *checker) free(n *yaml.Node, path string) {
	seen := map[string]bool{}
	for i, e := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			c.free(e, path+"["+strconv.Itoa(i)+"]")
		case i%2 == 1:
			c.free(e, join(path, n.Content[i-1].Value, false))
		case seen[e.Value]:
			c.repeated(e, join(path, e.Value, false))
		}
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			seen[e.Value] = true
		}
	}
}

func (c *checker) repeated(key *yaml.Node, path string) {
	c.refuse(key, path, RuleRepeated, fmt.Sprintf("key %q occurs twice", key.Value), "keep one of them")
}

// decode lets a type that reads JSON itself say whether it takes a value.
func (c *checker) decode(n *yaml.Node, t reflect.Type, path string) {
	c.free(n, path)
	var value any
	if n.Decode(&value) != nil {
		return // the decoder of the whole says so
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return
	}
	if into, ok := reflect.New(t).Interface().(json.Unmarshaler); ok {
		if err := into.UnmarshalJSON(raw); err != nil {
			c.refuse(n, path, RuleType, "the value is none of this field's: "+err.Error(), "see the field's description")
		}
	}
}

func (c *checker) text(n *yaml.Node, t reflect.Type, path string) {
	into, ok := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	if !ok {
		return
	}
	if n.Kind != yaml.ScalarNode {
		c.refuse(n, path, RuleType, "expected one value", "write it behind the key")
	} else if err := into.UnmarshalText([]byte(n.Value)); err != nil {
		c.refuse(n, path, RuleType, err.Error(), "see docs/users/install-config.md for the field")
	}
}

func (c *checker) base64(n *yaml.Node, path string) {
	if n.Kind != yaml.ScalarNode || kindOf(n) != "a string" {
		c.refuse(n, path, RuleType, "expected a string in base64", "encode the value with base64 -w0")
	} else if _, err := base64.StdEncoding.DecodeString(n.Value); err != nil {
		c.refuse(n, path, RuleType, "the value is not base64", "encode it with base64 -w0; in a Secret, stringData takes "+
			"values as they are")
	}
}

func (c *checker) scalar(n *yaml.Node, t reflect.Type, path string) {
	want := ""
	switch t.Kind() {
	case reflect.Bool:
		want = "true or false"
	case reflect.String:
		want = "a string"
	case reflect.Float32, reflect.Float64:
		want = "a number"
	default:
		want = "a whole number"
	}
	have := kindOf(n)
	if have == want || want == "a number" && have == "a whole number" {
		return
	}
	next := "numbers, true and false as a string need quotes"
	if want != "a string" {
		next = "write it without quotes"
	}
	if have == "a list" || have == "a mapping" {
		next = "write one value behind the key"
	}
	c.refuse(n, path, RuleType, "expected "+want+", and this is "+have, next)
}

// kindOf is what a value is for programs that read YAML 1.1, as Kubernetes' do: yes and off are no strings.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping"
	}
	switch n.ShortTag() {
	case "!!int":
		return "a whole number"
	case "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "no value"
	}
	word := strings.ToLower(n.Value)
	if n.Style == 0 && slices.Contains([]string{"yes", "no", "on", "off", "y", "n"}, word) {
		return "true or false"
	}
	return "a string"
}

func (c *checker) refuse(n *yaml.Node, path, rule, message, next string) {
	c.report.Errorf(report.Finding{Line: n.Line, Column: n.Column, Path: path, Rule: rule, Next: next}, "%s", message)
}

func join(path, key string, inMap bool) string {
	switch {
	case path == "":
		return key
	case inMap:
		return path + "[" + key + "]"
	}
	return path + "." + key
}

func lastPart(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
