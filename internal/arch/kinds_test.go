package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// genericDirs are generic over kinds: what is special about one is a field of its
// declaration.
var genericDirs = []string{"internal/apiserver", "internal/watchcache", "internal/resource", "internal/cache"}

// checkKinds holds that generic code asks for no kind: neither by the words of a
// declaration in internal/api, nor by its Go type.
func checkKinds(sources []*source) (out []violation) {
	words := declaredWords(sources)
	for _, s := range product(sources) {
		if !slices.Contains(genericDirs, s.dir()) {
			continue
		}
		asksFor := func(exprs ...ast.Expr) {
			for _, e := range exprs {
				if text := literal(e); words[text] {
					out = append(out, s.at("kind", e, "generic code asks for %q: make it a field of resource.Spec", text))
				}
			}
		}
		isKind := func(t ast.Expr) {
			if star, ok := t.(*ast.StarExpr); ok {
				t = star.X
			}
			sel, ok := t.(*ast.SelectorExpr)
			if !ok {
				return
			}
			s.imports(func(_ *ast.ImportSpec, p string) {
				if x, ok := sel.X.(*ast.Ident); ok && strings.HasPrefix(p, "k8s.io/api/") && x.Name == s.localName(p) {
					out = append(out, s.at("kind", sel, "generic code asks for a %s.%s: make it a field of resource.Spec", x.Name, sel.Sel.Name))
				}
			})
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					asksFor(n.X, n.Y)
				}
			case *ast.CaseClause:
				asksFor(n.List...)
				for _, t := range n.List {
					isKind(t)
				}
			case *ast.CompositeLit:
				if _, isMap := n.Type.(*ast.MapType); isMap {
					for _, e := range n.Elts {
						asksFor(e.(*ast.KeyValueExpr).Key)
					}
				}
			case *ast.TypeAssertExpr:
				isKind(n.Type)
			}
			return true
		})
	}
	return out
}

// declaredWords are the plurals, kinds and groups that internal/api declares.
func declaredWords(sources []*source) map[string]bool {
	words := map[string]bool{}
	for _, s := range sources {
		if s.test || !strings.HasPrefix(s.path, "internal/api/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			names := map[string]string{}
			for _, e := range lit.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					if key, ok := kv.Key.(*ast.Ident); ok {
						names[key.Name] = literal(kv.Value)
					}
				}
			}
			if names["Plural"] != "" {
				words[names["Plural"]], words[names["Kind"]], words[names["Group"]] = true, true, true
			}
			return true
		})
	}
	delete(words, "")
	return words
}

// literal is the text of a string literal; empty for all else.
func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	text, _ := strconv.Unquote(lit.Value) // it was parsed
	return text
}
