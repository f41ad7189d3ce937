package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// checkGo holds that goroutines of the product are started by package task, or
// by wg.Go in a function that waits.
func checkGo(sources []*source) (out []violation) {
	for _, s := range product(sources) {
		if s.dir() == "internal/task" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				out = append(out, s.at("go", g, "go statement outside internal/task: use task.Group, or wg.Go in a function that waits"))
			}
			return true
		})
	}
	return out
}

func checkInit(sources []*source) (out []violation) {
	eachFunc(sources, func(s *source, name string, d *ast.FuncDecl) {
		if name == "init" {
			out = append(out, s.at("init", d, "func init: call it by name, where people can see the order"))
		}
	})
	return out
}

// checkBackground holds that contexts come from outside: only main and tests
// make a root context.
func checkBackground(sources []*source) (out []violation) {
	for _, s := range product(sources) {
		if s.file.Name.Name == "main" {
			continue
		}
		for _, fn := range []string{"Background", "TODO"} {
			eachUse(s, "context", fn, func(n ast.Node) {
				out = append(out, s.at("background", n, "context.%s outside main and tests: take ctx as the first parameter", fn))
			})
		}
	}
	return out
}

// checkSleep holds that nothing sleeps, tests included. Test files that use
// synctest may: in its bubbles a sleep costs nothing and is how time passes.
func checkSleep(sources []*source) (out []violation) {
	checked := product(sources)
	for _, s := range sources {
		if s.test && s.localName("testing/synctest") == "" {
			checked = append(checked, s)
		}
	}
	for _, s := range checked {
		eachUse(s, "time", "Sleep", func(n ast.Node) {
			out = append(out, s.at("sleep", n, "time.Sleep: wait for the event, or use task.Sleep(ctx, d)"))
		})
	}
	return out
}

// seeding is what tests take of package rand: a seed, which they print, and what draws by it.
var seeding = []string{"Int64", "New", "NewPCG", "NewSource", "Rand", "Uint64"}

// checkSeeds holds that what a test does at random has a seed: nobody can play again
// what package rand draws by its own.
func checkSeeds(sources []*source) (out []violation) {
	for _, s := range sources {
		for _, pkg := range []string{"math/rand", "math/rand/v2"} {
			local := s.localName(pkg)
			if !s.test || local == "" {
				continue
			}
			ast.Inspect(s.file, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && !slices.Contains(seeding, sel.Sel.Name) {
					if x, ok := sel.X.(*ast.Ident); ok && x.Name == local {
						out = append(out, s.at("seed", sel, "%s.%s has no seed: draw by rand.New, from a seed that is printed", local, sel.Sel.Name))
					}
				}
				return true
			})
		}
	}
	return out
}

// eachUse calls fn with every mention of the function name of the package pkg.
func eachUse(s *source, pkg, name string, fn func(ast.Node)) {
	local := s.localName(pkg)
	if local == "" {
		return
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != name {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local {
			fn(sel)
		}
		return true
	})
}

// checkErrorf holds that an error is wrapped, not printed, when another is made of it.
func checkErrorf(sources []*source) (out []violation) {
	for _, s := range product(sources) {
		local := s.localName("fmt")
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if ok && local != "" && isErrorf(call, local) && printsError(call) {
				out = append(out, s.at("errorf", call, "fmt.Errorf prints err without %%w"))
			}
			return true
		})
	}
	return out
}

func isErrorf(call *ast.CallExpr, local string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Errorf" {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == local
}

// printsError reports whether one of the arguments is called err and the
// format has no %w.
func printsError(call *ast.CallExpr) bool {
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return false
	}
	format, err := strconv.Unquote(lit.Value)
	if err != nil || strings.Contains(format, "%w") {
		return false
	}
	for _, arg := range call.Args[1:] {
		if x, ok := arg.(*ast.Ident); ok && x.Name == "err" {
			return true
		}
	}
	return false
}
