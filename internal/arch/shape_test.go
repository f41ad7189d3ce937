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

// A size is how large something is that has a cap. Its text ends where the figures go.
type size struct {
	violation
	is, limit int
}

// over returns what is larger than its cap.
func over(sizes []size) (out []violation) {
	for _, s := range sizes {
		if s.is > s.limit {
			s.text = fmt.Sprintf("%s: %d, cap %d", s.text, s.is, s.limit)
			out = append(out, s.violation)
		}
	}
	return out
}

func checkFileLines(sources []*source) []violation    { return over(fileLines(sources)) }
func checkPackageLines(sources []*source) []violation { return over(packageLines(sources)) }
func checkFuncLines(sources []*source) []violation    { return over(funcLines(sources)) }
func checkStructFields(sources []*source) []violation { return over(structFields(sources)) }

func fileLines(sources []*source) (out []size) {
	for _, s := range sources {
		limit := maxFileLines
		if s.test {
			limit = maxTestFileLines
		}
		if !s.generated() {
			out = append(out, size{s.at("file-lines", s.file.Name, "lines of the file"), s.lines, limit})
		}
	}
	return out
}

func packageLines(sources []*source) (out []size) {
	dirs := byDir(sources)
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		total := 0
		for _, s := range dirs[dir] {
			if !s.test && !s.generated() {
				total += s.lines
			}
		}
		out = append(out, size{violation{"package-lines", dir, 1, "lines of the package"}, total, maxPackageLines})
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

func funcLines(sources []*source) (out []size) {
	eachFunc(sources, func(s *source, name string, d *ast.FuncDecl) {
		lines := positions.Position(d.End()).Line - positions.Position(d.Pos()).Line + 1
		out = append(out, size{s.at("func-lines", d, "lines of %s", name).in(name), lines, maxFuncLines})
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

func structFields(sources []*source) (out []size) {
	for _, s := range sources {
		if s.generated() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if st, ok := spec.Type.(*ast.StructType); ok {
				out = append(out, size{s.at("struct-fields", spec, "fields of %s", spec.Name.Name).in(spec.Name.Name), countFields(st), maxStructFields})
			}
			return true
		})
	}
	return out
}

// countFields counts the fields of a struct and, in place of one whose type is a struct without a
// name (a lock and what it guards), that struct's.
func countFields(st *ast.StructType) (n int) {
	for _, f := range st.Fields.List {
		each := 1
		if inner, ok := f.Type.(*ast.StructType); ok {
			each = countFields(inner)
		}
		n += each * max(1, len(f.Names))
	}
	return n
}
