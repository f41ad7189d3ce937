package markers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// source is what comments say: those of one package.
type source struct {
	types  map[string][]string            // comment by the type's name
	fields map[string]map[string][]string // comment by the names of a struct type and its field
	consts map[string][]constant          // by the name of their type
	values map[string]string              // of constants that are texts, by name
}

// constant is a constant that is a text.
type constant struct {
	name, value string
	comment     []string
}

// readSource reads the Go files of a folder that people wrote.
func readSource(dir string) (*source, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the sources of a package: %w", err)
	}
	s := &source{types: map[string][]string{}, fields: map[string]map[string][]string{}, consts: map[string][]constant{}, values: map[string]string{}}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "zz_") || name == "generated.pb.go" {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read the sources of a package: %w", err)
		}
		s.file(fset, file)
	}
	return s, nil
}

// file collects the comments of a file. What belongs to a name is the comment that ends
// on the line before it, one that stands behind something else there included.
func (s *source) file(fset *token.FileSet, file *ast.File) {
	endingAt := map[int]*ast.CommentGroup{}
	for _, c := range file.Comments {
		endingAt[fset.Position(c.End()).Line] = c
	}
	before := func(pos token.Pos) []string {
		return strings.Split(strings.TrimRight(endingAt[fset.Position(pos).Line-1].Text(), "\n"), "\n")
	}
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, sp := range decl.Specs {
			switch sp := sp.(type) {
			case *ast.TypeSpec:
				s.types[sp.Name.Name] = before(sp.Name.Pos())
				if t, ok := sp.Type.(*ast.StructType); ok {
					s.fields[sp.Name.Name] = structFields(t, before)
				}
			case *ast.ValueSpec:
				if decl.Tok == token.CONST {
					s.constant(sp, before)
				}
			}
		}
	}
}

// structFields are the comments of a struct's fields, by their names.
func structFields(t *ast.StructType, before func(token.Pos) []string) map[string][]string {
	out := map[string][]string{}
	for _, f := range t.Fields.List {
		for _, name := range f.Names {
			out[name.Name] = before(name.Pos())
		}
		if len(f.Names) > 0 {
			continue
		}
		e := f.Type
		if star, ok := e.(*ast.StarExpr); ok {
			e = star.X
		}
		switch e := e.(type) {
		case *ast.Ident:
			out[e.Name] = before(e.Pos())
		case *ast.SelectorExpr:
			out[e.Sel.Name] = before(e.Pos())
		}
	}
	return out
}

// constant notes constants of a type of texts: A T = "a", A = T("a").
func (s *source) constant(sp *ast.ValueSpec, before func(token.Pos) []string) {
	for i, name := range sp.Names {
		if i >= len(sp.Values) {
			return
		}
		typ, value := sp.Type, sp.Values[i]
		if call, ok := value.(*ast.CallExpr); ok && typ == nil && len(call.Args) == 1 {
			typ, value = call.Fun, call.Args[0]
		}
		text := ""
		switch v := value.(type) {
		case *ast.BasicLit:
			if v.Kind != token.STRING {
				continue
			}
			text, _ = strconv.Unquote(v.Value) // the parser has read it
		case *ast.Ident:
			if text = s.values[v.Name]; text == "" {
				continue
			}
		default:
			continue
		}
		s.values[name.Name] = text
		if t, ok := typ.(*ast.Ident); ok {
			s.consts[t.Name] = append(s.consts[t.Name], constant{name.Name, text, before(name.Pos())})
		}
	}
}
