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

func TestMapListsEveryResource(t *testing.T) {
	texttest.Part(t, "../../docs/MAP.md", "resources", resourceTable(t))
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
	if !d.Stored() {
		list = append(list, "(a question: create only)")
	}
	return strings.Join(list, ", ")
}

// columns leaves out NAME; those of -o wide are in brackets.
func columns(d *resource.Def) string {
	if !d.Stored() {
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
