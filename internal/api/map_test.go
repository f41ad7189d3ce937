package api_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/texttest"
)

// mapFile says where to find what. The resources are between two comments of
// it; the rest is written by people.
const (
	mapFile  = "../../docs/MAP.md"
	mapBegin = "<!-- resources: generated, run: go test ./internal/api -run TestMapListsEveryResource -update -->\n"
	mapEnd   = "<!-- end of resources -->\n"
)

func TestMapListsEveryResource(t *testing.T) {
	want := mapBegin + resourceTable(t) + mapEnd
	text, err := os.ReadFile(mapFile)
	if os.IsNotExist(err) && *texttest.Update {
		text = []byte("# Where to find what\n\n## Resources\n\n" + mapBegin + mapEnd)
	} else if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), mapBegin)
	if !ok {
		t.Fatalf("%s has no line %q", mapFile, mapBegin)
	}
	got, after, ok := strings.Cut(rest, mapEnd)
	if !ok {
		t.Fatalf("%s has no line %q", mapFile, mapEnd)
	}
	if mapBegin+got+mapEnd == want && !os.IsNotExist(err) {
		return
	}
	if !*texttest.Update {
		t.Fatalf("the resources in %s are not those that are declared; run: go test ./internal/api -run TestMapListsEveryResource -update", mapFile)
	}
	if err := os.WriteFile(mapFile, []byte(before+want+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// resourceTable lists the resources by group and kind.
func resourceTable(t *testing.T) string {
	t.Helper()
	files := declarations(t)
	defs := slices.Clone(api.All())
	slices.SortFunc(defs, func(a, b *resource.Def) int {
		return strings.Compare(a.Group+"/"+a.Kind, b.Group+"/"+b.Kind)
	})
	var out bytes.Buffer
	out.WriteString("| kind | stored as | served as well | names | subresources | columns of kubectl get | file |\n|---|---|---|---|---|---|---|\n")
	for _, d := range defs {
		file := files[d.Kind+" "+d.Plural]
		if file == "" {
			t.Errorf("no file under internal/api declares %s (%s) in one line", d.Kind, d.Plural)
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s | [%s](../internal/api/%s) |\n",
			d.Kind, groupVersion(d.Group, d.Version), furtherVersions(d), names(d), subresources(d), columns(d), file, file)
	}
	return out.String()
}

func groupVersion(group, version string) string {
	if group == "" {
		return version
	}
	return group + "/" + version
}

func furtherVersions(d *resource.Def) string {
	var list []string
	for _, v := range d.Versions {
		list = append(list, groupVersion(v.Group, v.Version))
	}
	return strings.Join(list, ", ")
}

// names has the plural, the short names and, for kinds outside of namespaces, a mark.
func names(d *resource.Def) string {
	list := append([]string{d.Plural}, d.Short...)
	text := strings.Join(list, ", ")
	if !d.Namespaced {
		text += " (cluster)"
	}
	return text
}

// subresources has those of all versions, and where those are that not all have.
func subresources(d *resource.Def) string {
	var list []string
	for _, s := range d.Sub {
		list = append(list, s.Name)
	}
	for _, v := range d.Versions {
		for _, s := range v.Sub {
			if d.Subresource(s.Name) == nil {
				list = append(list, fmt.Sprintf("%s (%s)", s.Name, groupVersion(v.Group, v.Version)))
			}
		}
	}
	if d.CreateOnly {
		list = append(list, "(a question: create only)")
	}
	return strings.Join(list, ", ")
}

// columns leaves out NAME; those of -o wide are in brackets.
func columns(d *resource.Def) string {
	if d.CreateOnly {
		return ""
	}
	var list []string
	for _, c := range d.Columns {
		switch {
		case c.Name == "Name":
		case c.Priority > 0:
			list = append(list, "["+c.Name+"]")
		default:
			list = append(list, c.Name)
		}
	}
	return strings.Join(list, ", ")
}

var declaration = regexp.MustCompile(`\bKind:\s+"(\w+)",\s+Plural:\s+"(\w+)"`)

// declarations finds the file that declares a kind, by kind and plural.
func declarations(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			files[string(m[1])+" "+string(m[2])] = filepath.ToSlash(path)
		}
	}
	return files
}
