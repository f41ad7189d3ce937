package arch

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A catalogue is what the code declares, to hold what is said about it against.
type catalogue struct {
	folders  map[string]bool            // with all above them
	files    map[string][]string        // Go files by folder
	packages map[string][]string        // folders by the name of their package
	symbols  map[string]map[string]bool // by folder: F, T, T.F, T.M
	open     map[string]map[string]bool // by folder: types that have further members from elsewhere
	imported map[string]bool            // names of packages of others
}

func newCatalogue(sources []*source) *catalogue {
	c := &catalogue{
		folders: map[string]bool{}, files: map[string][]string{}, packages: map[string][]string{},
		symbols: map[string]map[string]bool{}, open: map[string]map[string]bool{}, imported: map[string]bool{},
	}
	for _, s := range sources {
		dir := s.dir()
		for d := dir; !c.folders[d]; d = path.Dir(d) {
			c.folders[d] = true
		}
		c.files[dir] = append(c.files[dir], path.Base(s.path))
		name := strings.TrimSuffix(s.file.Name.Name, "_test")
		if !slices.Contains(c.packages[name], dir) {
			c.packages[name] = append(c.packages[name], dir)
		}
		if c.symbols[dir] == nil {
			c.symbols[dir], c.open[dir] = map[string]bool{}, map[string]bool{}
		}
		for _, decl := range s.file.Decls {
			c.declare(dir, decl)
		}
		s.imports(func(spec *ast.ImportSpec, imp string) {
			if strings.HasPrefix(imp, module) {
				return
			}
			c.imported[s.localName(imp)] = true
			if base := path.Base(imp); !majorVersion.MatchString(base) {
				c.imported[base] = true
			} else {
				c.imported[path.Base(path.Dir(imp))] = true
			}
		})
	}
	return c
}

var majorVersion = regexp.MustCompile(`^v\d+$`)

func (c *catalogue) declare(dir string, decl ast.Decl) {
	symbols := c.symbols[dir]
	switch d := decl.(type) {
	case *ast.FuncDecl:
		symbols[funcName(d)] = true
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					symbols[name.Name] = true
				}
			case *ast.TypeSpec:
				symbols[spec.Name.Name] = true
				c.declareMembers(dir, spec)
			}
		}
	}
}

func (c *catalogue) declareMembers(dir string, spec *ast.TypeSpec) {
	var fields []*ast.Field
	switch t := spec.Type.(type) {
	case *ast.StructType:
		fields = t.Fields.List
	case *ast.InterfaceType:
		fields = t.Methods.List
	default:
		c.open[dir][spec.Name.Name] = true
	}
	for _, f := range fields {
		if len(f.Names) == 0 {
			c.open[dir][spec.Name.Name] = true
		}
		for _, name := range f.Names {
			c.symbols[dir][spec.Name.Name+"."+name.Name] = true
		}
	}
}

// has reports whether the package in dir declares symbol, F or T.M.
func (c *catalogue) has(dir, symbol string) bool {
	parts := strings.Split(symbol, ".")
	parts = parts[:min(len(parts), 2)]
	first := parts[0]
	return c.symbols[dir][strings.Join(parts, ".")] || c.symbols[dir][first] && c.open[dir][first]
}

// anyHas reports whether one of our packages of this name declares symbol.
func (c *catalogue) anyHas(name, symbol string) bool {
	return slices.ContainsFunc(c.packages[name], func(dir string) bool { return c.has(dir, symbol) })
}

// somewhere reports whether any of our packages declares symbol.
func (c *catalogue) somewhere(symbol string) bool {
	for dir := range c.symbols {
		if c.has(dir, symbol) {
			return true
		}
	}
	return false
}

var (
	// docLink matches what go doc makes a link of: a name, a member of a type, either of them
	// in another package; in brackets.
	docLink = regexp.MustCompile(`(?:^|[\s("])\[\*?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*){0,2})\](?:$|[\s.,;:)"'])`)
	// packageWords matches the package that a comment calls so.
	packageWords = regexp.MustCompile(`\b[Pp]ackage ([a-z][a-z0-9]+(?:/[a-z0-9]+)*)\b`)
	// goFile matches the name or path of a Go file.
	goFile = regexp.MustCompile(`(?:^|[\s("'\x60])([A-Za-z0-9_*][A-Za-z0-9_*./-]*\.go)\b`)
	// ourPath matches a path of ours in a comment.
	ourPath = regexp.MustCompile(`(?:^|[\s("'\x60])((?:internal|cmd|docs|test|build)/[A-Za-z0-9_./-]*[A-Za-z0-9])`)
	// quotedSymbol matches pkg.Name and pkg.T.M that a document quotes; what has one or two
	// letters is a variable. quotedMember matches T.M.
	quotedSymbol = regexp.MustCompile("`([a-z][a-z0-9]{2,})\\.([A-Z]\\w*(?:\\.[A-Z]\\w*)?)(?:\\(.*?\\))?`")
	quotedMember = regexp.MustCompile("`([A-Z]\\w*\\.[A-Z]\\w*)(?:\\(.*?\\))?`")
	// quotedFolder matches a path of small words that a document quotes.
	quotedFolder = regexp.MustCompile("`([a-z0-9]+(?:/[a-z0-9]+)+(?:\\.go)?)`")
)

// notPackages are words that may follow "package" and are none.
var notPackages = strings.Fields(`
	after again below by can comment comments declares dir does fails gives has holds imports in into is itself knows may must name need of
	per prefix relative says starts talk that use which whose with`)

// checkNames holds that comments name packages, files and symbols that exist, and that the
// comment of a function or type which begins with a name begins with its own.
func checkNames(sources []*source) (out []violation) {
	c := newCatalogue(sources)
	for _, s := range sources {
		if s.generated() {
			continue
		}
		eachDoc(s, func(name string, doc *ast.CommentGroup) {
			if first := beginsWith(doc.Text()); first != "" && first != name {
				out = append(out, s.at("names", doc, "the comment of %s begins with %s", name, first))
			}
		})
		for _, group := range s.file.Comments {
			for _, wrong := range c.wrongInComment(s, group.Text()) {
				out = append(out, s.at("names", group, "the comment names %s, which does not exist", wrong))
			}
		}
	}
	return out
}

// eachDoc calls fn with the name and the comment of every function and type.
func eachDoc(s *source, fn func(name string, doc *ast.CommentGroup)) {
	for _, decl := range s.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Doc != nil {
				fn(d.Name.Name, d.Doc)
			}
		case *ast.GenDecl:
			if len(d.Specs) == 1 && d.Doc != nil {
				if spec, ok := d.Specs[0].(*ast.TypeSpec); ok {
					fn(spec.Name.Name, d.Doc)
				}
			}
		}
	}
}

// beginsWith returns the name that a comment begins with: a word that no sentence would
// begin with, in small letters or with a capital inside. Without one it returns "".
func beginsWith(doc string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(doc), " ")
	if small.MatchString(first) || mixed.MatchString(first) {
		return first
	}
	return ""
}

var (
	small = regexp.MustCompile(`^[a-z]\w*$`)
	mixed = regexp.MustCompile(`^[A-Z][a-z0-9]+[A-Z]\w*$`)
)

// wrongInComment lists what a comment of s names and is not there.
func (c *catalogue) wrongInComment(s *source, text string) (out []string) {
	for _, m := range docLink.FindAllStringSubmatch(text, -1) {
		if !c.linked(s, m[1]) {
			out = append(out, "["+m[1]+"]")
		}
	}
	for _, m := range packageWords.FindAllStringSubmatch(text, -1) {
		name := path.Base(m[1])
		if !c.imported[name] && c.packages[name] == nil && !slices.Contains(notPackages, name) {
			out = append(out, "package "+m[1])
		}
	}
	for _, m := range goFile.FindAllStringSubmatch(text, -1) {
		if !c.file(m[1]) {
			out = append(out, m[1])
		}
	}
	for _, m := range ourPath.FindAllStringSubmatch(text, -1) {
		if c.folders["internal"] && strings.HasPrefix(m[1], "internal/") && !c.path(m[1]) {
			out = append(out, m[1])
		}
	}
	return out
}

// linked reports whether a doc link in s leads anywhere. Names of other people's packages
// are believed, and words in capitals are what a usage leaves open.
func (c *catalogue) linked(s *source, link string) bool {
	first, rest, dotted := strings.Cut(link, ".")
	if !dotted && (!ast.IsExported(link) || strings.ToUpper(link) == link) || c.has(s.dir(), link) {
		return true
	}
	if ast.IsExported(first) {
		return false
	}
	found, ours := true, false
	s.imports(func(spec *ast.ImportSpec, imp string) {
		if dir, ok := strings.CutPrefix(imp, module); ok && (path.Base(imp) == first || spec.Name != nil && spec.Name.Name == first) {
			found, ours = c.has(dir, rest), true
		}
	})
	switch {
	case ours:
		return found
	case c.packages[first] != nil && !c.imported[first]:
		return c.anyHas(first, rest)
	}
	return c.imported[first]
}

// file reports whether a Go file is there, or one of a pattern: a name is looked for in
// every folder, a path in those that end so.
func (c *catalogue) file(name string) bool {
	base := path.Base(name)
	for d, files := range c.files {
		here := strings.HasSuffix("/"+d, "/"+path.Dir(name)) || path.Dir(name) == "."
		if here && slices.ContainsFunc(files, func(f string) bool { ok, _ := path.Match(base, f); return ok }) {
			return true
		}
	}
	return false
}

// path reports whether a folder, file, or package with a symbol behind it is there.
func (c *catalogue) path(p string) bool {
	if c.folders[p] || c.file(p) {
		return true
	}
	if dir, symbol, ok := strings.Cut(p, "."); ok && c.folders[dir] {
		return c.has(dir, symbol)
	}
	_, err := os.Stat(filepath.Join(root, p))
	return err == nil
}

// wrongInDocument lists what a document quotes and is not there.
func (c *catalogue) wrongInDocument(text string) (out []string) {
	for _, m := range quotedSymbol.FindAllStringSubmatch(text, -1) {
		if !c.anyHas(m[1], m[2]) && !c.imported[m[1]] {
			out = append(out, m[1]+"."+m[2])
		}
	}
	for _, m := range quotedMember.FindAllStringSubmatch(text, -1) {
		if !c.somewhere(m[1]) {
			out = append(out, m[1])
		}
	}
	for _, m := range quotedFolder.FindAllStringSubmatch(text, -1) {
		first, _, _ := strings.Cut(m[1], "/")
		if c.folders["internal/"+first] && !c.folders["internal/"+m[1]] && !c.file(m[1]) {
			out = append(out, m[1])
		}
	}
	return out
}

func TestDocumentsNameSymbolsThatExist(t *testing.T) {
	names, err := files()
	if err != nil {
		t.Fatal(err)
	}
	sources, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	c := newCatalogue(sources)
	for _, name := range names {
		// The requirements speak of upstream's document.
		if !strings.HasSuffix(name, ".md") || strings.Contains("/"+name, "/testdata/") || strings.HasPrefix(name, "docs/requirements/") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range c.wrongInDocument(string(data)) {
			t.Errorf("%s: names %s, which does not exist", name, wrong)
		}
	}
}
