package sites

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// findGo finds the calls of trace.Proves, and the lists of IDs that tables
// hand to such a call: strings of IDs and lists of them.
func findGo(name string, data []byte) (out []Site, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, data, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	add := func(n ast.Node, list []ast.Expr) bool {
		ids := literalIDs(list)
		if len(ids) > 0 {
			out = append(out, Site{Line: set.Position(n.Pos()).Line, IDs: ids})
		}
		return len(ids) == 0
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if isProves(n) {
				// A call with what a table holds is a site without IDs of its own.
				if add(n, n.Args[1:]) {
					out = append(out, Site{Line: set.Position(n.Pos()).Line})
				}
				return false
			}
		case *ast.CompositeLit:
			return add(n, n.Elts)
		case *ast.BasicLit:
			return add(n, []ast.Expr{n})
		}
		return true
	})
	slices.SortStableFunc(out, func(a, b Site) int { return a.Line - b.Line })
	return out, nil
}

// isProves reports whether a call cites requirements.
func isProves(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Proves" || len(call.Args) == 0 {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == "trace"
}

// literalIDs returns the IDs in a list of strings, if they are nothing else.
func literalIDs(list []ast.Expr) (out []string) {
	for _, e := range list {
		lit, ok := e.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return nil
		}
		text, err := strconv.Unquote(lit.Value)
		ids := IDs(text)
		if err != nil || len(ids) == 0 || strings.Contains(text, "\n") {
			return nil
		}
		out = append(out, ids...)
	}
	return out
}
