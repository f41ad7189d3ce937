package arch

import (
	"go/ast"
	"slices"
	"strings"
)

// light are the folders, with those below, whose tests link neither a container runtime
// nor etcd, and heavy is what they must not reach: the linker takes several times as long
// over each test binary that has it, and most of all under the race detector.
var (
	light = []string{"internal/plane", "internal/sim", "internal/simnode", "internal/simulate", "internal/controllers", "internal/scheduler", "internal/admission"}
	heavy = []string{"github.com/containerd/containerd", "go.etcd.io/etcd/server"}
)

// checkLight holds that nothing in light reaches heavy, by whatever it imports. A fault
// is found at the import that leads there.
func checkLight(sources []*source) (out []violation) {
	imports := map[string][]string{} // without those of tests, by folder
	for _, s := range sources {
		if s.test {
			continue
		}
		s.imports(func(_ *ast.ImportSpec, imp string) { imports[s.dir()] = append(imports[s.dir()], imp) })
	}
	seen := map[string]string{} // import to what of heavy it reaches, or nothing
	var reaches func(imp string) string
	reaches = func(imp string) string {
		if i := slices.IndexFunc(heavy, func(h string) bool { return strings.HasPrefix(imp, h) }); i >= 0 {
			return heavy[i]
		}
		dir, ours := strings.CutPrefix(imp, module)
		if !ours {
			return ""
		}
		if found, known := seen[dir]; known {
			return found
		}
		seen[dir] = ""
		for _, next := range imports[dir] {
			if found := reaches(next); found != "" {
				seen[dir] = found
				break
			}
		}
		return seen[dir]
	}
	for _, s := range sources {
		if !slices.ContainsFunc(light, func(dir string) bool { return under(s.dir(), dir) }) {
			continue
		}
		s.imports(func(spec *ast.ImportSpec, imp string) {
			if found := reaches(imp); found != "" {
				out = append(out, s.at("light", spec, "imports %s, which reaches %s: tests here must link without", imp, found))
			}
		})
	}
	return out
}
