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
	"sync"
	"testing"
)

// under reports whether the import path imp is prefix or a package below it.
func under(imp, prefix string) bool {
	return imp == prefix || strings.HasPrefix(imp, prefix+"/")
}

// checkImports holds that third-party code is imported only as allowed says, and
// by tests also as allowedInTests does. Nested modules are apart: their go.mod is their list.
func checkImports(sources []*source) (out []violation) {
	own := inProduct(sources)
	for _, s := range sources {
		if inNestedModule(s) {
			continue
		}
		s.imports(func(spec *ast.ImportSpec, imp string) {
			switch permitted := func(list []allowance) bool {
				return slices.ContainsFunc(list, func(a allowance) bool { return under(imp, a.prefix) })
			}; {
			case !thirdParty(imp) || permitted(allowed):
			case !permitted(allowedInTests):
				out = append(out, s.at("import", spec, "imports %s, which internal/arch/allowed_test.go does not list", imp))
			case own[s]:
				out = append(out, s.at("import", spec, "imports %s, which internal/arch/allowed_test.go lists for tests only", imp))
			}
		})
	}
	return out
}

// thirdParty reports whether an import path is neither ours nor of the standard library.
func thirdParty(imp string) bool {
	host, _, _ := strings.Cut(imp, "/")
	return strings.Contains(host, ".") && !strings.HasPrefix(imp+"/", module)
}

// inProduct has the sources that may end up in a program.
func inProduct(sources []*source) map[*source]bool {
	own := map[*source]bool{}
	for _, s := range product(sources) {
		unit, _, _ := unitOf(ranks(), strings.TrimPrefix(s.dir(), "internal/"))
		own[s] = !slices.Contains(testOnly, unit)
	}
	return own
}

// unused returns the allowances of the product that nothing in it needs, and those of
// tests that no test needs.
func unused(sources []*source, ofProduct, ofTests []allowance) (out []allowance) {
	own := inProduct(sources)
	for _, side := range []struct {
		list []allowance
		own  bool
	}{{ofProduct, true}, {ofTests, false}} {
		for _, a := range side.list {
			used := false
			for _, s := range sources {
				s.imports(func(_ *ast.ImportSpec, imp string) {
					used = used || own[s] == side.own && !inNestedModule(s) && under(imp, a.prefix)
				})
			}
			if !used {
				out = append(out, a)
			}
		}
	}
	return out
}

func inNestedModule(s *source) bool {
	return slices.ContainsFunc(nestedModules(), func(dir string) bool { return strings.HasPrefix(s.path, dir+"/") })
}

// nestedModules lists the folders below the root that have a go.mod.
var nestedModules = sync.OnceValue(func() (dirs []string) {
	names, err := files()
	if err != nil {
		return nil
	}
	for _, n := range names {
		if dir, ok := strings.CutSuffix(n, "/go.mod"); ok {
			dirs = append(dirs, dir)
		}
	}
	return dirs
})

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
	out := map[string]bool{}
	for name, r := range requirements(t, ".") {
		out[name] = r.direct
	}
	return out
}

type requirement struct {
	version string
	direct  bool
}

// requirements reads the go.mod of a folder.
func requirements(t *testing.T, dir string) map[string]requirement {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]requirement{}
	for _, m := range regexp.MustCompile(`(?m)^(?:require )?\s*(\S+\.\S+) (v\S+)( // indirect)?$`).FindAllSubmatch(mod, -1) {
		out[string(m[1])] = requirement{string(m[2]), len(m[3]) == 0}
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:replace )?\s*(\S+) => (\S+) (v\S+)$`).FindAllSubmatch(mod, -1) {
		if name := string(m[1]); name == string(m[2]) {
			out[name] = requirement{string(m[3]), out[name].direct} // it is this one that is compiled
		}
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
	out := map[string]bool{}
	for _, s := range sources {
		if inNestedModule(s) {
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
	for _, a := range unused(sources, allowed, allowedInTests) {
		t.Errorf("internal/arch/allowed_test.go lists %s (%s), which nothing on its side imports", a.prefix, a.why)
	}
}

// TestNestedModulesUseTheVersionsOfTheProgram holds that what several modules
// need is compiled once: another version of something as low as golang.org/x/sys
// makes another build of all that is above it.
func TestNestedModulesUseTheVersionsOfTheProgram(t *testing.T) {
	own := requirements(t, ".")
	for _, dir := range nestedModules() {
		switch dir {
		case "test/programs/kyverno": // it does not compile with libraries as new as ours
			continue
		case "test/programs/csi": // it asks for newer ones
			continue
		}
		for name, r := range requirements(t, dir) {
			if ours, both := own[name]; both && ours.version != r.version {
				t.Errorf("%s/go.mod: requires %s %s, and go.mod %s: take the same", dir, name, r.version, ours.version)
			}
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
