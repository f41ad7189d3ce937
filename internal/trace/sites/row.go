package sites

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// row returns the change of what is expected by the row of a table in a file that holds
// an ID, or nil: there is none, or it does not say what it expects.
func row(file *ast.File, id string) (found *change) {
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
		if !ok || found != nil {
			return found == nil
		}
		var fields []field
		if list, ok := table.Type.(*ast.ArrayType); ok {
			fields = fieldsOf(list.Elt, structs)
		}
		for _, e := range table.Elts {
			if r, ok := e.(*ast.CompositeLit); ok && r.Type == nil && len(fields) > 0 && holdsID(r.Elts, id) {
				found = breakRow(r.Elts, fields)
				return false
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
	last := e
	if neg, ok := e.(*ast.UnaryExpr); ok && neg.Op == token.SUB {
		last = neg.X
	}
	number, ok := last.(*ast.BasicLit)
	switch {
	case ok && number.Kind == token.INT:
		return &change{last.Pos(), last.End(), func(was string) string { return was + "7" }}
	case isIdent(e, "true"), isIdent(e, "false"):
		return &change{e.Pos(), e.End(), func(was string) string { return "!" + was }}
	case text:
		return &change{e.Pos(), e.End(), func(was string) string { return was + ` + " ` + wrong + `"` }}
	}
	return nil
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
