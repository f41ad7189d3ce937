package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// root is the top of the repository, seen from this package.
const root = "../.."

const module = "github.com/kemudi/kemudi/"

// A source is one parsed Go file.
type source struct {
	path  string // relative to the root, with slashes
	test  bool   // *_test.go
	lines int
	file  *ast.File
}

// dir is the folder of the file, relative to the root.
func (s *source) dir() string { return path.Dir(s.path) }

// generated says that no person writes the file, so size caps do not apply.
func (s *source) generated() bool { return strings.HasPrefix(path.Base(s.path), "zz_") }

// A violation is one place that breaks a rule. Where is a path or
// path#name, and is what an exception names; line is for people.
type violation struct {
	rule, where string
	line        int
	text        string
}

func (v violation) String() string {
	file, _, _ := strings.Cut(v.where, "#")
	return fmt.Sprintf("%s:%d: [%s] %s", file, v.line, v.rule, v.text)
}

// at makes a violation at a node of s.
func (s *source) at(rule string, n ast.Node, format string, args ...any) violation {
	return violation{rule, s.path, positions.Position(n.Pos()).Line, fmt.Sprintf(format, args...)}
}

// in makes the violation one of the function or struct called name.
func (v violation) in(name string) violation {
	v.where += "#" + name
	return v
}

// imports calls fn with every import path of the file.
func (s *source) imports(fn func(spec *ast.ImportSpec, path string)) {
	for _, spec := range s.file.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			fn(spec, p)
		}
	}
}

// localName returns the name under which the file imports the package pkg, or "".
func (s *source) localName(pkg string) string {
	name := ""
	s.imports(func(spec *ast.ImportSpec, p string) {
		if p != pkg {
			return
		}
		name = path.Base(p)
		if majorVersion.MatchString(name) && !strings.Contains(p, ".") { // math/rand/v2 is rand
			name = path.Base(path.Dir(p))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
	})
	return name
}

// positions are those of all files: who looks at several needs one set.
var positions = token.NewFileSet()

// parse parses one Go file given as text.
func parse(name string, src []byte) (*source, error) {
	f, err := parser.ParseFile(positions, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{
		path: name, test: strings.HasSuffix(name, "_test.go"),
		lines: bytes.Count(src, []byte("\n")), file: f,
	}, nil
}

// files lists what belongs to the project, relative to the root: what git
// tracks or would add. Without git it is every file outside hidden folders.
var files = sync.OnceValues(func() ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil {
		names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		slices.Sort(names)
		// A deleted file that is not yet committed is still listed.
		return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
			info, err := os.Stat(filepath.Join(root, name))
			return err != nil || info.IsDir()
		}), nil
	}
	var names []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if !d.IsDir() {
			rel, _ := filepath.Rel(root, p)
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	return names, err
})

// tree is the parsed Go code of the repository, nested modules included,
// testdata left out.
var tree = sync.OnceValues(func() ([]*source, error) {
	names, err := files()
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return !strings.HasSuffix(n, ".go") || strings.Contains("/"+n, "/testdata/")
	})
	out := make([]*source, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			src, err := os.ReadFile(filepath.Join(root, name))
			if err == nil {
				out[i], err = parse(name, src)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
})

// byDir groups sources by folder.
func byDir(sources []*source) map[string][]*source {
	m := map[string][]*source{}
	for _, s := range sources {
		m[s.dir()] = append(m[s.dir()], s)
	}
	return m
}

// product returns the sources that are neither tests nor packages for tests:
// those below test, such as the programs of the test image, and suites, which
// are known by their import of testing.
func product(sources []*source) (out []*source) {
	support := map[string]bool{}
	for _, s := range sources {
		if !s.test && s.localName("testing") != "" {
			support[s.dir()] = true
		}
	}
	for _, s := range sources {
		if !s.test && !support[s.dir()] && !strings.HasPrefix(s.path, "test/") {
			out = append(out, s)
		}
	}
	return out
}
