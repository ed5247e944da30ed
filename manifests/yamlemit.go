package manifests

import (
	"bytes"
	"encoding/json"
	"hash"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// emitter writes a tree in block style: two blanks a level, keys sorted, dashes at the column of the key that owns the
// list.
type emitter struct {
	tree
	out []byte
	// sink takes what has been written, nil to keep it all.
	sink hash.Hash
	// graft is a document of its own that is written where graftMark stands; nil is none.
	graft *tree
}

// graftMark stands, as a JSON string, for a value that is written from another tree.
const graftMark = "dayone-graft-of-a-large-value"

// flushAt is the number of bytes that are handed to the sink at a time.
const flushAt = 64 << 10

// flush hands over what is complete.
func (e *emitter) flush() {
	if e.sink != nil && len(e.out) >= flushAt {
		e.sink.Write(e.out)
		e.out = e.out[:0]
	}
}

func (e *emitter) document() bool {
	root := &e.nodes[0]
	if root.kind != '{' || root.count == 0 {
		return false
	}
	return e.mapping(0, 0)
}

// mapping writes the members of an object at column col; the first line's indentation is already there.
func (e *emitter) mapping(at int32, col int) bool {
	var few [16]int32
	members := few[:0]
	for i := e.nodes[at].child; i != 0; i = e.nodes[i].next {
		if !plainKey(e.key(i)) {
			return false
		}
		members = append(members, i)
	}
	slices.SortFunc(members, func(a, b int32) int { return bytes.Compare(e.key(a), e.key(b)) })
	for n, i := range members {
		e.flush()
		if n > 0 {
			if bytes.Equal(e.key(members[n-1]), e.key(i)) {
				return false
			}
			e.indent(col)
		}
		e.out = append(append(e.out, e.key(i)...), ':')
		if !e.member(i, col) {
			return false
		}
	}
	return true
}

func (e *emitter) key(i int32) []byte { return e.raw[e.nodes[i].keyStart:e.nodes[i].keyEnd] }

func (e *emitter) indent(col int) {
	for range col {
		e.out = append(e.out, ' ')
	}
}

// member writes what follows a key's colon.
func (e *emitter) member(i int32, col int) bool {
	n := &e.nodes[i]
	switch {
	case e.graft != nil && n.kind == '"' && string(e.raw[n.start:n.end]) == graftMark:
		return e.grafted(col + 2)
	case n.kind == '{' && n.count > 0:
		e.out = append(e.out, '\n')
		e.indent(col + 2)
		return e.mapping(i, col+2)
	case n.kind == '[' && n.count > 0:
		e.out = append(e.out, '\n')
		return e.list(i, col)
	case n.kind == '"' && !e.easy(n, col):
		return e.hard(e.nodes[i], string(e.key(i)), col, false)
	case n.kind == '"':
		return true
	default:
		e.out = append(e.out, ' ')
		return e.leaf(n)
	}
}

// grafted writes the other document's mapping at column col.
func (e *emitter) grafted(col int) bool {
	inner := emitter{tree: *e.graft, out: append(e.out, '\n'), sink: e.sink}
	inner.indent(col)
	ok := inner.nodes[0].kind == '{' && inner.nodes[0].count > 0 && inner.mapping(0, col)
	e.out = inner.out
	return ok
}

// leaf writes a number, a word or something empty.
func (e *emitter) leaf(n *node) bool {
	switch n.kind {
	case '{':
		e.out = append(e.out, "{}\n"...)
	case '[':
		e.out = append(e.out, "[]\n"...)
	default:
		e.out = append(append(e.out, e.raw[n.start:n.end]...), '\n')
	}
	return true
}

// list writes the entries of an array whose owner stands at column col.
func (e *emitter) list(at int32, col int) bool {
	for i := e.nodes[at].child; i != 0; i = e.nodes[i].next {
		n := &e.nodes[i]
		e.indent(col)
		e.out = append(e.out, '-')
		switch {
		case n.kind == '{' && n.count > 0:
			e.out = append(e.out, ' ')
			if !e.mapping(i, col+2) {
				return false
			}
		case n.kind == '[' && n.count > 0:
			return false
		case n.kind == '"':
			if !e.easy(n, col) && !e.hard(e.nodes[i], "a", col, true) {
				return false
			}
		default:
			e.out = append(e.out, ' ')
			e.leaf(n)
		}
	}
	return true
}

// easy writes a string that is surely plain or surely a literal block, and says false for any other.
func (e *emitter) easy(n *node, col int) bool {
	s := e.raw[n.start:n.end]
	if !n.escaped {
		if !plainString(s) {
			return false
		}
		e.out = append(append(append(e.out, ' '), s...), '\n')
		return true
	}
	return e.literal(s, col)
}

// literal writes a text of several lines that ends in one line feed; no line may begin or end with a blank.
func (e *emitter) literal(s []byte, col int) bool {
	mark := len(e.out)
	e.out = append(e.out, " |\n"...)
	text := len(e.out)
	fresh := true // at the beginning of a line
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' {
			i++
			switch c = s[i]; c {
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			case 'u':
				c = map[string]byte{"003c": '<', "003e": '>', "0026": '&'}[string(s[i+1:i+5])]
				i += 4
			}
		}
		blankAtEnd := c == '\n' && !fresh && e.out[len(e.out)-1] == ' '
		if c == '\t' || fresh && c == ' ' || blankAtEnd || c == '\n' && len(e.out) == text {
			e.out = e.out[:mark]
			return false
		}
		if fresh && c != '\n' {
			e.indent(col + 2)
		}
		fresh = c == '\n'
		e.out = append(e.out, c)
	}
	if !fresh || bytes.HasSuffix(e.out, []byte("\n\n")) {
		e.out = e.out[:mark]
		return false
	}
	return true
}

// hard lets the library write one string at the place where it stands: folding and indentation depend on the column.
func (e *emitter) hard(n node, key string, col int, inList bool) bool {
	var text string
	if json.Unmarshal(e.raw[n.start-1:n.end+1], &text) != nil {
		return false
	}
	var value any = text
	if inList {
		value = []string{text}
	}
	value = map[string]any{key: value}
	for range col / 2 {
		value = map[string]any{"a": value}
	}
	written, err := yaml.Marshal(value)
	if err != nil {
		return false
	}
	for range col / 2 {
		written = written[bytes.IndexByte(written, '\n')+1:]
	}
	if inList {
		written = written[bytes.IndexByte(written, '\n')+1:]
		e.out = append(e.out, written[col+1:]...)
		return true
	}
	e.out = append(e.out, written[col+len(key)+1:]...)
	return true
}

// plainKey says whether a key stands plain and sorts by its bytes: letters, dashes, dots and slashes, beginning with a
// letter.
func plainKey(k []byte) bool {
	if len(k) == 0 || len(k) > 100 || !letter(k[0]) || len(k) <= longestWord && special(string(k)) {
		return false
	}
	for _, c := range k {
		if !letter(c) && c != '-' && c != '.' && c != '/' {
			return false
		}
	}
	return true
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// plainString says whether a string without escapes is surely written as it stands: it begins with a letter or a slash
// (or with a digit and is surely no number), has no blanks, does not end in a colon and is no word that YAML reads as
// something else.
func plainString(s []byte) bool {
	if len(s) == 0 || s[len(s)-1] == ':' || len(s) <= longestWord && special(string(s)) {
		return false
	}
	if !letter(s[0]) && s[0] != '/' && !('0' <= s[0] && s[0] <= '9' && bytes.ContainsAny(s, neverInNumbers)) {
		return false
	}
	return bytes.IndexByte(s, ' ') < 0
}

// neverInNumbers are letters that no number and no time of YAML 1.1 has: digits to base 16, b, o, x, e, T and Z are
// left out.
const neverInNumbers = "ghijklmnpqrsuvwy"

// longestWord is the length of the longest word that special knows.
const longestWord = 5

// special says whether YAML 1.1 reads a word as null or as a boolean.
func special(s string) bool {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return true
	default:
		return false
	}
}
