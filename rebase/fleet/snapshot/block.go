package snapshot

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// cutList cuts a list into its items, as kubectl get -o yaml writes one; ok is false for every other document. An item
// begins with its "- ".
func cutList(document []byte) (items [][]byte, ok bool) {
	const head = "\nitems:\n- "
	at := bytes.Index(document, []byte(head))
	if at < 0 || bytes.Count(document[:at], []byte("\n")) > 1 || !bytes.HasPrefix(document, []byte("apiVersion: ")) ||
		bytes.Contains(document, []byte("\n---")) {
		return nil, false
	}
	rest := document[at+len(head)-len("- "):]
	for bytes.HasPrefix(rest, []byte("- ")) {
		end := 0
		for {
			next := bytes.IndexByte(rest[end:], '\n')
			if next < 0 {
				return nil, false // nothing says that the list is whole
			}
			end += next + 1
			if !bytes.HasPrefix(rest[end:], []byte("  ")) && !bytes.HasPrefix(rest[end:], []byte("\n")) {
				break
			}
		}
		items, rest = append(items, rest[:end]), rest[end:]
	}
	return items, bytes.HasPrefix(rest, []byte("kind: List\n"))
}

// unread tells the parts of objects that no plan looks at, and that are most of a large dump.
func unread(path string) bool { return path == "metadata.managedFields" || path == "status.images" }

// block reads YAML in the plain form in which programs write Kubernetes' objects: one key or item a line, scalars on
// one line, no comments, anchors or tags. What has another form is left to the library.
type block struct {
	text []byte
	// line is what is left of the present line, which begins at the column indent; over: there is none.
	line   string
	indent int
	over   bool
	out    []byte
}

// blockJSON gives an item of a list in JSON, without what no plan looks at; ok is false where the library must read it.
func blockJSON(item []byte) (raw []byte, ok bool) {
	b := &block{text: item, out: make([]byte, 0, len(item)/2)}
	if !b.advance() || !strings.HasPrefix(b.line, "- ") {
		return nil, false
	}
	b.line, b.indent = b.line[2:], b.indent+2
	ok = b.mapping("") && b.over
	return b.out, ok
}

// advance goes to the next line; it is false for an empty one.
func (b *block) advance() bool {
	if len(b.text) == 0 {
		b.over, b.indent, b.line = true, -1, ""
		return true
	}
	line, rest, _ := bytes.Cut(b.text, []byte("\n"))
	b.text = rest
	trimmed := bytes.TrimLeft(line, " ")
	b.indent, b.line = len(line)-len(trimmed), string(trimmed)
	return len(trimmed) > 0
}

// skip goes behind all that is below a key.
func (b *block) skip(indent int) {
	for len(b.text) > 0 {
		line, rest, _ := bytes.Cut(b.text, []byte("\n"))
		trimmed := bytes.TrimLeft(line, " ")
		at := len(line) - len(trimmed)
		if len(trimmed) > 0 && (at < indent || at == indent && !bytes.HasPrefix(trimmed, []byte("- "))) {
			break
		}
		b.text = rest
	}
	b.advance()
}

func (b *block) mapping(path string) bool {
	indent := b.indent
	b.out = append(b.out, '{')
	for first := true; !b.over && b.indent == indent; first = false {
		key, rest, ok := cutKey(b.line)
		if !ok {
			return false
		}
		below := strings.TrimPrefix(path+"."+key, ".")
		if rest == "" && unread(below) {
			b.skip(indent)
			continue
		}
		if !first && b.out[len(b.out)-1] != '{' {
			b.out = append(b.out, ',')
		}
		b.out = append(b.out, '"')
		b.out = append(b.out, key...)
		b.out = append(b.out, '"', ':')
		if !b.value(indent, rest, below) {
			return false
		}
	}
	b.out = append(b.out, '}')
	return b.indent < indent
}

// value reads what a key has: rest of its line, or the lines below.
func (b *block) value(indent int, rest, path string) bool {
	if rest != "" {
		for b.advance() { // a long scalar goes on below
			if b.over || b.indent <= indent {
				return b.scalar(rest)
			}
			if strings.HasSuffix(rest, " ") {
				break
			}
			rest += " " + b.line
		}
		return false
	}
	if !b.advance() {
		return false
	}
	switch {
	case b.indent > indent && strings.HasPrefix(b.line, "- "), b.indent == indent && strings.HasPrefix(b.line, "- "):
		return b.sequence(path)
	case b.indent > indent:
		return b.mapping(path)
	}
	b.out = append(b.out, "null"...)
	return true
}

func (b *block) sequence(path string) bool {
	indent := b.indent
	b.out = append(b.out, '[')
	for first := true; b.indent == indent && strings.HasPrefix(b.line, "- "); first = false {
		if !first {
			b.out = append(b.out, ',')
		}
		b.line, b.indent = b.line[2:], indent+2
		_, _, isKey := cutKey(b.line)
		switch {
		case isKey:
			if !b.mapping(path + "[]") {
				return false
			}
		case strings.HasPrefix(b.line, "- ") || strings.HasPrefix(b.line, " ") || !b.scalar(b.line) || !b.advance():
			return false
		}
	}
	b.out = append(b.out, ']')
	return b.indent <= indent
}

// cutKey cuts a line into its key and what follows; ok is false where it is no plain key.
func cutKey(line string) (key, rest string, ok bool) {
	key, rest, ok = strings.Cut(line, ": ")
	if !ok {
		key, ok = strings.CutSuffix(line, ":")
	}
	if !ok || key == "" || !letter(key[0]) || ambiguous(key) {
		return "", "", false
	}
	for i := range len(key) {
		if c := key[i]; !letter(c) && !digit(c) && !strings.ContainsRune("_./-", rune(c)) {
			return "", "", false
		}
	}
	return key, rest, true
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func digit(c byte) bool { return c >= '0' && c <= '9' }

// ambiguous tells whether a plain scalar that begins with a letter may mean something else than its letters.
func ambiguous(s string) bool {
	return slices.Contains([]string{"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"},
		strings.ToLower(s))
}

// scalar writes a scalar of one line.
func (b *block) scalar(s string) bool {
	switch {
	case s == "{}", s == "[]", s == "null", s == "true", s == "false", whole(s):
		b.out = append(b.out, s...)
		return true
	case s[0] == '"':
		b.out = append(b.out, s...)
		return json.Valid([]byte(s))
	case s[0] == '\'':
		inner := strings.ReplaceAll(s[1:max(1, len(s)-1)], "''", "\x00")
		if len(s) < 2 || s[len(s)-1] != '\'' || strings.Contains(inner, "'") {
			return false
		}
		return b.quoted(strings.ReplaceAll(inner, "\x00", "'"))
	}
	return plain(s) && b.quoted(s)
}

// quoted writes text as a JSON string.
func (b *block) quoted(s string) bool {
	raw, err := json.Marshal(s)
	b.out = append(b.out, raw...)
	return err == nil
}

// whole tells whether a scalar is a whole number, written as JSON writes it.
func whole(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || len(digits) > 18 || digits[0] == '0' && s != "0" {
		return false
	}
	return strings.Trim(digits, "0123456789") == ""
}

// plain tells whether a scalar without quotes is surely text.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	if strings.Contains(s, ": ") || strings.Contains(s, " #") || strings.HasSuffix(s, ":") || s[len(s)-1] == ' ' {
		return false
	}
	// A letter that no number and no time has.
	return letter(s[0]) && !ambiguous(s) || digit(s[0]) && strings.ContainsAny(s, "ghijklmnpqrsuvwyGHIJKLMNPQRSUVWY")
}
