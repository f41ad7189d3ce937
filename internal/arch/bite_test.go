package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// Each case is a small tree in the txtar form and the violations that the rules
// must find in it, as rule and place, in the order of the rules.
var biteCases = []struct {
	name string
	tree string
	want []string
	only string // the one rule to apply, when not all
}{
	{"a good package breaks nothing", `
-- internal/store/store.go --
// Package store stores.
package store
import (
	"context"
	"fmt"
	"github.com/kemudi/kemudi/internal/obs"
)
var _ = obs.NewRegistry
func Get(ctx context.Context, a, b, c, d int) error { return fmt.Errorf("get: %w", ctx.Err()) }
`, nil, ""},
	{"an upward import is found", `
-- internal/store/store.go --
// Package store stores.
package store
import _ "github.com/kemudi/kemudi/internal/client"
`, []string{"layer internal/store/store.go"}, ""},
	{"a sibling import is found, one within the unit is not", `
-- internal/controllers/job/job.go --
// Package job runs jobs.
package job
import _ "github.com/kemudi/kemudi/internal/controllers/cronjob"
import _ "github.com/kemudi/kemudi/internal/controllers/job/plan"
`, []string{"layer internal/controllers/job/job.go"}, ""},
	{"the list of controllers may import them", `
-- internal/controllers/all.go --
// Package controllers lists them.
package controllers
import _ "github.com/kemudi/kemudi/internal/controllers/job"
`, nil, ""},
	{"a package in no layer is found", `
-- internal/util/util.go --
// Package util is everything.
package util
`, []string{"layer internal/util/util.go"}, ""},
	{"the tracing helper stays out of the program", `
-- internal/store/store.go --
// Package store stores.
package store
import _ "github.com/kemudi/kemudi/internal/trace"
-- internal/store/store_test.go --
package store
import _ "github.com/kemudi/kemudi/internal/trace"
import _ "github.com/kemudi/kemudi/internal/sim"
-- internal/sim/sim.go --
// Package sim simulates.
package sim
import _ "github.com/kemudi/kemudi/internal/trace"
`, []string{"layer internal/store/store.go"}, ""},
	{"a command that reaches around the wiring is found", `
-- cmd/kemudi/main.go --
// Command kemudi is it.
package main
import _ "github.com/kemudi/kemudi/internal/cluster"
import _ "github.com/kemudi/kemudi/internal/store"
import _ "github.com/kemudi/kemudi/cmd/kemudi/help"
`, []string{"command cmd/kemudi/main.go"}, ""},
	{"a simulation that reaches the container runtime is found, a server that does is not", `
-- internal/sim/sim.go --
// Package sim simulates.
package sim
import _ "github.com/kemudi/kemudi/internal/cluster"
-- internal/controllers/job/job_test.go --
package job
import _ "github.com/kemudi/kemudi/internal/sim"
import _ "github.com/kemudi/kemudi/internal/store"
-- internal/cluster/cluster.go --
// Package cluster wires.
package cluster
import _ "github.com/kemudi/kemudi/internal/container"
-- internal/container/container.go --
// Package container runs containers.
package container
import _ "github.com/containerd/containerd/v2/client"
`, []string{"light internal/sim/sim.go", "light internal/controllers/job/job_test.go"}, "light"},
	{"an unlisted third-party import is found, in tests too", `
-- internal/store/store.go --
// Package store stores.
package store
import _ "example.org/fancy"
-- internal/store/store_test.go --
package store
import _ "example.org/mock"
`, []string{"import internal/store/store.go", "import internal/store/store_test.go"}, ""},
	{"what tests alone may import is found in the product", `
-- internal/store/store.go --
// Package store stores.
package store
import _ "sigs.k8s.io/randfill"
-- internal/store/store_test.go --
package store
import _ "sigs.k8s.io/randfill"
-- internal/sim/sim.go --
// Package sim simulates.
package sim
import _ "github.com/rogpeppe/go-internal/txtar"
`, []string{"import internal/store/store.go"}, ""},
	{"the server library is found, its CEL packages are not", `
-- test/e2e/x_test.go --
package e2e
import _ "k8s.io/apiserver/pkg/server/options"
import _ "k8s.io/kubernetes/pkg/apis/core"
import _ "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
import _ "k8s.io/apiextensions-apiserver/pkg/apiserver"
`, []string{"forbidden test/e2e/x_test.go", "forbidden test/e2e/x_test.go", "forbidden test/e2e/x_test.go"}, "forbidden"},
	{"missing, double, misplaced and odd package comments are found", `
-- internal/api/a/a.go --
package a
-- internal/api/b/doc.go --
// Package b is documented.
package b
-- internal/api/b/b.go --
// Package b is documented again.
package b
-- internal/api/c/c.go --
// Package c is documented here.
package c
-- internal/api/c/d.go --
package c
-- internal/api/d/d.go --
// Deals with d.
package d
`, []string{"doc internal/api/a/a.go", "doc internal/api/b/b.go", "doc internal/api/c/c.go", "doc internal/api/d/d.go"}, ""},
	{"too many parameters are found, a context and a receiver are not counted", `
-- internal/store/store.go --
// Package store stores.
package store
import "context"
type T[K any] struct{}
func (t *T[K]) Good(ctx context.Context, a, b, c, d int) {}
func (t *T[K]) Bad(a, b, c, d, e int) {}
`, []string{"params internal/store/store.go#T.Bad"}, ""},
	{"generic code that asks for a kind is found, in whatever way", `
-- internal/api/api.go --
// Package api has every kind.
package api
var Names = struct{ Group, Kind, Plural string }{Group: "apps", Kind: "Scale", Plural: "pods"}
-- internal/cache/cache.go --
// Package cache is generic.
package cache
import corev1 "k8s.io/api/core/v1"
var known = map[string]bool{"pods": true}
func f(group string, obj any) bool {
	switch group {
	case "apps", "other":
		return true
	}
	if _, ok := obj.(*corev1.Pod); ok {
		return true
	}
	switch obj.(type) {
	case *corev1.Pod:
	}
	return group == "Scale" || group != "free"
}
-- internal/proxy/proxy.go --
// Package proxy is not.
package proxy
func f(group string) bool { return group == "apps" }
`, slices.Repeat([]string{"kind internal/cache/cache.go"}, 5), "kind"},
	{"an option that only a test sets is found, one by its own default too", `
-- cmd/kemudi/main.go --
// Command kemudi is it.
package main
import "github.com/kemudi/kemudi/internal/cluster"
func main() {
	var o cluster.Options
	flags.StringVar(&o.Store.Dir, "dir", "", "")
	o.Name = "n"
	cluster.Run(cluster.Options{Size: 1})
}
-- internal/cluster/cluster.go --
// Package cluster runs it.
package cluster
import "github.com/kemudi/kemudi/internal/store"
type Options struct {
	Name  string
	Size  int
	Speed int
	Store store.Config
}
func Run(o Options) {
	if o.Speed == 0 {
		o.Speed = 1
	}
}
-- internal/cluster/cluster_test.go --
package cluster
var _ = Options{Speed: 2}
-- internal/store/store.go --
// Package store stores.
package store
type Config struct{ Dir, File string }
-- internal/kubelet/fake.go --
// Package kubelet is in no program here.
package kubelet
type Options struct{ Fake bool }
`, []string{"setter internal/cluster/cluster.go#Options.Speed", "setter internal/store/store.go#Config.File"}, ""},
	{"a goroutine, an init, a root context, a sleep and a printed error are found", `
-- internal/store/store.go --
// Package store stores.
package store
import (
	"context"
	"fmt"
	clock "time"
)
func init() { clock.Sleep(1) }
func f(err error) error {
	go f(nil)
	_ = context.Background()
	return fmt.Errorf("f: %v", err)
}
-- internal/store/store_test.go --
package store
import "context"
func g() { go f(nil); _ = context.Background() }
-- internal/task/task.go --
// Package task starts goroutines.
package task
func f() { go f() }
`, []string{"go internal/store/store.go", "init internal/store/store.go", "background internal/store/store.go", "sleep internal/store/store.go", "errorf internal/store/store.go"}, ""},
	{"a test that draws without a seed is found", `
-- internal/store/store.go --
// Package store stores.
package store
import "math/rand/v2"
var _ = rand.IntN(3)
-- internal/store/store_test.go --
package store
import "math/rand/v2"
func f() int {
	seed := rand.Uint64()
	return rand.New(rand.NewPCG(seed, 0)).IntN(3) + rand.IntN(3)
}
-- internal/store/key_test.go --
package store
import "crypto/rand"
var _ = rand.Text()
`, []string{"seed internal/store/store_test.go"}, ""},
	{"units of one folder are apart, a named one below the others", `
-- internal/kubelet/podstep/podstep.go --
// Package podstep steps.
package podstep
import _ "github.com/kemudi/kemudi/internal/kubelet/cri"
-- internal/kubelet/cri/cri.go --
// Package cri translates.
package cri
import _ "github.com/kemudi/kemudi/internal/kubelet/podstep"
-- internal/apiserver/flow/flow.go --
// Package flow flows.
package flow
import _ "github.com/kemudi/kemudi/internal/apiserver/budget"
-- internal/apiserver/budget/budget.go --
// Package budget budgets.
package budget
import _ "github.com/kemudi/kemudi/internal/apiserver"
import _ "github.com/kemudi/kemudi/internal/store"
-- internal/apiserver/apiserver.go --
// Package apiserver serves.
package apiserver
import _ "github.com/kemudi/kemudi/internal/apiserver/flow"
import _ "github.com/kemudi/kemudi/internal/kubelet/fakecri"
`, []string{"layer internal/kubelet/podstep/podstep.go", "layer internal/apiserver/flow/flow.go",
		"layer internal/apiserver/budget/budget.go", "layer internal/apiserver/apiserver.go"}, ""},
	{"the fields of a struct without a name are those of the struct it is in",
		"-- internal/store/t.go --\n// Package store stores.\npackage store\ntype Good struct {\n\tmu struct {\n" + fields(25) + "\t}\n}\n" +
			"type Bad struct {\n\tA int\n\tmu struct {\n" + fields(25) + "\t}\n}\n",
		[]string{"struct-fields internal/store/t.go#Bad"}, ""},
	{"names of what is not there are found in comments", `
-- internal/store/doc.go --
// Package store stores, see package mem, [mem.Store.Get], [Open], [fmt.Stringer] and mem/*.go; one package says so.
package store
-- internal/store/store.go --
package store
import _ "fmt"
// open was the name of [mem.Store.Put].
func Open() {}
// Lost and [lost.Lost] are in package lost.
// See [Lost], lost.go, internal/lost and old_*.go [A, b].
func lost() {}
-- internal/store/mem/mem.go --
// Package mem remembers.
package mem
type Store struct{}
func (*Store) Get() {}
`, []string{"names internal/store/store.go", "names internal/store/store.go", "names internal/store/store.go", "names internal/store/store.go",
		"names internal/store/store.go", "names internal/store/store.go", "names internal/store/store.go", "names internal/store/store.go"}, "names"},
	{"long files, functions and structs are found, generated ones are not",
		"-- internal/store/long.go --\n// Package store stores.\npackage store\nfunc f() {\n" + strings.Repeat("\n", maxFileLines) + "}\ntype T struct {\n" + fields(26) + "}\n" +
			"-- internal/store/zz_long.go --\npackage store\n" + strings.Repeat("\n", maxFileLines) +
			"-- internal/store/long_test.go --\npackage store\n" + strings.Repeat("\n", maxFileLines),
		[]string{"file-lines internal/store/long.go", "func-lines internal/store/long.go#f", "struct-fields internal/store/long.go#T"}, ""},
}

func fields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "F%d int\n", i)
	}
	return b.String()
}

func TestRulesBite(t *testing.T) {
	for _, tc := range biteCases {
		t.Run(tc.name, func(t *testing.T) {
			var sources []*source
			for _, f := range txtar.Parse([]byte(tc.tree)).Files {
				s, err := parse(f.Name, f.Data)
				if err != nil {
					t.Fatal(err)
				}
				sources = append(sources, s)
			}
			var got []string
			for _, rule := range rules {
				if tc.only != "" && tc.only != rule.name {
					continue
				}
				for _, v := range rule.check(sources) {
					if v.rule != rule.name {
						t.Errorf("rule %s reports as %s", rule.name, v.rule)
					}
					got = append(got, v.rule+" "+v.where)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("violations: got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestUnusedAllowancesAreFoundOnTheirSide(t *testing.T) {
	code, err := parse("internal/store/store.go", []byte(`package store; import _ "a.org/a"`))
	if err != nil {
		t.Fatal(err)
	}
	test, err := parse("internal/store/store_test.go", []byte(`package store; import _ "b.org/b"`))
	if err != nil {
		t.Fatal(err)
	}
	list := []allowance{{"a.org/a", ""}, {"b.org/b", ""}}
	got := unused([]*source{code, test}, list, list)
	if want := []allowance{{"b.org/b", ""}, {"a.org/a", ""}}; !slices.Equal(got, want) {
		t.Errorf("unused: got %v, want %v", got, want)
	}
}

func TestUnitsWithoutCodeAreFound(t *testing.T) {
	s, err := parse("internal/a/b/b.go", []byte("package b"))
	if err != nil {
		t.Fatal(err)
	}
	got := unitsWithoutCode(map[string]int{"a": 3, "a/*": 2, "a/b": 1, "c": 0}, []*source{s})
	if want := []string{"a", "a/*", "c"}; !slices.Equal(got, want) {
		t.Errorf("units: got %q, want %q", got, want)
	}
}

func TestDocumentNamesBite(t *testing.T) {
	s, err := parse("internal/store/mem/mem.go", []byte("package mem; import _ `context`; type Store struct{ Size int }"))
	if err != nil {
		t.Fatal(err)
	}
	text := "`mem.Store`, `mem.Store.Size`, `Store.Size`, `store/mem`, `store/mem/mem.go`, `context.Context`, `wg.Go`, `apps/v1`, `Secret`" +
		"`mem.Lost`, `mem.Store.Lost`, `Store.Lost`, `store/lost`, `lost.Store`"
	want := []string{"mem.Lost", "mem.Store.Lost", "lost.Store", "Store.Lost", "store/lost"}
	if got := newCatalogue([]*source{s}).wrongInDocument(text); !slices.Equal(got, want) {
		t.Errorf("names: got %q, want %q", got, want)
	}
}

func TestMachineWordsBite(t *testing.T) {
	for _, w := range machineWords {
		if got := wordsIn([]byte("see " + w[0] + w[1] + " there")); len(got) != 1 {
			t.Errorf("%s%s: got %q", w[0], w[1], got)
		}
	}
	if got := wordsIn([]byte("apps/workloads in a library of agents")); got != nil {
		t.Errorf("harmless text: got %q", got)
	}
}

func TestDocumentPathsBite(t *testing.T) {
	got := pathsIn("docs/x.md", "See `internal/store`, `RS-006`, [a](architecture.md#top), [b](../README.md), [c](https://example.org) and [d](#here).")
	if want := []string{"internal/store", "docs/architecture.md", "README.md"}; !slices.Equal(got, want) {
		t.Errorf("paths: got %q, want %q", got, want)
	}
}

func TestWhatADocumentSaysTwiceIsFound(t *testing.T) {
	line := "a sentence of more than a few words"
	got := saidTwice(line + "\n| " + line[:28] + " | here |\nshort\nshort\n| " + line[:28] + " | there |\n  " + line + "\n" + line + "\n")
	if want := []string{line[:28], line}; !slices.Equal(got, want) {
		t.Errorf("said twice: got %q, want %q", got, want)
	}
}

func TestWrongLayersInAPictureAreFound(t *testing.T) {
	row := func(units, words string) string { return fmt.Sprintf("%-36s%s\n", units, words) }
	ranks := map[string]int{"top": 3, "b": 2, "b/*": 2, "b/c": 1, "low": 0, "sim": 4, "lost": 1}
	picture := row("top", "a word") + row("b  b/*", "low words") + row("b", "") + row("low", "") + row("b/c  planned", "")
	got := wrongInLayers(picture, ranks)
	if want := []string{"b is drawn twice", "b/c is drawn too low", "planned is no unit", "lost is not drawn"}; !slices.Equal(got, want) {
		t.Errorf("layers: got %q, want %q", got, want)
	}
}
