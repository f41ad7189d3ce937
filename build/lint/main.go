// Command lint runs the checks of go vet and of staticcheck over packages, in one
// pass, and prints what they find.
//
//	lint ./...
//
// Both programs look at every package that is imported as well, for what they
// would know of its functions: on a fresh machine that is six minutes of processor
// time for 1,800 packages, of which 200 are ours. Here only the packages that are
// named are read from source, tests included; of the others the compiler's own
// record is enough, which the build has made. What is lost is that a function of
// a library might never return, or might take a format.
//
// Which of staticcheck's checks are on is said in staticcheck.conf, as for its own
// program.
package main

import (
	"errors"
	"fmt"
	"go/token"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/packages"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/config"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

// memoryLimit is when to collect garbage more often: the syntax of the whole
// tree stays in memory.
const memoryLimit = 1500 << 20

func main() {
	debug.SetMemoryLimit(memoryLimit)
	found, err := run(os.Args[1:])
	for _, line := range found {
		fmt.Println(line)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
	}
	if err != nil || len(found) > 0 {
		os.Exit(1)
	}
}

func run(patterns []string) ([]string, error) {
	checks, err := chosen()
	if err != nil {
		return nil, err
	}
	all, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax | packages.NeedModule | packages.NeedForTest, Tests: true}, patterns...)
	if err != nil {
		return nil, fmt.Errorf("load packages: %w", err)
	}
	if packages.PrintErrors(all) > 0 {
		return nil, errors.New("there are packages that do not compile")
	}
	graph, err := checker.Analyze(checks, subjects(all), nil)
	if err != nil {
		return nil, fmt.Errorf("analyze: %w", err)
	}
	return findings(graph)
}

// chosen returns vet's analyzers, and those of staticcheck that its settings
// do not turn off.
func chosen() ([]*analysis.Analyzer, error) {
	settings, err := config.Load(".")
	if err != nil {
		return nil, fmt.Errorf("read staticcheck's settings: %w", err)
	}
	list := slices.Clone(vet.Suite)
	for _, a := range slices.Concat(simple.Analyzers, staticcheck.Analyzers, stylecheck.Analyzers, []*lint.Analyzer{unused.Analyzer}) {
		if !slices.Contains(settings.Checks, "-"+a.Analyzer.Name) {
			list = append(list, a.Analyzer)
		}
	}
	return list, nil
}

// subjects returns the packages to look at. One that has tests in it is loaded
// twice, without them and with them: the second is enough. Packages that are not
// among them are taken out of the graph, for there is no source to learn from.
func subjects(all []*packages.Package) (list []*packages.Package) {
	named, tested := map[*packages.Package]bool{}, map[string]bool{}
	for _, p := range all {
		named[p] = true
		tested[p.PkgPath] = tested[p.PkgPath] || p.ForTest == p.PkgPath
	}
	for _, p := range all {
		for path, imported := range p.Imports {
			if !named[imported] {
				delete(p.Imports, path)
			}
		}
		generated := strings.HasSuffix(p.PkgPath, ".test") // the main package of a test
		if !generated && (p.ForTest != "" || !tested[p.PkgPath]) {
			list = append(list, p)
		}
	}
	return list
}

// findings returns what the analyzers have to say, a line each, sorted.
func findings(graph *checker.Graph) ([]string, error) {
	var lines []string
	var errs []error
	add := func(at token.Position, message, check string) {
		if dir, err := os.Getwd(); err == nil {
			if name, err := filepath.Rel(dir, at.Filename); err == nil {
				at.Filename = name
			}
		}
		lines = append(lines, fmt.Sprintf("%s: %s (%s)", at, message, check))
	}
	for _, a := range graph.Roots {
		if a.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", a, a.Err))
		}
		for _, d := range a.Diagnostics {
			add(a.Package.Fset.Position(d.Pos), d.Message, a.Analyzer.Name)
		}
		// What is unused is not reported but returned, for others to merge.
		if r, ok := a.Result.(unused.Result); ok {
			for _, o := range r.Unused {
				add(o.DisplayPosition, fmt.Sprintf("%s %s is unused", o.Kind, o.Name), a.Analyzer.Name)
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines), errors.Join(errs...)
}
