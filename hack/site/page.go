package main

import (
	"bytes"
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// page is one Markdown file.
type page struct {
	file, title string
	source      []byte
	tree        ast.Node
	// headings are the names by which links reach its headings.
	headings map[string]bool
}

func markdown() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
}

func parse(file string, source []byte) *page {
	p := &page{file: file, title: file, source: source, headings: map[string]bool{}}
	p.tree = markdown().Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(p))))
	p.each(func(n ast.Node) {
		if h, ok := n.(*ast.Heading); ok && h.Level == 1 {
			p.title = p.words(h)
		}
	})
	return p
}

// Generate names a heading as GitHub does, so that the links of the files hold there and here: letters in lower case,
// digits, hyphens and underscores stay, blanks become hyphens, and a name that is taken gets a number.
func (p *page) Generate(value []byte, _ ast.NodeKind) []byte {
	name := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(string(value)))
	first := name
	for n := 1; p.headings[name]; n++ {
		name = fmt.Sprintf("%s-%d", first, n)
	}
	p.headings[name] = true
	return []byte(name)
}

// Put takes a name that a heading has already.
func (p *page) Put(value []byte) { p.headings[string(value)] = true }

// each calls f with every node, parents first.
func (p *page) each(f func(ast.Node)) {
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // f gives no error
		if entering {
			f(n)
		}
		return ast.WalkContinue, nil
	})
}

// words is the text of a node.
func (p *page) words(n ast.Node) string {
	var out strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // nothing here gives an error
		if t, ok := n.(*ast.Text); ok && entering {
			out.Write(t.Segment.Value(p.source))
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

// links are the destinations of the page's links.
func (p *page) links() []string {
	var out []string
	p.each(func(n ast.Node) {
		if l, ok := n.(*ast.Link); ok {
			out = append(out, string(l.Destination))
		}
	})
	return out
}

// pictures are the files of the page's pictures.
func (p *page) pictures() []string {
	var out []string
	p.each(func(n ast.Node) {
		if i, ok := n.(*ast.Image); ok {
			out = append(out, path.Join(path.Dir(p.file), string(i.Destination)))
		}
	})
	return out
}

// sections are the headings of the second level with the pages that links below them lead to, each page once.
func (p *page) sections() []section {
	var out []section
	seen := map[string]bool{}
	p.each(func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				title, _, _ := strings.Cut(p.words(n), ":")
				out = append(out, section{Title: title})
			}
		case *ast.Link:
			to, _, _ := strings.Cut(string(n.Destination), "#")
			file := path.Join(path.Dir(p.file), to)
			if path.Ext(file) == ".md" && len(out) > 0 && !seen[file] {
				seen[file] = true
				out[len(out)-1].Links = append(out[len(out)-1].Links, link{p.words(n), file})
			}
		}
	})
	return out
}

// render gives the page as HTML. address turns a link's destination into one of the website; a link without one becomes
// its text. It may be called once.
func (p *page) render(address func(to string) string) (string, error) {
	var without []*ast.Link
	p.each(func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Link:
			if n.Destination = []byte(address(string(n.Destination))); len(n.Destination) == 0 {
				without = append(without, n)
			}
		case *ast.Image:
			n.Destination = []byte(address(string(n.Destination)))
		}
	})
	for _, l := range without {
		for c := l.FirstChild(); c != nil; c = l.FirstChild() {
			l.Parent().InsertBefore(l.Parent(), l, c)
		}
		l.Parent().RemoveChild(l.Parent(), l)
	}
	var out bytes.Buffer
	if err := markdown().Renderer().Render(&out, p.source, p.tree); err != nil {
		return "", fmt.Errorf("render: %w", err)
	}
	return out.String(), nil
}
