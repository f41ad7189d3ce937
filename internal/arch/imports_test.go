package arch

import (
	"go/ast"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// under reports whether the import path imp is prefix or a package below it.
func under(imp, prefix string) bool {
	return imp == prefix || strings.HasPrefix(imp, prefix+"/")
}

// checkImports holds that third-party code is imported only as allowed says.
// Nested modules are apart: their go.mod is their list.
func checkImports(sources []*source) (out []violation) {
	for _, s := range sources {
		if slices.ContainsFunc(nestedModules(), func(dir string) bool { return strings.HasPrefix(s.path, dir+"/") }) {
			continue
		}
		s.imports(func(spec *ast.ImportSpec, imp string) {
			host, _, _ := strings.Cut(imp, "/")
			if !strings.Contains(host, ".") || strings.HasPrefix(imp+"/", module) {
				return
			}
			if !slices.ContainsFunc(allowed, func(a allowance) bool { return under(imp, a.prefix) }) {
				out = append(out, s.at("import", spec, "imports %s, which internal/arch/allowed_test.go does not list", imp))
			}
		})
	}
	return out
}

// nestedModules lists the folders below the root that have a go.mod.
func nestedModules() []string {
	names, err := files()
	if err != nil {
		return nil
	}
	var dirs []string
	for _, n := range names {
		if dir, ok := strings.CutSuffix(n, "/go.mod"); ok {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// checkForbidden holds that nothing, tests and nested modules included,
// imports what the product must not be made of.
func checkForbidden(sources []*source) (out []violation) {
	for _, s := range sources {
		s.imports(func(spec *ast.ImportSpec, imp string) {
			if why := forbiddenReason(imp); why != "" {
				out = append(out, s.at("forbidden", spec, "imports %s: %s", imp, why))
			}
		})
	}
	return out
}

// forbiddenReason says why imp is forbidden, or "".
func forbiddenReason(imp string) string {
	for _, f := range forbidden {
		if under(imp, f.prefix) && !slices.ContainsFunc(f.but, func(p string) bool { return under(imp, p) }) {
			return f.why
		}
	}
	return ""
}

// modules returns the modules that go.mod requires, and whether directly.
func modules(t *testing.T) map[string]bool {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:require )?\s*(\S+\.\S+) v\S+( // indirect)?$`).FindAllSubmatch(mod, -1) {
		out[string(m[1])] = len(m[2]) == 0
	}
	return out
}

// importedModules returns the modules whose packages the main module imports.
func importedModules(t *testing.T, all map[string]bool) map[string]bool {
	t.Helper()
	sources, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	nested := nestedModules()
	out := map[string]bool{}
	for _, s := range sources {
		if slices.ContainsFunc(nested, func(dir string) bool { return strings.HasPrefix(s.path, dir+"/") }) {
			continue
		}
		s.imports(func(_ *ast.ImportSpec, imp string) {
			for m := imp; m != "."; m = path.Dir(m) {
				if _, ok := all[m]; ok {
					out[m] = true
					return
				}
			}
		})
	}
	return out
}

func TestEveryModuleIsExplained(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "docs/dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	required := modules(t)
	imported := importedModules(t, required)
	for m, direct := range required {
		if (direct || imported[m]) && !strings.Contains(string(doc), "\n| `"+m+"` |") {
			t.Errorf("%s is imported or required in go.mod, but docs/dependencies.md does not explain it", m)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllSubmatch(doc, -1) {
		if name := string(m[1]); !required[name] && !imported[name] {
			t.Errorf("docs/dependencies.md explains %s, which is neither imported nor required directly in go.mod", name)
		}
	}
}

func TestEveryAllowedImportIsUsed(t *testing.T) {
	sources, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	required := modules(t)
	for _, a := range allowed {
		used := required[a.prefix] // a module just added, still without an import
		for _, s := range sources {
			s.imports(func(_ *ast.ImportSpec, imp string) { used = used || under(imp, a.prefix) })
		}
		if !used {
			t.Errorf("internal/arch/allowed_test.go lists %s (%s), which nothing imports", a.prefix, a.why)
		}
	}
}

// TestProgramContainsNothingForbidden looks at what libraries bring along.
func TestProgramContainsNothingForbidden(t *testing.T) {
	cmd := exec.Command("go", "list", "-e", "-deps", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		if why := forbiddenReason(pkg); why != "" {
			t.Errorf("the program contains %s: %s", pkg, why)
		}
	}
}
