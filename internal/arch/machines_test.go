package arch

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machines are the kinds that the program is made for, in Go's words. To compile for the other
// one takes minutes where nothing of that is compiled yet; this looks at what usually differs.
var machines = []string{"amd64", "arm64"}

// systemCalls are the packages that have other names for each kind of machine.
var systemCalls = []string{"golang.org/x/sys/unix", "syscall"}

// TestEveryMachineHasTheSystemCallsThatAreUsed: SYS_OPEN, Dup2 and others are there on amd64 alone.
func TestEveryMachineHasTheSystemCallsThatAreUsed(t *testing.T) {
	sources, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	for _, machine := range machines {
		for _, pkg := range systemCalls {
			has := exported(t, machine, pkg)
			if !has["Kill"] || !has["SYS_OPENAT"] || machine == "arm64" && has["SYS_OPEN"] {
				t.Fatalf("%s: what %s has is not understood", machine, pkg)
			}
			for _, s := range sources {
				name := s.localName(pkg)
				if name == "" || !compiled(s, machine) {
					continue
				}
				ast.Inspect(s.file, func(n ast.Node) bool {
					sel, ok := n.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && !has[sel.Sel.Name] {
						t.Errorf("%s:%d: %s has no %s.%s", s.path, positions.Position(sel.Pos()).Line, machine, name, sel.Sel.Name)
					}
					return true
				})
			}
		}
	}
}

// exported are the names that others can use on a kind of machine.
func exported(t *testing.T, machine, pkg string) map[string]bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.Dir}}{{range .GoFiles}}{{"\n"}}{{.}}{{end}}`, pkg)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOOS=linux", "GOARCH="+machine, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the files of %s: %v", pkg, err)
	}
	names := map[string]bool{}
	files := strings.Fields(string(out))
	for _, name := range files[1:] {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(files[0], name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = names[d.Name.Name] || d.Recv == nil
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						names[spec.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range spec.Names {
							names[n.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}

// compiled says whether a file counts on a kind of machine.
func compiled(s *source, machine string) bool {
	if of := machineOf(s.path); of != "" && of != machine {
		return false
	}
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if expr, err := constraint.Parse(c.Text); err == nil && c.Pos() < s.file.Package {
				return expr.Eval(func(tag string) bool {
					return tag == machine || tag == "linux" || tag == "unix"
				})
			}
		}
	}
	return true
}

// machineOf is the kind of machine that the name of a file says it is for, or nothing.
func machineOf(file string) string {
	name := strings.TrimSuffix(strings.TrimSuffix(file, path.Ext(file)), "_test")
	i := slices.IndexFunc(machines, func(m string) bool { return strings.HasSuffix(name, "_"+m) })
	if i < 0 {
		return ""
	}
	return machines[i]
}

// TestWhatIsForOneMachineHasACounterpart for the other one.
func TestWhatIsForOneMachineHasACounterpart(t *testing.T) {
	names, err := files()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range names {
		of := machineOf(name)
		if ext := path.Ext(name); of == "" || ext != ".go" && ext != ".s" {
			continue
		}
		found++
		for _, other := range machines {
			if want := strings.Replace(name, "_"+of, "_"+other, 1); !slices.Contains(names, want) {
				t.Errorf("%s is for %s alone: there is no %s", name, of, want)
			}
		}
	}
	if found == 0 {
		t.Error("nothing is for one kind of machine alone: this test is of no use any more")
	}
}
