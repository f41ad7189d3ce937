package dns

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kemudi/kemudi/internal/trace"
)

var update = flag.Bool("update", false, "write what the tests get into testdata")

// TestAnswerScripts runs testdata/*.txt. Each is a list of sections, which are
// done in order:
//
//	proves   IDs of what the script shows
//	apply    objects, as YAML documents, that are new or changed
//	delete   objects, as YAML documents, that are gone
//	ask      lines "TYPE name", each followed by its answer, further in
//
// An answer is its records (after "+" the additional ones), sorted, "nothing" if the name
// exists without such records, or "no such name". Run with -update to write the
// answers into the scripts.
func TestAnswerScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o := newObjects()
			view := newView(o)
			for i := range ar.Files {
				f := &ar.Files[i]
				switch f.Name {
				case "proves":
					trace.Proves(t, strings.Fields(string(f.Data))...)
				case "apply":
					o.apply(t, string(f.Data))
				case "delete":
					o.delete(t, string(f.Data))
				case "ask":
					got := answers(t, view, string(f.Data))
					if *update {
						f.Data = []byte(got)
					} else if got != string(f.Data) {
						t.Errorf("%s: section %d: got\n%s\nwant\n%s", file, i+1, got, f.Data)
					}
				default:
					t.Fatalf("unknown section %q", f.Name)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// answers repeats the questions of a section with the answers there are.
func answers(t *testing.T, view View, text string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		b.WriteString(line)
		kind, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		qtype, known := dns.StringToType[kind]
		if !known {
			t.Fatalf("unknown type of record in %q", line)
		}
		name = dns.Fqdn(name)
		var a Answer
		if ip, ok := reverseAddress(name); ok {
			a = Reverse(view, "cluster.local.", name, ip)
		} else {
			a = Resolve(view, "cluster.local.", name, qtype)
		}
		b.WriteString(answerText(a))
	}
	return b.String()
}

func answerText(a Answer) string {
	var b strings.Builder
	var lines []string // in no order, as slices are
	for _, r := range a.Records {
		lines = append(lines, strings.ReplaceAll("\t"+r.String(), "\t", " "))
	}
	for _, r := range a.Extra {
		lines = append(lines, strings.ReplaceAll("+\t"+r.String(), "\t", " "))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(strings.TrimSpace(a), strings.TrimSpace(b)) })
	for _, l := range lines {
		fmt.Fprintf(&b, "\t%s\n", strings.TrimSpace(l))
	}
	switch {
	case a.Chase != "":
		fmt.Fprintf(&b, "\tthen %s\n", a.Chase)
	case !a.Exists:
		b.WriteString("\tno such name\n")
	case len(a.Records) == 0:
		b.WriteString("\tnothing\n")
	}
	return b.String()
}
