package codeblocks

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// Block is a fenced code block.
type Block struct {
	// Line is the page's line at which the text begins.
	Line int
	// Language is the first word behind the fence, Where the rest.
	Language, Where string
	Text            string
}

// Of gives the blocks of a page in their order, also those in lists.
func Of(file string) (out []Block, err error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read code blocks: %w", err)
	}
	page := goldmark.DefaultParser().Parse(text.NewReader(source))
	return out, ast.Walk(page, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if fenced, is := n.(*ast.FencedCodeBlock); is && entering && fenced.Lines().Len() > 0 {
			b := Block{Line: 1 + bytes.Count(source[:fenced.Lines().At(0).Start], []byte("\n")),
				Text: string(fenced.Lines().Value(source))}
			if fenced.Info != nil {
				b.Language, b.Where, _ = strings.Cut(string(fenced.Info.Segment.Value(source)), " ")
			}
			out = append(out, b)
		}
		return ast.WalkContinue, nil
	})
}

// Indented gives the blocks of a page that an indent of four columns makes, in their order, also those in lists.
func Indented(file string) (out []Block, err error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read indented blocks: %w", err)
	}
	page := goldmark.DefaultParser().Parse(text.NewReader(source))
	return out, ast.Walk(page, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if indented, is := n.(*ast.CodeBlock); is && entering && indented.Lines().Len() > 0 {
			out = append(out, Block{Line: 1 + bytes.Count(source[:indented.Lines().At(0).Start], []byte("\n")),
				Text: string(indented.Lines().Value(source))})
		}
		return ast.WalkContinue, nil
	})
}

// Spans are the pieces of code within the sentences of a page.
func Spans(file string) (out []string, err error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read code in sentences: %w", err)
	}
	page := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	return out, ast.Walk(page, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if span, is := n.(*ast.CodeSpan); is && entering {
			words := ""
			for piece := span.FirstChild(); piece != nil; piece = piece.NextSibling() {
				if t, is := piece.(*ast.Text); is {
					words += string(t.Value(source))
				}
			}
			out = append(out, words)
		}
		return ast.WalkContinue, nil
	})
}

// Commands are the command lines of a block for a shell, each whole. A console shows them behind a prompt, with what
// they print below.
func (b Block) Commands() (out []string) {
	for line := range strings.Lines(strings.ReplaceAll(b.Text, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		command, prompted := strings.CutPrefix(line, "$ ")
		if b.Language == "sh" && line != "" || b.Language == "console" && prompted {
			out = append(out, command)
		}
	}
	return out
}

// Output is what a console shows below its commands.
func (b Block) Output() string {
	var out strings.Builder
	for line := range strings.Lines(b.Text) {
		if b.Language == "console" && !strings.HasPrefix(line, "$ ") {
			out.WriteString(line)
		}
	}
	return out.String()
}
