package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
)

// mutant is one small change of one file: the bytes from From to To become Text.
type mutant struct {
	File string
	Line int
	From int
	To   int
	Text string
	// Change says what is changed, for a reader.
	Change string
}

// apply returns the file's source with the change made.
func (m mutant) apply(source []byte) []byte {
	out := slices.Clone(source[:m.From])
	out = append(out, m.Text...)
	return append(out, source[m.To:]...)
}

// opposites are the operators that are changed, each with what it becomes.
func opposites() map[token.Token]token.Token {
	return map[token.Token]token.Token{
		token.EQL: token.NEQ, token.NEQ: token.EQL,
		token.LSS: token.GEQ, token.GEQ: token.LSS,
		token.GTR: token.LEQ, token.LEQ: token.GTR,
		token.LAND: token.LOR, token.LOR: token.LAND,
		token.ADD: token.SUB, token.SUB: token.ADD,
	}
}

// mutants lists every change of the package's files, in the order of the files and lines.
func (p goPackage) mutants() ([]mutant, error) {
	var all []mutant
	for _, name := range p.GoFiles {
		file := filepath.Join(p.Dir, name)
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found, err := mutantsOf(file, source)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has nothing to change: it has no condition, no error and no call", p.ImportPath)
	}
	return all, nil
}

// mutantsOf lists the changes of one file. A generated file has none.
func mutantsOf(file string, source []byte) ([]mutant, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(tree) {
		return nil, nil
	}
	s := sites{set: set, file: file, source: source}
	for _, d := range tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			ast.Inspect(fn, s.visit)
		}
	}
	return s.found, nil
}

// sites collects the changes of one file.
type sites struct {
	set    *token.FileSet
	file   string
	source []byte
	found  []mutant
}

func (s *sites) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if to, ok := opposites()[n.Op]; ok && !text(n) {
			at := s.offset(n.OpPos)
			s.add(n.OpPos, at, at+len(n.Op.String()), to.String(), fmt.Sprintf("%s becomes %s", n.Op, to))
		}
	case *ast.IfStmt:
		if _, binary := n.Cond.(*ast.BinaryExpr); !binary {
			from, to := s.offset(n.Cond.Pos()), s.offset(n.Cond.End())
			s.add(n.Cond.Pos(), from, to, "!("+string(s.source[from:to])+")", "the condition is negated")
		}
	case *ast.FuncDecl:
		if results := returnsError(n.Type); results > 0 {
			s.returns(n.Body, results)
		}
	case *ast.FuncLit:
		if results := returnsError(n.Type); results > 0 {
			s.returns(n.Body, results)
		}
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && !panics(call) {
			s.dropCall(call)
		}
	}
	return true
}

// text reports whether an addition joins strings: the opposite of that does not compile.
func text(n *ast.BinaryExpr) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			found = true
		}
		return !found
	})
	return found && n.Op == token.ADD
}

// returns changes each return of a function whose last result is an error: the error becomes nil. Function literals
// inside it are visited by themselves.
func (s *sites) returns(body *ast.BlockStmt, results int) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			// Fewer values than results: one call gives all of them.
			if len(n.Results) != results {
				return true
			}
			last := n.Results[results-1]
			if id, ok := last.(*ast.Ident); !ok || id.Name != "nil" {
				s.add(last.Pos(), s.offset(last.Pos()), s.offset(last.End()), "error(nil)", "the error is dropped")
			}
		}
		return true
	})
}

// dropCall leaves out a call whose results nobody uses. Its operands are still evaluated, so that it compiles.
func (s *sites) dropCall(call *ast.CallExpr) {
	from, to := s.offset(call.Pos()), s.offset(call.End())
	s.add(call.Pos(), from, to, "if false {"+string(s.source[from:to])+"}", "the call is left out")
}

func (s *sites) offset(p token.Pos) int { return s.set.Position(p).Offset }

func (s *sites) add(at token.Pos, from, to int, text, change string) {
	s.found = append(s.found, mutant{
		File: s.file, Line: s.set.Position(at).Line, From: from, To: to, Text: text, Change: change,
	})
}

// returnsError gives the number of a function's results when the last one is an error, else 0.
func returnsError(t *ast.FuncType) int {
	if t.Results == nil || len(t.Results.List) == 0 {
		return 0
	}
	id, ok := t.Results.List[len(t.Results.List)-1].Type.(*ast.Ident)
	if !ok || id.Name != "error" {
		return 0
	}
	return t.Results.NumFields()
}

// panics reports whether a call does not return: without it the function may lack a return.
func panics(call *ast.CallExpr) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}

// choose takes count of the mutants by chance, in their order; 0 takes all. One seed takes the same ones each time.
func choose(all []mutant, count int, seed int64) []mutant {
	if count == 0 || count >= len(all) {
		return all
	}
	places := rand.New(rand.NewSource(seed)).Perm(len(all))[:count]
	slices.Sort(places)
	out := make([]mutant, 0, count)
	for _, i := range places {
		out = append(out, all[i])
	}
	return out
}
