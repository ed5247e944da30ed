package strict

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Place finds a path such as spec.containerFile[0].content or metadata.annotations[example.com/key] below a node, and
// returns its line and column: those of the key where key is set, or where the value is a list or a mapping, else those
// of the value. Of a path that is not there it is the place of the nearest part that is; found says whether any is.
func Place(n *yaml.Node, path string, key bool) (line, column int, found bool) {
	at := (*yaml.Node)(nil)
	for path != "" {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		k, v, rest := step(n, path)
		if v == nil {
			break
		}
		at, n, path = k, v, strings.TrimPrefix(rest, ".")
	}
	switch {
	case at == nil:
		return 0, 0, false
	case path == "" && !key && n.Kind == yaml.ScalarNode:
		return n.Line, n.Column, true
	}
	return at.Line, at.Column, true
}

// step goes from a node to the first part of a path: its key (of an entry of a list the entry itself), its value, and
// what is left of the path.
func step(n *yaml.Node, path string) (key, value *yaml.Node, rest string) {
	if n.Kind == yaml.SequenceNode {
		inside, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
		i, err := strconv.Atoi(inside)
		if !ok || err != nil || i < 0 || i >= len(n.Content) {
			return nil, nil, path
		}
		return n.Content[i], n.Content[i], rest
	}
	if n.Kind != yaml.MappingNode {
		return nil, nil, path
	}
	longest := -1
	for i := 0; i+1 < len(n.Content); i += 2 {
		// Keys may have dots: of those that the path begins with, the longest is meant.
		name := n.Content[i].Value
		if after, ok := begins(path, name); ok && len(name) > longest {
			key, value, rest, longest = n.Content[i], n.Content[i+1], after, len(name)
		}
	}
	return key, value, rest
}

// begins says whether a path's first part is a key, plain or in brackets, and what follows.
func begins(path, key string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(path, "["+key+"]"); ok {
		return rest, true
	}
	rest, ok = strings.CutPrefix(path, key)
	return rest, ok && key != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
