package sites

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// rows returns the changes of what is expected by the rows of tables in a file that hold
// an ID; none: there are no such rows, or they do not say what they expect.
func rows(file *ast.File, id string) (found []*change) {
	structs := map[string]*ast.StructType{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				structs[spec.Name.Name] = s
			}
		}
		return true
	})
	ast.Inspect(file, func(n ast.Node) bool {
		table, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		list, ok := table.Type.(*ast.ArrayType)
		if !ok {
			return true
		}
		fields := fieldsOf(list.Elt, structs)
		for _, e := range table.Elts {
			if r, ok := e.(*ast.CompositeLit); ok && r.Type == nil && holdsID(r.Elts, id) {
				if c := breakRow(r.Elts, fields); c != nil {
					found = append(found, c)
				}
			}
		}
		return true
	})
	return found
}

// field is a field of the struct that the rows of a table are.
type field struct {
	name string
	text bool // a string
}

// fieldsOf returns the fields of a struct in their order.
func fieldsOf(elt ast.Expr, structs map[string]*ast.StructType) (out []field) {
	s, _ := elt.(*ast.StructType)
	if name, ok := elt.(*ast.Ident); ok {
		s = structs[name.Name]
	}
	if s == nil {
		return nil
	}
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			out = append(out, field{name.Name, isIdent(f.Type, "string")})
		}
	}
	return out
}

// holdsID reports whether one of the elements of a row is a list of IDs with this one.
func holdsID(elts []ast.Expr, id string) bool {
	return slices.ContainsFunc(elts, func(e ast.Expr) bool {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			e = kv.Value
		}
		if list, ok := e.(*ast.CompositeLit); ok {
			return slices.Contains(literalIDs(list.Elts), id)
		}
		return slices.Contains(literalIDs([]ast.Expr{e}), id)
	})
}

// rowExpects are the fields of rows that say what is expected, besides those whose names begin with want.
var rowExpects = []string{"code", "message", "reason", "status"}

// breakRow changes the last thing that a row expects.
func breakRow(elts []ast.Expr, fields []field) (found *change) {
	for i, e := range elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			i = slices.IndexFunc(fields, func(f field) bool { return isIdent(kv.Key, f.name) })
			e = kv.Value
		}
		if i < 0 || i >= len(fields) || !strings.HasPrefix(fields[i].name, "want") && !slices.Contains(rowExpects, fields[i].name) {
			continue
		}
		if c := breakValue(e, fields[i].text); c != nil {
			found = c
		}
	}
	return found
}

// breakValue changes a value: the last string in it, a number, a truth, or what is text.
func breakValue(e ast.Expr, text bool) *change {
	if lit := lastString(e); lit != nil {
		return wrongString(lit)
	}
	switch {
	case isIdent(e, "true"), isIdent(e, "false"):
		return &change{e.Pos(), e.End(), func(was string) string { return "!" + was }}
	case text:
		return &change{e.Pos(), e.End(), func(was string) string { return was + ` + " ` + wrong + `"` }}
	}
	return wrongNumber(e)
}

// wrongNumber makes a number another, or returns nil: it is none.
func wrongNumber(e ast.Expr) *change {
	if neg, ok := e.(*ast.UnaryExpr); ok && neg.Op == token.SUB {
		e = neg.X
	}
	if lit, ok := e.(*ast.BasicLit); !ok || lit.Kind != token.INT {
		return nil
	}
	return &change{e.Pos(), e.End(), func(was string) string { return was + "7" }}
}

// lastString returns the last string in an expression, outside functions in it.
func lastString(e ast.Expr) (lit *ast.BasicLit) {
	ast.Inspect(e, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			lit = l
		}
		_, inner := n.(*ast.FuncLit)
		return !inner
	})
	return lit
}

// wrongString puts a word into a string that nothing prints.
func wrongString(lit *ast.BasicLit) *change {
	return &change{lit.Pos(), lit.End(), func(text string) string { return text[:len(text)-1] + wrong + text[len(text)-1:] }}
}
