package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module is a small one, with the records of a run of its tests.
var module = map[string]string{
	"go.mod": "module example.org/m\n\ngo 1.25\n",
	"a/a_test.go": `package a

import ("os"; "sync"; "testing")

func TestLooks(t *testing.T) {
	t.Run("a sub", func(t *testing.T) {
		cite()
		if got := 1; got != 1 {
			t.Errorf("got %d", got)
		}
	})
}

func TestReads(t *testing.T) {
	data, err := os.ReadFile("testdata/reads.txt")
	if err != nil || string(data) != "# Proves: RS-002\n$ say\nword\n" {
		t.Errorf("got %q, %v", data, err)
	}
}

func TestTells(t *testing.T) {
	var wg sync.WaitGroup
	wg.Go(func() {
		cite()
		var got *int
		if got != nil {
			t.Errorf("got %d", *got)
		}
	})
	wg.Wait()
}

func TestNeighbours(t *testing.T) {
	t.Run("a", func(t *testing.T) {
		cite()
		is(t, 1)
	})
	t.Run("b", func(t *testing.T) {
		if got := 1; got != 1 {
			t.Errorf("got %d", got)
		}
	})
}

func TestRows(t *testing.T) {
	for _, r := range []struct{ want, proves string }{
		{"word", "RS-008"},
		{"word", "RS-009"},
		{"word", "RS-008"},
	} {
		t.Run(r.proves, func(t *testing.T) {
			cite()
			if got := "word"; got != r.want {
				t.Errorf("got %s", got)
			}
		})
	}
}

func is(t *testing.T, want int) {
	if got := 1; got != want {
		t.Errorf("got %d", got)
	}
}

func TestLooksAtNothing(t *testing.T) {}

func TestExpectsNothing(t *testing.T) {
	cite()
}

func cite() {}
`,
	"a/testdata/reads.txt":   "# Proves: RS-002\n$ say\nword\n",
	"a/testdata/nothing.txt": "# Proves: RS-003\n$ say\nword\n",
	".trace/a.jsonl": `{"test":"TestLooks/a_sub","package":"a","ids":["RS-001"],"site":"a/a_test.go:7"}
{"test":"TestReads","package":"a","ids":["RS-002"],"site":"a/testdata/reads.txt:1"}
{"test":"TestLooksAtNothing","package":"a","ids":["RS-003"],"site":"a/testdata/nothing.txt:1"}
{"test":"TestExpectsNothing","package":"a","ids":["RS-004"],"site":"a/a_test.go:69"}
{"test":"TestTells","package":"a","ids":["RS-005"],"site":"a/a_test.go:24"}
{"test":"TestNeighbours/a","package":"a","ids":["RS-007"],"site":"a/a_test.go:35"}
{"test":"TestRows/RS-008#01","package":"a","ids":["RS-008"],"site":"a/a_test.go:52"}
`,
	".trace/b.jsonl": `{"test":"TestElsewhere","package":"b","ids":["RS-006"],"site":"b/b_test.go:1"}
`,
}

// TestAuditTellsATestThatNoticesFromOneThatDoesNot audits a small module: one test looks at what
// it cites, one at nothing, one has no expectation; some stand beside others that look.
func TestAuditTellsATestThatNoticesFromOneThatDoesNot(t *testing.T) {
	root := t.TempDir()
	for name, text := range module {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	passed, err := Run(t.Context(), Options{Root: root, Dir: filepath.Join(root, ".trace"), N: 10, Seed: 1, Only: "^a$", Go: "go", Out: &out})
	if err != nil || passed != 1 {
		t.Errorf("got %d tests that pass (%v), want 1", passed, err)
	}
	for _, d := range strings.Split(out.String(), "\n\n") {
		for id, want := range map[string]string{"RS-001": "breaks as it should", "RS-002": "breaks as it should", "RS-003": "STILL PASSES", "RS-004": "for a person: no expectation was found", "RS-005": "breaks as it should", "RS-007": "breaks as it should", "RS-008": "breaks as it should"} {
			if strings.HasPrefix(d, id+" ") && !strings.Contains(d, want) {
				t.Errorf("got\n%s\nwant %s", d, want)
			}
		}
	}
	if !strings.HasSuffix(out.String(), "5 break as they should, 1 STILL PASS, 1 are for a person\n") {
		t.Errorf("got the end of\n%s", out.String())
	}
}

func TestPatternMatchesOneTest(t *testing.T) {
	for name, want := range map[string][2]string{
		"internal/sim.TestControllerScripts/taints#01": {"internal/sim", "^TestControllerScripts$/^taints#01$"},
		"test/clients.TestX/v1_a.b":                    {"test/clients", `^TestX$/^v1_a\.b$`},
		"internal/x.TestSeeds/1234567890123":           {"internal/x", "^TestSeeds$"},
	} {
		pkg, test := splitTest(name)
		if got := [2]string{pkg, pattern(test)}; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
