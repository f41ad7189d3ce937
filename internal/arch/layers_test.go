package arch

import (
	"go/ast"
	"slices"
	"strings"
)

// layers lists the folders of internal/ from the bottom up: a unit may import
// units on lower lines only, so units on one line never import each other. "x"
// is one unit, sub-folders included; "x/*" makes each child of x a unit, and
// "x" beside it is then the folder itself.
const layers = `
version
trace texttest
task obs
ociimage
store container podnet
resource cel wire
api
patch
cache
client
auth watchcache
admission extend
controller apiserver
controllers/* scheduler kubelet proxy dns ingress
controllers
up
cluster
sim
arch
`

// testOnly names the units that only tests, their own sub-folders and each
// other import: nothing of them may end up in the program.
var testOnly = []string{"trace", "texttest", "sim", "arch"}

// commandImports lists what cmd may import of internal/: wiring, and what
// turns flags and output into words.
var commandImports = []string{"cluster", "up", "container", "obs", "version"}

// ranks maps a unit to its layer, counted from the bottom.
func ranks() map[string]int {
	rank := map[string]int{}
	for i, line := range strings.Split(strings.TrimSpace(layers), "\n") {
		for unit := range strings.FieldsSeq(line) {
			rank[unit] = i
		}
	}
	return rank
}

// unitOf returns the unit that holds the folder pkg of internal/, and its layer.
func unitOf(rank map[string]int, pkg string) (unit string, layer int, ok bool) {
	first, rest, _ := strings.Cut(pkg, "/")
	if layer, ok := rank[first+"/*"]; ok && rest != "" {
		child, _, _ := strings.Cut(rest, "/")
		return first + "/" + child, layer, true
	}
	layer, ok = rank[first]
	return first, layer, ok
}

func checkLayers(sources []*source) (out []violation) {
	rank := ranks()
	for _, s := range sources {
		pkg, internal := strings.CutPrefix(s.dir(), "internal/")
		if !internal || s.test {
			continue
		}
		from, fromLayer, ok := unitOf(rank, pkg)
		if !ok {
			out = append(out, s.at("layer", s.file.Name, "%s is in no layer; place it in internal/arch/layers_test.go", s.dir()))
			continue
		}
		s.imports(func(spec *ast.ImportSpec, imp string) {
			pkg, ours := strings.CutPrefix(imp, module+"internal/")
			if !ours {
				return
			}
			to, toLayer, ok := unitOf(rank, pkg)
			switch {
			case to == from:
			case !ok:
				out = append(out, s.at("layer", spec, "imports %s, which is in no layer", pkg))
			case slices.Contains(testOnly, to) && !slices.Contains(testOnly, from):
				out = append(out, s.at("layer", spec, "imports %s, which is for tests only", pkg))
			case toLayer >= fromLayer:
				out = append(out, s.at("layer", spec, "%s must not import %s: it is not in a lower layer", from, to))
			}
		})
	}
	return out
}

// checkCommands holds that cmd imports nothing of ours but commandImports and
// its own folders.
func checkCommands(sources []*source) (out []violation) {
	for _, s := range sources {
		if !strings.HasPrefix(s.path, "cmd/") || s.test {
			continue
		}
		s.imports(func(spec *ast.ImportSpec, imp string) {
			pkg, ours := strings.CutPrefix(imp, module)
			if !ours || strings.HasPrefix(pkg, "cmd/") {
				return
			}
			unit, _, _ := unitOf(ranks(), strings.TrimPrefix(pkg, "internal/"))
			if !slices.Contains(commandImports, unit) {
				out = append(out, s.at("command", spec, "cmd must not import %s: it may import %s", pkg, strings.Join(commandImports, ", ")))
			}
		})
	}
	return out
}
