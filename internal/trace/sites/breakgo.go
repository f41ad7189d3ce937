package sites

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// breakGo breaks the expectation that a citation on a line is about: of a table, what the
// rows with the ID expect, unless the citation names it itself; else the first at or
// after it in what runs with it; else the last request there whose code is
// expected; else, as some cite when all is done, the last expectation before it; else what
// a helper is told by a field of a table; else the first one of the functions of the file
// that are called after it. An expectation is a condition under which the test fails, or
// what a helper is told to expect, or a line of a simulation that looks at what was printed.
func breakGo(name string, data []byte, line int, id string) (*Break, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, data, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	g := &goBreak{set: set, line: line}
	if !g.cites(file, id) {
		// Which of them belongs to the test, is not known.
		if all := rows(file, id); len(all) > 0 {
			return g.write(data, all), nil
		}
	}
	for _, decl := range file.Decls {
		if g.holds(decl) {
			ast.Inspect(g.subtest(decl), g.visit)
		}
	}
	e := cmp.Or(g.after, g.code, g.before, g.field, g.within(file))
	if e == nil {
		return nil, noWay("no expectation was found about the citation")
	}
	return g.write(data, []*change{e}), nil
}

// goBreak looks for what to break.
type goBreak struct {
	set   *token.FileSet
	line  int
	calls []string

	after, code, before, field *change // nil: none is there
}

// change is a part of a file and what to make of it.
type change struct {
	from, to token.Pos
	write    func(string) string
}

// holds reports whether the line of the citation is one of n.
func (g *goBreak) holds(n ast.Node) bool {
	return g.set.Position(n.Pos()).Line <= g.line && g.line <= g.set.Position(n.End()).Line
}

// cites reports whether a call on the line names the ID, rather than a table for it.
func (g *goBreak) cites(file *ast.File, id string) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && isProves(call) && g.holds(call) && slices.Contains(literalIDs(call.Args[1:]), id)
		return !found
	})
	return found
}

// subtest returns the innermost function in decl that holds the citation and is given a test of its
// own: who runs that one by its name leaves out its neighbours. Else decl itself runs.
func (g *goBreak) subtest(decl ast.Node) ast.Node {
	inner := decl
	ast.Inspect(decl, func(n ast.Node) bool {
		if fn, ok := n.(*ast.FuncLit); ok && g.holds(fn) && len(fn.Type.Params.List) > 0 && isTest(fn.Type.Params.List[0]) {
			inner = fn
		}
		return true
	})
	return inner
}

// isTest reports whether a parameter is a test: they are all called t.
func isTest(param *ast.Field) bool { return len(param.Names) == 1 && param.Names[0].Name == "t" }

// write makes changes, of which none adds a line.
func (g *goBreak) write(data []byte, changes []*change) *Break {
	b, last := &Break{}, 0
	was := strings.Split(string(data), "\n")
	for _, c := range changes {
		from, to := g.set.Position(c.from).Offset, g.set.Position(c.to).Offset
		b.Data = append(append(b.Data, data[last:from]...), c.write(string(data[from:to]))...)
		last = to
		number := g.set.Position(c.from).Line
		b.Lines = append(b.Lines, Line{Number: number, Was: strings.TrimSpace(was[number-1])})
	}
	b.Data = append(b.Data, data[last:]...)
	now := strings.Split(string(b.Data), "\n")
	for i, l := range b.Lines {
		b.Lines[i].Now = strings.TrimSpace(now[l.Number-1])
	}
	return b
}

func (g *goBreak) visit(n ast.Node) bool {
	if n == nil || g.after != nil {
		return false
	}
	switch n := n.(type) {
	case *ast.IfStmt:
		if fails(n.Body) && !isErrorCheck(n.Cond) {
			g.found(n, &change{n.Cond.Pos(), n.Cond.End(), func(cond string) string { return "!(" + cond + ")" }})
		}
	case *ast.CallExpr:
		if isProves(n) {
			return false
		}
		if c := told(n); c != nil {
			g.found(n, c)
			break
		}
		if cond := awaited(n); cond != nil {
			g.found(n, &change{cond.Pos(), cond.End(), func(text string) string { return "false && (" + text + ")" }})
			break
		}
		if lit := scriptLine(n); lit != nil {
			g.found(n, &change{lit.Pos(), lit.End(), func(text string) string { return text[:1] + "! " + text[1:] }})
			break
		}
		if g.set.Position(n.Pos()).Line < g.line {
			break
		}
		g.calls = append(g.calls, calledName(n))
		if arg, ok := wantedArg(n).(*ast.SelectorExpr); ok {
			g.field = &change{arg.Pos(), arg.End(), func(text string) string { return text + ` + " ` + wrong + `"` }}
		}
		if lit := wantedCode(n); lit != nil {
			g.code = &change{lit.Pos(), lit.End(), func(code string) string { return code + "7" }}
		}
	}
	return g.after == nil
}

// within returns the first expectation of the functions of the file that are called
// after the citation, those that the function with the citation gives a name included.
func (g *goBreak) within(file *ast.File) *change {
	bodies := map[string]ast.Node{}
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			bodies[fn.Name.Name] = fn
		}
	}
	for _, decl := range file.Decls {
		if g.holds(decl) {
			ast.Inspect(decl, func(n ast.Node) bool {
				if set, ok := n.(*ast.AssignStmt); ok && len(set.Lhs) == 1 && len(set.Rhs) == 1 {
					if fn, ok := set.Rhs[0].(*ast.FuncLit); ok {
						bodies[namedBy(set.Lhs[0])] = fn
					}
				}
				return true
			})
		}
	}
	for _, name := range g.calls {
		if body := bodies[name]; body != nil {
			inner := &goBreak{set: g.set}
			if ast.Inspect(body, inner.visit); inner.after != nil {
				return inner.after
			}
		}
	}
	return nil
}

// found takes an expectation in, whose statement begins before or after the citation.
func (g *goBreak) found(n ast.Node, c *change) {
	if g.set.Position(n.Pos()).Line >= g.line {
		g.after = c
	} else {
		g.before = c
	}
}

// fails reports whether a block fails the test, or returns an error to what asks again.
func fails(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return !found
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			switch sel.Sel.Name {
			case "Error", "Errorf", "Fatal", "Fatalf":
				found = true
			case "New":
				x, ok := sel.X.(*ast.Ident)
				found = found || ok && x.Name == "errors"
			}
		}
		return !found
	})
	return found
}

// isErrorCheck reports whether a condition is err != nil alone: that something went well
// is seldom what a citation is about.
func isErrorCheck(cond ast.Expr) bool {
	b, ok := cond.(*ast.BinaryExpr)
	if !ok || b.Op != token.NEQ {
		return false
	}
	return isIdent(b.X, "err") && isIdent(b.Y, "nil")
}

// telling are helpers that are told what to expect, not by their first argument: the
// place of that among the arguments, or -1 for the last one.
var telling = map[string]int{"check": -1, "expect": -1, "heard": -1, "reach": 2, "said": -1, "sees": -1, "where": -1}

// wantedArg returns the argument that tells a helper what to expect: one of those above,
// or one whose name begins with want, check, expect or await and that is handed the test.
func wantedArg(call *ast.CallExpr) ast.Expr {
	name := calledName(call)
	at, ok := telling[name]
	if !ok {
		lower := strings.ToLower(name)
		if !slices.ContainsFunc([]string{"want", "check", "expect", "sees", "await"}, func(p string) bool { return strings.HasPrefix(lower, p) }) || !isGivenTest(call) {
			return nil
		}
		at = -1
	}
	if at < 0 {
		at += len(call.Args)
	}
	if at < 0 || at >= len(call.Args) {
		return nil
	}
	return call.Args[at]
}

// told returns the change of the last string in what a helper is told to expect, or else of
// its number: the argument itself, or that of the call which makes it.
func told(call *ast.CallExpr) *change {
	arg := wantedArg(call)
	if arg == nil {
		return nil
	}
	if lit := lastString(arg); lit != nil {
		return wrongString(lit)
	}
	if made, ok := arg.(*ast.CallExpr); ok && len(made.Args) > 0 {
		arg = made.Args[len(made.Args)-1]
	}
	return wrongNumber(arg)
}

// awaited returns the condition that a call waits for, if that is what its last argument returns.
func awaited(call *ast.CallExpr) ast.Expr {
	if name := calledName(call); name != "wait" && name != "eventually" || len(call.Args) == 0 {
		return nil
	}
	fn, ok := call.Args[len(call.Args)-1].(*ast.FuncLit)
	if !ok || len(fn.Body.List) == 0 || fn.Type.Results == nil || !isIdent(fn.Type.Results.List[0].Type, "bool") {
		return nil
	}
	ret, ok := fn.Body.List[len(fn.Body.List)-1].(*ast.ReturnStmt)
	if !ok || len(ret.Results) != 1 || isIdent(ret.Results[0], "false") {
		return nil
	}
	return ret.Results[0]
}

func isIdent(e ast.Expr, name string) bool {
	x, ok := e.(*ast.Ident)
	return ok && x.Name == name
}

// scriptLine returns the line of a simulation that a call writes, if it is one that
// looks at what was printed.
func scriptLine(call *ast.CallExpr) *ast.BasicLit {
	if len(call.Args) == 0 {
		return nil
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING || !strings.HasPrefix(lit.Value[1:], "stdout ") {
		return nil
	}
	return lit
}

// wantedCode returns the code that a request is told to expect.
func wantedCode(call *ast.CallExpr) *ast.BasicLit {
	if calledName(call) != "must" || len(call.Args) < 2 {
		return nil
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.INT {
		return nil
	}
	return lit
}

func isGivenTest(call *ast.CallExpr) bool {
	if len(call.Args) < 2 {
		return false
	}
	return isIdent(call.Args[0], "t")
}

func calledName(call *ast.CallExpr) string { return namedBy(call.Fun) }

// namedBy returns the last name of an expression.
func namedBy(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
