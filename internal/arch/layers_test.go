package arch

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

// layers lists the folders of internal/ from the bottom up: a unit may import
// units on lower lines only, so units on one line never import each other. "x"
// is one unit, sub-folders included; "x/*" makes each child of x a unit, "x/y"
// the child y alone, which goes before "x/*", and "x" beside them is then what is
// left of the folder.
const layers = `
accept english version wholefile
trace texttest apiserver/openapi/markers obs/tracing/collector
carry corefile dump features inotify linger rawconn task obs layout
ociimage scavenge edge/lines edge/passwd edge/route apiserver/h2 obs/tracing
announce store cloud container dialback edge podnet
cel hook inquiry resource wire reach
custom
api
patch
audit cache
client
drain backend backup
audit/audittest auth metricsserver watchcache extend
join secureport servers encryption
kubelet/backoff kubelet/contain kubelet/machine kubelet/manifest kubelet/numa kubelet/san kubelet/sequence kubelet/state kubelet/users
kubelet/evict kubelet/plugin
kubelet/podstep
kubelet/cri apiserver/request
apiserver/encoded apiserver/refusal
apiserver/served
apiserver/call
kubelet/admit kubelet/cgroup kubelet/cpus kubelet/image kubelet/logs kubelet/memory kubelet/node kubelet/objects kubelet/probe kubelet/relay kubelet/runtime kubelet/systemlog kubelet/volume
kubelet/csi kubelet/usage
kubelet/device kubelet/disk kubelet/dra
kubelet/pin
kubelet/container
kubelet/pod
admission apiserver/alloc apiserver/read
admission/match admission/static
admission/*
admission/plugins
apiserver/* kubelet/*
apiserver/answer
apiserver/watch
controller leader apiserver aggregate
scheduler/devices
workload endpoint ingress nodepool
balancer gateway
controllers/* scheduler kubelet proxy netpolicy dns edgefeed simnode
controllers
plane up cloudmanager
simulate worker fleet parts
cluster
kubelet/apitest sim
arch
`

// testOnly names the units that only tests, their own sub-folders and each
// other import: nothing of them may end up in the program.
var testOnly = []string{"trace", "texttest", "obs/tracing/collector", "admission/admissiontest", "audit/audittest", "kubelet/apitest", "kubelet/fakecri", "kubelet/fakecsi", "kubelet/fakemachine", "kubelet/fakeplugin", "sim", "arch", "apiserver/openapi/markers"}

// commandImports lists what cmd may import of internal/: wiring, and what
// turns flags and output into words.
var commandImports = []string{"cluster", "edge", "cloudmanager", "parts", "up", "backup", "fleet", "join", "container", "obs", "english", "version"}

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

// unitOf returns the unit that holds the folder pkg of internal/, and its layer:
// the deepest that is listed.
func unitOf(rank map[string]int, pkg string) (unit string, layer int, ok bool) {
	for unit = pkg; ; unit = path.Dir(unit) {
		if layer, ok = rank[unit]; ok {
			return unit, layer, true
		}
		if layer, ok = rank[path.Dir(unit)+"/*"]; ok {
			return unit, layer, true
		}
		if !strings.Contains(unit, "/") {
			return unit, 0, false
		}
	}
}

// unitsWithoutCode returns the units of rank that no folder of sources belongs to: what was
// planned, moved or renamed.
func unitsWithoutCode(rank map[string]int, sources []*source) []string {
	left := maps.Clone(rank)
	for _, s := range sources {
		pkg, internal := strings.CutPrefix(s.dir(), "internal/")
		if !internal {
			continue
		}
		unit, _, _ := unitOf(rank, pkg)
		if _, named := rank[unit]; !named {
			unit = path.Dir(unit) + "/*"
		}
		delete(left, unit)
	}
	return slices.Sorted(maps.Keys(left))
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
