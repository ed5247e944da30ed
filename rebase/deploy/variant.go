package deploy

import (
	"fmt"
	"strconv"
	"strings"
)

// unquoteVariant reads a string in GVariant's text form, which `ostree show --print-metadata-key` prints: in single quotes, or in
// double quotes when it holds a single one, with C-like escapes. Source: GLib, "GVariant Text Format".
func unquoteVariant(s string) (string, error) {
	s = strings.TrimSpace(s)
	if len(s) < 2 || (s[0] != '\'' && s[0] != '"') || s[len(s)-1] != s[0] {
		return "", fmt.Errorf("read ostree metadata: %q is no string", tail(s, 80))
	}
	rest, quote := s[1:len(s)-1], s[0]
	var b strings.Builder
	b.Grow(len(rest))
	for rest != "" {
		if rest[0] == '\\' && len(rest) > 1 && (rest[1] == '\'' || rest[1] == '"') { // both quotes may be escaped in either form
			b.WriteByte(rest[1])
			rest = rest[2:]
			continue
		}
		if rest[0] == quote {
			return "", fmt.Errorf("read ostree metadata: quote inside of a string")
		}
		if rest[0] != '\\' {
			n := strings.IndexAny(rest, `\`+string(quote))
			if n < 0 {
				n = len(rest)
			}
			b.WriteString(rest[:n])
			rest = rest[n:]
			continue
		}
		c, _, after, err := strconv.UnquoteChar(rest, quote)
		if err != nil {
			return "", fmt.Errorf("read ostree metadata: %w", err)
		}
		b.WriteRune(c)
		rest = after
	}
	return b.String(), nil
}
