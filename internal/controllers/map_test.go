package controllers_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/cloud/loopback"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/controllers/cloud"
	"github.com/kemudi/kemudi/internal/controllers/clusterdns"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/texttest"
)

func TestMapListsEveryController(t *testing.T) {
	defs := []*resource.Def{core.ConfigMaps.Def} // stands for all, where a controller has all
	all := controllers.All(controllers.Options{
		Kinds: controller.Fixed(defs), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, Authority: &pki.Authority{}, Tokens: &authn.Issuer{}, PodGroups: true,
		DNS: clusterdns.Options{Address: netip.IPv4Unspecified()}, Cloud: cloud.Options{Provider: &loopback.Cloud{}},
	})
	listed := listedControllers(t)
	if len(listed) != len(all) {
		t.Fatalf("all.go lists %d controllers, All returns %d", len(listed), len(all))
	}
	flags := flagsOfControllers(t)
	var rows []string
	for i, c := range all {
		var reads, writes, own []string
		for _, d := range c.Reads {
			reads = append(reads, d.Plural)
		}
		for _, g := range c.Writes {
			name := g.Def.Plural
			if g.Sub != "" {
				name += "/" + g.Sub
			}
			writes = append(writes, g.Verb+" "+name)
		}
		for _, field := range listed[i].fields {
			if field == "Kinds" {
				reads, writes = []string{"everything"}, []string{"as its role says"}
			}
			own = append(own, flags[field]...)
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | [%s](../internal/controllers/%s) |\n",
			c.Name, strings.Join(reads, ", "), strings.Join(writes, ", "), strings.Join(own, ", "), listed[i].folder, listed[i].folder))
	}
	slices.Sort(rows)
	texttest.Part(t, "../../docs/MAP.md", "controllers", "| controller | reads | writes | flags | folder |\n|---|---|---|---|---|\n"+strings.Join(rows, ""))
}

// A listedController is one line of All: the package that it comes from, and the fields of
// the options that it is given.
type listedController struct {
	folder string
	fields []string
}

// listedControllers reads all.go, in which the controllers stand in the order of All.
func listedControllers(t *testing.T) (out []listedController) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "all.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	add := func(list []ast.Expr) {
		for _, e := range list {
			one := listedController{}
			ast.Inspect(e, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				switch x, _ := sel.X.(*ast.Ident); {
				case x == nil:
				case x.Name == "o":
					one.fields = append(one.fields, sel.Sel.Name)
				case one.folder == "":
					one.folder = x.Name
				}
				return true
			})
			out = append(out, one)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if list, ok := n.Type.(*ast.ArrayType); ok && len(n.Elts) > 0 {
				if _, ok := list.Elt.(*ast.StarExpr); ok {
					add(n.Elts)
				}
			}
		case *ast.CallExpr:
			if fn, ok := n.Fun.(*ast.Ident); ok && fn.Name == "append" {
				add(n.Args[1:])
			}
		}
		return true
	})
	return out
}

var controllerFlag = regexp.MustCompile(`&o\.(?:Controllers\.)?(\w+)\.\w+\)?, "([a-z0-9-]+)"`)

// flagsOfControllers has the flags that set each field of the options.
func flagsOfControllers(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../cmd/kemudi/server.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, m := range controllerFlag.FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = append(out[m[1]], "`--"+m[2]+"`")
	}
	if len(out) < 5 {
		t.Fatalf("found flags of only %d fields", len(out))
	}
	return out
}
