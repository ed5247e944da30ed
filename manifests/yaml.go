package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// YAML writes JSON as YAML with the very bytes of sigs.k8s.io/yaml, which the names of rendered configs are made from,
// in a fraction of its time: what objects mostly hold (plain keys, plain strings, numbers, texts of several lines) is
// written here, single strings of any other kind are left to the library, and so is the whole when there is anything
// unusual about it.
func YAML(raw []byte) ([]byte, error) {
	if tree, ok := parseTree(raw); ok {
		e := emitter{tree: tree, out: make([]byte, 0, len(raw)+len(raw)/4+64)}
		if e.document() {
			return e.out, nil
		}
	}
	return libraryYAML(raw)
}

// HashYAML feeds what YAML returns piece by piece to a hash, so that a large document is never in memory as a whole.
// begin returns the hash in its first state; it is called again when the work has to start over.
func HashYAML(raw []byte, begin func() hash.Hash) (hash.Hash, error) {
	if tree, ok := parseTree(raw); ok {
		e := emitter{tree: tree, out: make([]byte, 0, 2*flushAt), sink: begin()}
		if e.document() {
			e.sink.Write(e.out) // a hash never fails
			return e.sink, nil
		}
	}
	text, err := libraryYAML(raw)
	if err != nil {
		return nil, err
	}
	sink := begin()
	sink.Write(text)
	return sink, nil
}

// HashSpec is HashYAML for the spec of a MachineConfig: its Ignition config, which may be megabytes, is never copied.
func HashSpec(spec mcfgv1.MachineConfigSpec, begin func() hash.Hash) (hash.Hash, error) {
	bare := spec
	bare.Config = runtime.RawExtension{Raw: []byte(`"` + graftMark + `"`)}
	e, ok, err := graft(bare, spec.Config.Raw)
	if err != nil {
		return nil, err
	}
	if ok {
		e.out, e.sink = make([]byte, 0, 2*flushAt), begin()
		if e.document() {
			e.sink.Write(e.out) // a hash never fails
			return e.sink, nil
		}
	}
	raw, err := MarshalJSON(spec)
	if err != nil {
		return nil, err
	}
	return HashYAML(raw, begin)
}

// configYAML is YAML for a MachineConfig, also without copies of its Ignition config.
func configYAML(object *mcfgv1.MachineConfig) ([]byte, error) {
	bare := *object
	config := object.Spec.Config.Raw
	bare.Spec.Config = runtime.RawExtension{Raw: []byte(`"` + graftMark + `"`)}
	e, ok, err := graft(&bare, config)
	if err != nil {
		return nil, err
	}
	if ok {
		e.out = make([]byte, 0, len(config)+len(config)/4+flushAt)
		if e.document() {
			return e.out, nil
		}
	}
	raw, err := MarshalJSON(object)
	if err != nil {
		return nil, err
	}
	return YAML(raw)
}

// graft prepares an emitter for an object in which graftMark stands for value. It says false where the library decides,
// and where the mark stands more than once.
func graft(bare any, value []byte) (emitter, bool, error) {
	raw, err := json.Marshal(bare)
	if err != nil {
		return emitter{}, false, fmt.Errorf("write %T as JSON: %w", bare, err)
	}
	if bytes.Count(raw, []byte(graftMark)) != 1 {
		return emitter{}, false, nil
	}
	outer, ok := parseTree(raw)
	if !ok {
		return emitter{}, false, nil
	}
	inner, ok := parseTree(value)
	return emitter{tree: outer, graft: &inner}, ok, nil
}

func libraryYAML(raw []byte) ([]byte, error) {
	text, err := yaml.JSONToYAML(raw)
	if err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return text, nil
}

// tree is a JSON value as a flat list; the root is the first node.
type tree struct {
	raw   []byte
	nodes []node
}

// node is one value. Positions count in tree.raw; a string's exclude its quotes.
type node struct {
	kind               byte // '{' '[' '"' or 'a' for a number, true, false, null
	escaped            bool // a string with backslashes
	start, end         int32
	keyStart, keyEnd   int32
	child, next, count int32 // first child, next sibling (0 is none), number of children
}

// Bounds of what is written here; beyond them the library decides.
const (
	maxTreeDepth = 64
	maxTreeBytes = 1 << 30
)

// parseTree reads JSON whose strings are printable ASCII or simple escapes. It says false for everything else, also for
// what is no JSON: the library has the word there.
func parseTree(raw []byte) (tree, bool) {
	if len(raw) > maxTreeBytes {
		return tree{}, false
	}
	p := treeParser{tree: tree{raw: raw, nodes: make([]node, 0, len(raw)/64+16)}}
	if !p.value(0, maxTreeDepth) {
		return tree{}, false
	}
	p.space()
	return p.tree, p.pos == len(raw)
}

type treeParser struct {
	tree
	pos int
}

func (p *treeParser) space() {
	for p.pos < len(p.raw) {
		switch p.raw[p.pos] {
		case ' ', '\n', '\r', '\t':
			p.pos++
		default:
			return
		}
	}
}

// next skips white space and takes one byte, 0 at the end.
func (p *treeParser) take() byte {
	p.space()
	if p.pos == len(p.raw) {
		return 0
	}
	p.pos++
	return p.raw[p.pos-1]
}

// value appends one value with all that is in it.
func (p *treeParser) value(key int64, depth int) bool {
	if depth == 0 {
		return false
	}
	at := len(p.nodes)
	p.nodes = append(p.nodes, node{keyStart: int32(key >> 32), keyEnd: int32(key)})
	switch c := p.take(); {
	case c == '{' || c == '[':
		p.nodes[at].kind = c
		return p.members(at, c, depth)
	case c == '"':
		start, end, escaped, ok := p.text()
		n := &p.nodes[at]
		n.kind, n.start, n.end, n.escaped = '"', start, end, escaped
		return ok
	case c == '-' || '0' <= c && c <= '9' || c == 't' || c == 'f' || c == 'n':
		p.pos--
		return p.atom(at)
	default:
		return false
	}
}

func (p *treeParser) members(at int, open byte, depth int) bool {
	last := -1
	for {
		c := p.take()
		if c == open+2 && last < 0 { // the closing bracket is two after the opening one in ASCII
			return true
		}
		p.pos--
		var key int64
		if open == '{' {
			if p.take() != '"' {
				return false
			}
			start, end, escaped, ok := p.text()
			if !ok || escaped || p.take() != ':' {
				return false
			}
			key = int64(start)<<32 | int64(end)
		}
		here := int32(len(p.nodes))
		if !p.value(key, depth-1) {
			return false
		}
		if last < 0 {
			p.nodes[at].child = here
		} else {
			p.nodes[last].next = here
		}
		last = int(here)
		p.nodes[at].count++
		switch p.take() {
		case ',':
		case open + 2:
			return true
		default:
			return false
		}
	}
}

// text reads a string after its opening quote.
func (p *treeParser) text() (start, end int32, escaped, ok bool) {
	from := p.pos
	for i := from; i < len(p.raw); i++ {
		switch c := p.raw[i]; {
		case c == '"':
			p.pos = i + 1
			return int32(from), int32(i), escaped, true
		case c < ' ' || c >= 0x7f:
			return 0, 0, false, false
		case c == '\\':
			escaped = true
			i++
			if i == len(p.raw) || !plainEscape(p.raw[i:]) {
				return 0, 0, false, false
			}
		}
	}
	return 0, 0, false, false
}

// plainEscape says whether an escape means the same in JSON and in YAML and stands for printable ASCII, a tab or a line
// feed. The \u forms are those that Go's encoder writes for <, > and &.
func plainEscape(b []byte) bool {
	switch b[0] {
	case '"', '\\', 'n', 't':
		return true
	case 'u':
		if len(b) < 5 {
			return false
		}
		s := string(b[1:5])
		return s == "003c" || s == "003e" || s == "0026"
	default:
		return false
	}
}

// atom reads a whole number, true, false or null.
func (p *treeParser) atom(at int) bool {
	start := p.pos
	for p.pos < len(p.raw) && (p.raw[p.pos] == '-' || '0' <= p.raw[p.pos] && p.raw[p.pos] <= '9' || 'a' <= p.raw[p.pos] &&
		p.raw[p.pos] <= 'z') {
		p.pos++
	}
	n := &p.nodes[at]
	n.kind, n.start, n.end = 'a', int32(start), int32(p.pos)
	word := p.raw[start:p.pos]
	switch string(word) {
	case "true", "false", "null", "0":
		return true
	}
	digits := word
	if digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 15 || digits[0] == '0' {
		return false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// keys lists the keys of the object that a member of the root holds.
func (t tree) keys(member string) []string {
	var out []string
	for i := t.nodes[0].child; i != 0; i = t.nodes[i].next {
		n := &t.nodes[i]
		if string(t.raw[n.keyStart:n.keyEnd]) != member || n.kind != '{' {
			continue
		}
		for k := n.child; k != 0; k = t.nodes[k].next {
			out = append(out, string(t.raw[t.nodes[k].keyStart:t.nodes[k].keyEnd]))
		}
	}
	return out
}
