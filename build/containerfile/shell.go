package containerfile

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// unknown stands in a word for what only the shell knows: variables, commands, patterns.
const unknown = "\x00"

// commands are the simple commands of a RUN with their words, without quotes, also those inside of loops, functions and
// substitutions. What is no shell script is split at spaces.
func commands(in Instruction) [][]string {
	scripts := in.Heredocs
	if len(in.Args) == 1 {
		scripts = append([]string{in.Args[0]}, scripts...)
	}
	var out [][]string
	if len(in.Args) > 1 { // the form without a shell: no variables there
		out = append(out, in.Args)
	}
	for _, script := range scripts {
		file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
		if err != nil {
			out = append(out, fields(script)...)
			continue
		}
		syntax.Walk(file, func(node syntax.Node) bool {
			if call, ok := node.(*syntax.CallExpr); ok && len(call.Args) > 0 {
				var c []string
				for _, w := range call.Args {
					c = append(c, knownParts(w.Parts))
				}
				out = append(out, c)
			}
			return true
		})
	}
	return out
}

// knownParts joins what is literal in a word.
func knownParts(parts []syntax.WordPart) string {
	var b strings.Builder
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			b.WriteString(strings.ReplaceAll(p.Value, `\`, ""))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			b.WriteString(knownParts(p.Parts))
		default:
			b.WriteString(unknown)
		}
	}
	return b.String()
}

// fields is a rough reading of what the parser does not accept.
func fields(script string) [][]string {
	var out [][]string
	for _, line := range strings.FieldsFunc(script, func(r rune) bool { return strings.ContainsRune("\n;|", r) }) {
		var c []string
		for _, f := range strings.Fields(line) {
			f = strings.Trim(f, `"'`)
			if strings.ContainsAny(f, "$`") {
				f = unknown
			}
			c = append(c, f)
		}
		out = append(out, c)
	}
	return out
}
