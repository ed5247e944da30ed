package containerfile

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/openshift/imagebuilder/dockerfile/command"
	"github.com/openshift/imagebuilder/dockerfile/parser"
)

// File is a parsed Containerfile.
type File struct {
	Text   string
	Stages []Stage
	// Heading are the ARG instructions before the first FROM.
	Heading []Instruction
	// escape is the character that continues a line.
	escape rune
}

// Stage begins with a FROM.
type Stage struct {
	// Name is what AS says, in lower case; empty without one.
	Name string
	// From is the image or stage as it is written.
	From string
	// Line is FROM's.
	Line int
	// Instructions follow FROM.
	Instructions []Instruction
	end          int
}

// Instruction is one step.
type Instruction struct {
	// Keyword is in upper case.
	Keyword string
	// Text is the instruction in one line, continuation lines joined, heredoc bodies left out.
	Text string
	// Flags are written --like=this.
	Flags []string
	// Args are the words or, for RUN, the shell text.
	Args []string
	// Heredocs are the bodies.
	Heredocs []string
	// Line and End are the first and last line, from 1.
	Line, End int
	node      *parser.Node
}

// flag gives the value of --name=value.
func (i Instruction) flag(name string) (string, bool) {
	for _, f := range i.Flags {
		if v, ok := strings.CutPrefix(f, "--"+name+"="); ok {
			return v, true
		}
		if f == "--"+name {
			return "", true
		}
	}
	return "", false
}

// syntaxError is text that is no Containerfile.
type syntaxError struct {
	Line    int
	Message string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Message) }

// Parse reads a Containerfile. The error is a *syntaxError.
func Parse(text string) (*File, error) {
	result, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return nil, &syntaxError{Line: errorLine(text, err), Message: err.Error()}
	}
	file := &File{Text: text, escape: result.EscapeToken}
	for _, node := range result.AST.Children {
		in := instruction(node)
		switch {
		case in.Keyword == "FROM":
			file.Stages = append(file.Stages, stage(in))
		case len(file.Stages) == 0:
			file.Heading = append(file.Heading, in)
		default:
			last := &file.Stages[len(file.Stages)-1]
			last.Instructions = append(last.Instructions, in)
		}
	}
	return file, nil
}

func instruction(node *parser.Node) Instruction {
	in := Instruction{Keyword: strings.ToUpper(node.Value), Text: node.Original, Flags: node.Flags, Line: node.StartLine,
		End: node.EndLine, node: node}
	for n := node.Next; n != nil; n = n.Next {
		in.Args = append(in.Args, n.Value)
	}
	for _, h := range node.Heredocs {
		in.Heredocs = append(in.Heredocs, strings.TrimPrefix(h.Content, "\n"))
	}
	return in
}

func stage(from Instruction) Stage {
	s := Stage{Line: from.Line, end: from.End}
	if len(from.Args) > 0 {
		s.From = from.Args[0]
	}
	if len(from.Args) == 3 && strings.EqualFold(from.Args[1], "as") {
		s.Name = strings.ToLower(from.Args[2])
	}
	return s
}

// errorLine finds the line of a parser's error, which has none: the first line after which the same error comes. From
// there on it comes for every longer part, so a binary search will do.
func errorLine(text string, want error) int {
	lines := strings.Split(text, "\n")
	return 1 + sort.Search(len(lines)-1, func(n int) bool {
		_, err := parser.Parse(strings.NewReader(strings.Join(lines[:n+1], "\n")))
		return err != nil && err.Error() == want.Error()
	})
}

// known reports whether buildah has the instruction.
func known(keyword string) bool {
	_, ok := command.Commands[strings.ToLower(keyword)]
	return ok
}

// Final is the last stage, the one that becomes the image; nil without a FROM.
func (f *File) Final() *Stage {
	if len(f.Stages) == 0 {
		return nil
	}
	return &f.Stages[len(f.Stages)-1]
}

// stageIndex finds an earlier stage by name or number; -1 means that the name is an image.
func (f *File) stageIndex(name string, before int) int {
	for i := before - 1; i >= 0; i-- {
		if f.Stages[i].Name != "" && f.Stages[i].Name == strings.ToLower(name) || fmt.Sprint(i) == name {
			return i
		}
	}
	return -1
}

// Origin follows FROM from the stage with this index down to the image that it starts from.
func (f *File) Origin(index int) string {
	for {
		from := f.Stages[index].From
		before := f.stageIndex(from, index)
		if before < 0 {
			return from
		}
		index = before
	}
}

// Images lists the images that the Containerfile names itself, in FROM, --from and RUN --mount=from, without stages.
func (f *File) Images() []Use {
	var out []Use
	add := func(name string, line, before int) {
		if name != "" && f.stageIndex(name, before) < 0 &&
			!slices.ContainsFunc(out, func(u Use) bool { return u.Name == name }) {
			out = append(out, Use{Name: name, Line: line})
		}
	}
	for i, s := range f.Stages {
		add(s.From, s.Line, i)
		for _, in := range s.Instructions {
			if from, ok := in.flag("from"); ok {
				add(from, in.Line, i)
			}
			for _, flag := range in.Flags {
				add(mountFrom(flag), in.Line, i)
			}
		}
	}
	return out
}

// Use is an image's name and the first line that names it.
type Use struct {
	Name string
	Line int
}

func mountFrom(flag string) string {
	mount, ok := strings.CutPrefix(flag, "--mount=")
	if !ok {
		return ""
	}
	for _, field := range strings.Split(mount, ",") {
		if from, ok := strings.CutPrefix(field, "from="); ok {
			return from
		}
	}
	return ""
}
