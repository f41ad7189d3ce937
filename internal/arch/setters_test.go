package arch

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
)

// checkSetters holds that the program sets each field of its options: one that
// only tests set is a feature that nobody can turn on. It looks at exported
// structs of the names that isOptions knows. A default that a package gives its own
// options does not count.
func checkSetters(sources []*source) (out []violation) {
	c := newChecker(sources)
	set := map[*types.Var]bool{}
	dirs := c.dirs()
	for _, dir := range dirs {
		c.check(dir)
	}
	for _, dir := range dirs {
		for _, s := range c.files[dir] {
			c.setters(s, set)
		}
	}
	for _, dir := range dirs {
		for _, s := range c.files[dir] {
			out = append(out, c.unset(s, set)...)
		}
	}
	return out
}

// isOptions reports whether a struct of this name says how something is to work.
func isOptions(name string) bool {
	return ast.IsExported(name) && (strings.HasSuffix(name, "Options") || strings.HasSuffix(name, "Config") || name == "Settings")
}

// unset returns the fields of options declared in s that nothing sets.
func (c *checker) unset(s *source, set map[*types.Var]bool) (out []violation) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !isOptions(spec.Name.Name) {
			return true
		}
		st, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range st.Fields.List {
			for _, name := range f.Names {
				if v, ok := c.info.Defs[name].(*types.Var); ok && name.IsExported() && !set[v] {
					where := spec.Name.Name + "." + name.Name
					out = append(out, s.at("setter", name, "nothing but tests sets %s: give it a flag, or take it away", where).in(where))
				}
			}
		}
		return true
	})
	return out
}

// setters notes the fields that s sets: in a literal, or, of options of another
// package, by an assignment or a pointer; in the same one by a flag alone.
func (c *checker) setters(s *source, set map[*types.Var]bool) {
	own := c.packages[s.dir()]
	mark := func(e ast.Expr, flag bool) { // what holds a field that is set is set
		for sel, ok := ast.Unparen(e).(*ast.SelectorExpr); ok; sel, ok = sel.X.(*ast.SelectorExpr) {
			if v, ok := c.info.Uses[sel.Sel].(*types.Var); ok && (flag || v.Pkg() != own) {
				set[v] = true
			}
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok {
				if v, ok := c.info.Uses[key].(*types.Var); ok && v.IsField() {
					set[v] = true
				}
			}
		case *ast.AssignStmt:
			for _, lhs := range n.Lhs {
				mark(lhs, false)
			}
		case *ast.CallExpr:
			for _, arg := range n.Args {
				ast.Inspect(arg, func(a ast.Node) bool {
					if u, ok := a.(*ast.UnaryExpr); ok && u.Op == token.AND {
						mark(u.X, isFlag(n.Fun))
					}
					return true
				})
			}
		}
		return true
	})
}

// isFlag reports whether fun is a method that declares a flag for a variable: Var,
// StringVar, VarPF and so on.
func isFlag(fun ast.Expr) bool {
	sel, ok := fun.(*ast.SelectorExpr)
	return ok && (strings.HasSuffix(sel.Sel.Name, "Var") || strings.HasPrefix(sel.Sel.Name, "VarP"))
}

// checker knows the types of our own code. That of others is empty to it, which is
// enough to tell whose field a name is, and takes no time.
type checker struct {
	files    map[string][]*source // of the product, by folder
	packages map[string]*types.Package
	info     types.Info
}

func newChecker(sources []*source) *checker {
	return &checker{
		files: byDir(product(sources)), packages: map[string]*types.Package{},
		info: types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}},
	}
}

// dirs are the folders whose code ends up in a program: those of commands, and what
// they import.
func (c *checker) dirs() []string {
	found := map[string]bool{}
	var add func(dir string)
	add = func(dir string) {
		if found[dir] || len(c.files[dir]) == 0 {
			return
		}
		found[dir] = true
		for _, s := range c.files[dir] {
			s.imports(func(_ *ast.ImportSpec, imp string) {
				if pkg, ours := strings.CutPrefix(imp, module); ours {
					add(pkg)
				}
			})
		}
	}
	for dir := range c.files {
		if strings.HasPrefix(dir, "cmd/") {
			add(dir)
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// check returns the package in a folder. What cannot be resolved, as it needs
// other people's code, is left out.
func (c *checker) check(dir string) *types.Package {
	if p := c.packages[dir]; p != nil {
		return p
	}
	list := c.files[dir]
	asts := make([]*ast.File, len(list))
	for i, s := range list {
		asts[i] = s.file
	}
	config := types.Config{Importer: c, Error: func(error) {}}
	p, _ := config.Check(module+dir, positions, asts, &c.info) // its errors are of what is left out
	c.packages[dir] = p
	return p
}

// Import is [types.Importer].
func (c *checker) Import(imp string) (*types.Package, error) {
	if dir, ours := strings.CutPrefix(imp, module); ours && len(c.files[dir]) > 0 {
		return c.check(dir), nil
	}
	p := types.NewPackage(imp, path.Base(imp))
	p.MarkComplete()
	return p, nil
}
