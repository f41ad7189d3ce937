package arch

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

// Caps on sizes, in lines unless said otherwise. docs/STYLE.md has what to aim for.
const (
	maxFileLines     = 800
	maxTestFileLines = 1500
	maxFuncLines     = 100
	maxStructFields  = 25
	maxParams        = 4 // a leading context.Context or testing.TB is not counted
	maxPackageLines  = 6000
)

// checkDocs holds that a package has exactly one package comment, that it
// starts as go doc expects, and that it stands where people look for it: in
// doc.go, in the main.go of a command, or in the only file.
func checkDocs(sources []*source) (out []violation) {
	dirs := byDir(sources)
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		code := slices.DeleteFunc(slices.Clone(dirs[dir]), func(s *source) bool { return s.test })
		if len(code) == 0 {
			continue
		}
		var documented []*source
		for _, s := range code {
			if s.file.Doc != nil {
				documented = append(documented, s)
			}
		}
		slices.SortStableFunc(documented, func(a, b *source) int { return docRank(a) - docRank(b) })
		switch len(documented) {
		case 0:
			out = append(out, code[0].at("doc", code[0].file.Name, "package has no package comment: write %s/doc.go", dir))
		case 1:
			written := slices.DeleteFunc(code, (*source).generated)
			out = append(out, checkDoc(documented[0], len(written))...)
		default:
			for _, s := range documented[1:] {
				out = append(out, s.at("doc", s.file.Name, "second package comment; the first is in %s", documented[0].path))
			}
		}
	}
	return out
}

func checkDoc(s *source, codeFiles int) (out []violation) {
	name, command := s.file.Name.Name, s.file.Name.Name == "main"
	want := "Package " + name + " "
	if command {
		want = "Command "
	}
	if text := s.file.Doc.Text(); !strings.HasPrefix(text, want) {
		out = append(out, s.at("doc", s.file.Name, "package comment starts with %q, want %q", firstWords(text), want))
	}
	base := path.Base(s.path)
	if base != "doc.go" && codeFiles > 1 && (!command || base != "main.go") {
		out = append(out, s.at("doc", s.file.Name, "package comment belongs in doc.go"))
	}
	return out
}

// docRank sorts doc.go first.
func docRank(s *source) int {
	if path.Base(s.path) == "doc.go" {
		return 0
	}
	return 1
}

func firstWords(text string) string {
	words := strings.Fields(text)
	return strings.Join(words[:min(3, len(words))], " ")
}

func checkFileLines(sources []*source) (out []violation) {
	for _, s := range sources {
		limit := maxFileLines
		if s.test {
			limit = maxTestFileLines
		}
		if s.lines > limit && !s.generated() {
			out = append(out, s.at("file-lines", s.file.Name, "file has %d lines, cap %d", s.lines, limit))
		}
	}
	return out
}

func checkPackageLines(sources []*source) (out []violation) {
	dirs := byDir(sources)
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		total := 0
		for _, s := range dirs[dir] {
			if !s.test && !s.generated() {
				total += s.lines
			}
		}
		if total > maxPackageLines {
			out = append(out, violation{"package-lines", dir, 1, fmt.Sprintf("package has %d lines, cap %d", total, maxPackageLines)})
		}
	}
	return out
}

// eachFunc calls fn with every declared function of code that people write.
func eachFunc(sources []*source, fn func(s *source, name string, d *ast.FuncDecl)) {
	for _, s := range sources {
		if s.generated() {
			continue
		}
		for _, decl := range s.file.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok {
				fn(s, funcName(d), d)
			}
		}
	}
}

// funcName returns Name, or Type.Name for a method.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

func checkFuncLines(sources []*source) (out []violation) {
	eachFunc(sources, func(s *source, name string, d *ast.FuncDecl) {
		lines := s.set.Position(d.End()).Line - s.set.Position(d.Pos()).Line + 1
		if lines > maxFuncLines {
			out = append(out, s.at("func-lines", d, "%s has %d lines, cap %d", name, lines, maxFuncLines).in(name))
		}
	})
	return out
}

func checkParams(sources []*source) (out []violation) {
	eachFunc(sources, func(s *source, name string, d *ast.FuncDecl) {
		n := 0
		for i, field := range d.Type.Params.List {
			if i == 0 && leads(field.Type) {
				continue
			}
			n += max(1, len(field.Names))
		}
		if n > maxParams {
			out = append(out, s.at("params", d, "%s has %d parameters, cap %d: pass a struct", name, n, maxParams).in(name))
		}
	})
	return out
}

// leads reports whether t is the type of a first parameter that is not counted.
func leads(t ast.Expr) bool {
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	sel, ok := t.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && (pkg.Name == "context" || pkg.Name == "testing")
}

func checkStructFields(sources []*source) (out []violation) {
	for _, s := range sources {
		if s.generated() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			st, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			fields := 0
			for _, f := range st.Fields.List {
				fields += max(1, len(f.Names))
			}
			if fields > maxStructFields {
				out = append(out, s.at("struct-fields", spec, "struct %s has %d fields, cap %d", spec.Name.Name, fields, maxStructFields).in(spec.Name.Name))
			}
			return true
		})
	}
	return out
}
