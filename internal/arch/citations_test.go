package arch

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/trace/sites"
)

// crowd counts the IDs of a file that are cited by more than [trace.MaxIDs] at one place, or,
// in a script, before a command that expects nothing, and says where.
func crowd(name string, data []byte) (count int, places []string, err error) {
	found, err := sites.Find(name, data)
	for _, s := range found {
		if !s.Crowded(trace.MaxIDs) {
			continue
		}
		count += len(s.IDs)
		why := fmt.Sprintf("more than %d at one place", trace.MaxIDs)
		if s.Idle {
			why = "the next command expects nothing"
		}
		places = append(places, fmt.Sprintf("%s:%d: %s: %s", name, s.Line, strings.Join(s.IDs, " "), why))
	}
	return count, places, err
}

// scripts lists the files that may cite requirements, the tests of the citations themselves left out.
func scripts(t *testing.T) map[string][]byte {
	t.Helper()
	names, err := files()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, name := range names {
		data := strings.Contains("/"+name, "/testdata/") && slices.Contains([]string{".txt", ".yaml"}, path.Ext(name))
		if !data && !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/trace/") || strings.HasPrefix(name, "internal/arch/") {
			continue
		}
		if out[name], err = os.ReadFile(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestCitationsStandAtTheirAssertions holds that a citation has few IDs and, in a script, a command
// that can fail.
func TestCitationsStandAtTheirAssertions(t *testing.T) {
	all := scripts(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		_, places, err := crowd(name, all[name])
		if err != nil {
			t.Fatal(err)
		}
		for _, place := range places {
			t.Error(place)
		}
	}
}

// TestScriptsUseEveryFileTheyHold holds that what a script carries along is read by one of its
// commands: a file that is not shows a step that somebody meant to take.
func TestScriptsUseEveryFileTheyHold(t *testing.T) {
	for name, data := range scripts(t) {
		if dir := path.Dir(name); path.Ext(name) != ".txt" || dir != "test/clients/testdata" && !strings.HasPrefix(dir, "internal/controllers/") {
			continue
		}
		for _, unread := range unreadFiles(txtar.Parse(data)) {
			t.Errorf("%s: no command reads %s", name, unread)
		}
	}
}

// unreadFiles returns the files of a script, and those that its commands write, that none of its commands
// and none of its other files name, nor a folder above them.
func unreadFiles(ar *txtar.Archive) (out []string) {
	var commands []string
	for line := range strings.Lines(string(ar.Comment)) {
		if !strings.HasPrefix(line, "#") || strings.HasPrefix(line, "# Cloud: ") {
			commands = append(commands, line)
		}
	}
	used := func(name string, commands []string, but int) bool {
		for i, f := range ar.Files {
			if i != but && strings.Contains(string(f.Data), path.Base(name)) {
				return true
			}
		}
		return slices.ContainsFunc(commands, func(c string) bool { return mentions(c, name) })
	}
	for i, f := range ar.Files {
		if !used(f.Name, commands, i) {
			out = append(out, f.Name)
		}
	}
	for i, c := range commands {
		if _, target, ok := strings.Cut(c, " > "); ok {
			name, _, _ := strings.Cut(strings.Fields(target)[0], ";")
			if !strings.HasPrefix(name, "/dev/") && !used(name, commands[i+1:], -1) && !mentions(strings.SplitN(target, name, 2)[1], name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// mentions reports whether a command names a file or a folder that holds it.
func mentions(command, name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if strings.Contains(command, name) {
			return true
		}
	}
	return strings.Contains(command, " -f . ") || strings.Contains(command, " -f .\n") || strings.Contains(command, " -k .") || strings.Contains(command, "*.")
}

func TestCitationRulesBite(t *testing.T) {
	for _, tc := range []struct {
		name, file, text string
		want             int
	}{
		{"five IDs at a place", "a_test.go", "package a\nfunc f() { trace.Proves(t, `RS-001`, `RS-002`, `RS-003`, `RS-004`, `RS-005`) }", 0},
		{"six IDs at a place", "a_test.go", "package a\nfunc f() { trace.Proves(t, `RS-001`, `RS-002`, `RS-003`, `RS-004`, `RS-005`, `RS-006/Job`) }", 6},
		{"six IDs in a table", "a_test.go", "package a\nvar a = []string{`RS-001 RS-002`, `RS-003`, `RS-004`, `RS-005`, `RS-006`}", 6},
		{"six IDs in a word of a table", "a_test.go", "package a\nvar a = `RS-001 RS-002 RS-003 RS-004 RS-005 RS-006`", 6},
		{"a case of its own", "a.yaml", "name: a\nerrors: [b]\nproves: [RS-001]\n---\nname: c\nproves: [RS-001, RS-002, RS-003, RS-004, RS-005, RS-006]\n", 6},
		{"before a wait", "a.txt", "nodes 2\n# Proves: RS-001\nwait rs/a x=1\n", 0},
		{"before what expects nothing", "a.txt", "# Proves: RS-001\nnodes 2\nwait rs/a x=1\n", 1},
		{"before nothing", "a.txt", "nodes 2\nwait rs/a x=1\n# Proves: RS-001\n-- a --\n", 1},
		{"before a command of a transcript", "a.txt", "# Proves: RS-001\n# words\n$ kubectl get\nNAME\n", 0},
		{"before one that may print anything", "a.txt", "# Proves: RS-001\n$ kubectl get\n...\n$ kubectl get\nNAME\n", 1},
	} {
		if got, places, err := crowd(tc.file, []byte(tc.text)); got != tc.want || err != nil {
			t.Errorf("%s: got %d (%q, %v), want %d", tc.name, got, places, err, tc.want)
		}
	}
	got := unreadFiles(txtar.Parse([]byte("$ kubectl apply -f a.yaml -k dir > out\n$ echo > seen; cat seen\n-- a.yaml --\n-- dir/k.yaml --\nresources: [b.yaml]\n-- dir/b.yaml --\n-- lost.yaml --\n")))
	if want := []string{"lost.yaml", "out"}; !slices.Equal(got, want) {
		t.Errorf("files that are never read: got %q, want %q", got, want)
	}
}
