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

// mutant is one small change of one file. Its edits put a switch into the file that makes the change when the program
// runs, so that one program holds all of a package's changes.
type mutant struct {
	File string
	Line int
	// Change says what is changed, for a reader.
	Change string
	// ID tells the switches apart; choose gives it.
	ID    int
	edits func(id int) []edit
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
	s := sites{set: set, file: file}
	for _, d := range tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			ast.Inspect(fn, s.visit)
		}
	}
	return s.found, nil
}

// sites collects the changes of one file; a change comes after those of the code around it.
type sites struct {
	set   *token.FileSet
	file  string
	found []mutant
}

func (s *sites) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if to, ok := opposites()[n.Op]; ok && !text(n) {
			s.operator(n, to)
		}
	case *ast.IfStmt:
		if _, binary := n.Cond.(*ast.BinaryExpr); !binary {
			s.negate(n.Cond, n.Cond.Pos(), "the condition is negated")
		}
	case *ast.FuncDecl:
		s.returns(n.Body, returnsError(n.Type))
	case *ast.FuncLit:
		s.returns(n.Body, returnsError(n.Type))
	case *ast.BlockStmt:
		s.calls(n.List)
	case *ast.CaseClause:
		s.calls(n.Body)
	case *ast.CommClause:
		s.calls(n.Body)
	}
	return true
}

// text reports whether an addition joins strings: that has no opposite.
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

// operator turns an operator into its opposite.
func (s *sites) operator(n *ast.BinaryExpr, to token.Token) {
	change := fmt.Sprintf("%s becomes %s", n.Op, to)
	before, after := s.offset(n.X.Pos()), s.offset(n.End())
	at, right := s.offset(n.OpPos), s.offset(n.Y.Pos())
	size := len(n.Op.String())
	switch n.Op {
	case token.LAND, token.LOR:
		// the right side is evaluated when it is needed only
		s.add(n.OpPos, change, func(id int) []edit {
			return []edit{opens(before, "%s(%d, func() bool { return ", switchOf(n.Op), id), replaces(at, size, "},"),
				opens(right, "func() bool { return "), closes(after, "})")}
		})
	case token.ADD, token.SUB:
		s.add(n.OpPos, change, func(id int) []edit {
			return []edit{opens(before, "%s(%d, ", switchOf(n.Op), id), replaces(at, size, ","), closes(after, ")")}
		})
	default:
		s.negate(n, n.OpPos, change)
	}
}

func (s *sites) negate(n ast.Expr, at token.Pos, change string) {
	from, to := s.offset(n.Pos()), s.offset(n.End())
	s.add(at, change, func(id int) []edit {
		return []edit{opens(from, "(("), closes(to, ") != mutantMade(%d))", id)}
	})
}

// returns changes each return of a function whose last result is an error: the error becomes nil. Function literals
// inside it are visited by themselves.
func (s *sites) returns(body *ast.BlockStmt, results int) {
	if results == 0 {
		return
	}
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
				from, to := s.offset(last.Pos()), s.offset(last.End())
				s.add(last.Pos(), "the error is dropped", func(id int) []edit {
					return []edit{opens(from, "mutantError(%d, func() error { return ", id), closes(to, "})")}
				})
			}
		}
		return true
	})
}

// calls leaves out each call among the statements whose results nobody uses.
func (s *sites) calls(list []ast.Stmt) {
	for _, stmt := range list {
		n, ok := stmt.(*ast.ExprStmt)
		if !ok {
			continue
		}
		if call, ok := n.X.(*ast.CallExpr); ok && !panics(call) {
			from, to := s.offset(call.Pos()), s.offset(call.End())
			s.add(call.Pos(), "the call is left out", func(id int) []edit {
				return []edit{opens(from, "if !mutantMade(%d) {", id), closes(to, "}")}
			})
		}
	}
}

func (s *sites) offset(p token.Pos) int { return s.set.Position(p).Offset }

func (s *sites) add(at token.Pos, change string, edits func(id int) []edit) {
	s.found = append(s.found, mutant{File: s.file, Line: s.set.Position(at).Line, Change: change, edits: edits})
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

// choose takes count of the mutants by chance, in their order, and numbers them; 0 takes all. One seed takes the same
// ones each time.
func choose(all []mutant, count int, seed int64) []mutant {
	places := rand.New(rand.NewSource(seed)).Perm(len(all))
	if count > 0 && count < len(all) {
		places = places[:count]
	}
	slices.Sort(places)
	out := make([]mutant, 0, len(places))
	for i, place := range places {
		m := all[place]
		m.ID = i + 1 // 0 is the program without a change
		out = append(out, m)
	}
	return out
}
