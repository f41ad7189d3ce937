package sites

import (
	"slices"
	"strings"
	"testing"
)

// TestBreaksWhatIsExpectedBesideACitation marks the citation by its ID alone: each text has one.
func TestBreaksWhatIsExpectedBesideACitation(t *testing.T) {
	for _, tc := range []struct{ name, file, text, was, now string }{
		{"a transcript", "a.txt", "$ kubectl get a\nA\n# Proves: RS-001\n# words\n$ kubectl get b\n...\nB  1\n$ kubectl get c\nC\n", "B  1", "B  1 Qqbroken"},
		{"a transcript that prints nothing", "a.txt", "# Proves: RS-001\n$ kubectl diff\n$ kubectl get c\nC\n", "$ kubectl diff", "$ kubectl diff; echo Qqbroken"},
		{"a simulation that looks", "a.txt", "nodes 2\n# Proves: RS-001, RS-002\nstdout 'a b'\n", "stdout 'a b'", "! stdout 'a b'"},
		{"a simulation that waits", "a.txt", "nodes 2\n# Proves: RS-001\nwait rs/a jsonpath={.a}=1 timeout=1m\n", "wait rs/a jsonpath={.a}=1 timeout=1m", "wait rs/a jsonpath={.a}=1Qqbroken timeout=1m"},
		{"a simulation that waits for the end", "a.txt", "nodes 2\n# Proves: RS-001\nwait rs/a deleted\n", "wait rs/a deleted", "wait rs/a jsonpath={.metadata.name}=Qqbroken"},
		{"a simulation that counts", "a.txt", "nodes 2\n# Proves: RS-001\nwait-count pods 3 -l a=b\n", "wait-count pods 3 -l a=b", "wait-count pods 37 -l a=b"},
		{"a simulation that is refused", "a.txt", "nodes 2\n# Proves: RS-001\n! apply a\n", "! apply a", "apply a"},
		{"a story", "a.txt", "pod\n----\nA\n\nproves RS-001\n\nobserve\nx\n----\nB\nC\n", "B", "B Qqbroken"},
		{"a decision", "a.txt", "node a\nfits p\n= a\nproves RS-001\nnode b\nfits p\n= a b\n", "= a b", "= a b Qqbroken"},
		{"a section", "a.txt", "-- ask --\nA\n-- proves --\nRS-001\n-- apply --\nx\n-- ask --\nB\n", "B", "B Qqbroken"},
		{"a section that must be empty", "a.txt", "-- ask --\nA\n-- proves --\nRS-001\n-- apply --\nx\n-- full ip --\n", "-- full ip --", "-- full ip --\nQqbroken"},
		{"a case that is refused", "a.yaml", "name: a\nerrors:\n- 'b: c'\nproves: [RS-001]\n", "- 'b: c'", "- 'b: c Qqbroken'"},
		{"a case with a number", "a.yaml", "name: a\nwant:\n  spec:\n    a: 10\nproves: [RS-001]\n", "    a: 10", "    a: 107"},
		{"a case with a word", "a.yaml", "name: a\nwant: {spec: {type: Recreate, b: null}}\nproves: [RS-001]\n", "want: {spec: {type: Recreate, b: null}}", "want: {spec: {type: RecreateQqbroken, b: null}}"},
		{"a case with a part", "a.yaml", "name: a\nwant: {spec: {a: 25%}}\nproves: [RS-001]\n", "want: {spec: {a: 25%}}", "want: {spec: {a: 25%Qqbroken}}"},
		{"a case with a number in words", "a.yaml", "name: a\nstored: {a.b: \"0\"}\nproves: [RS-001]\n", "stored: {a.b: \"0\"}", "stored: {a.b: \"0Qqbroken\"}"},
		{"a case where something is not there", "a.yaml", "name: a\nstored: {a: {b: null}}\nproves: [RS-001]\n", "stored: {a: {b: null}}", "stored: {a: {b: Qqbroken}}"},
		{"a condition in Go", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\tif err != nil {\n\t\tt.Fatal(err)\n\t}\n\tif a := b(); a != 1 {\n\t\tt.Error(a)\n\t}\n}\n", "if a := b(); a != 1 {", "if a := b(); !(a != 1) {"},
		{"a helper in Go", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\twantLines(t, got, \"a\", `b`)\n}\n", "wantLines(t, got, \"a\", `b`)", "wantLines(t, got, \"a\", `bQqbroken`)"},
		{"a row of a table in Go", "a_test.go", "package a\nfunc f(t T) {\n\tfor _, r := range rows {\n\t\ttrace.Proves(t, r.ids...)\n\t\tif r.got != r.want {\n\t\t\tt.Error(r)\n\t\t}\n\t}\n}\ntype r struct{ name, want string; ids []string }\nvar rows = []r{\n\t{\"a\", \"b\" + c, \"RS-002\"},\n\t{\"a\", \"b\" + c + \"d\", \"RS-003 RS-001\"},\n}\n", "{\"a\", \"b\" + c + \"d\", \"RS-003 RS-001\"},", "{\"a\", \"b\" + c + \"dQqbroken\", \"RS-003 RS-001\"},"},
		{"a row with names of a table in Go", "a_test.go", "package a\nvar rows = []struct{ name string; want int; proves string; told bool }{\n\t{name: \"a\", want: 3, proves: \"RS-001\", told: true},\n}\n", "{name: \"a\", want: 3, proves: \"RS-001\", told: true},", "{name: \"a\", want: 37, proves: \"RS-001\", told: true},"},
		{"a row with what is a number", "a_test.go", "package a\nvar rows = []struct{ name string; code int; proves []string }{\n\t{a.B, -1, []string{\"RS-001\"}},\n}\n", "{a.B, -1, []string{\"RS-001\"}},", "{a.B, -17, []string{\"RS-001\"}},"},
		{"a row that says whether", "a_test.go", "package a\nvar rows = []struct{ name string; want bool; proves string }{\n\t{\"a\", true, \"RS-001\"},\n}\n", "{\"a\", true, \"RS-001\"},", "{\"a\", !true, \"RS-001\"},"},
		{"a row that names what it wants", "a_test.go", "package a\ntype r struct{ name, want, proves string }\nfunc f(a string) []r {\n\treturn []r{\n\t\t{\"a\", a, \"RS-001\"},\n\t}\n}\n", "{\"a\", a, \"RS-001\"},", "{\"a\", a + \" Qqbroken\", \"RS-001\"},"},
		{"a wait in Go", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\tm.wait(\"a\", \"up\", func(p *Pod) bool { return p == nil })\n\tif a {\n\t\tt.Error(a)\n\t}\n}\n", "m.wait(\"a\", \"up\", func(p *Pod) bool { return p == nil })", "m.wait(\"a\", \"up\", func(p *Pod) bool { return false && (p == nil) })"},
		{"a helper in Go that waits", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\tc.awaitEvent(t, \"FailedMount\", tc.failed)\n}\n", "c.awaitEvent(t, \"FailedMount\", tc.failed)", "c.awaitEvent(t, \"FailedMount\", tc.failed + \" Qqbroken\")"},
		{"a helper in Go that is not handed the test", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\tr.expect(\"A\", name, \"NOERROR\")\n}\n", "r.expect(\"A\", name, \"NOERROR\")", "r.expect(\"A\", name, \"NOERRORQqbroken\")"},
		{"a helper in Go with what is made", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\trun := a(\"x\")\n\tcheck(t, run, \"y\", want{\"echo\", Success, \"echo x\"})\n}\n", "check(t, run, \"y\", want{\"echo\", Success, \"echo x\"})", "check(t, run, \"y\", want{\"echo\", Success, \"echo xQqbroken\"})"},
		{"a helper in Go that says where what is expected stands", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\ts.reach(s.a, \"10.96.0.10:80\", \"c\", \"10.244.1.2\")\n}\n", "s.reach(s.a, \"10.96.0.10:80\", \"c\", \"10.244.1.2\")", "s.reach(s.a, \"10.96.0.10:80\", \"cQqbroken\", \"10.244.1.2\")"},
		{"requests in Go, of which the last counts", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\tf.must(201, \"POST\")\n\tf.must(422, \"PUT\")\n}\n", "f.must(422, \"PUT\")", "f.must(4227, \"PUT\")"},
		{"a condition before a citation in Go at the end", "a_test.go", "package a\nfunc f(t T) {\n\tif a {\n\t\tt.Error(a)\n\t}\n\tif b {\n\t\tt.Error(b)\n\t}\n\tif !t.Failed() {\n\t\ttrace.Proves(t, \"RS-001\")\n\t}\n}\nfunc g(t T) {\n\tif c {\n\t\tt.Error(c)\n\t}\n}\n", "if b {", "if !(b) {"},
		{"a helper in Go with a field of a table", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\twantLines(t, got, f.line)\n}\n", "wantLines(t, got, f.line)", "wantLines(t, got, f.line + \" Qqbroken\")"},
		{"a number in Go that a helper is told", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\tc.await(t, \"a\", hasRestarted(1))\n}\n", "c.await(t, \"a\", hasRestarted(1))", "c.await(t, \"a\", hasRestarted(17))"},
		{"a subtest in Go, not the next one", "a_test.go", "package a\nfunc f(t T) {\n\tb := func() {\n\t\tif c {\n\t\t\tt.Error(c)\n\t\t}\n\t}\n\tt.Run(\"a\", func(t *testing.T) {\n\t\ttrace.Proves(t, \"RS-001\")\n\t\tb()\n\t})\n\tt.Run(\"b\", func(t *testing.T) {\n\t\tif d {\n\t\t\tt.Error(d)\n\t\t}\n\t})\n}\n", "if c {", "if !(c) {"},
		{"what a citation in Go names, not a row with the same ID", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\tif a {\n\t\tt.Error(a)\n\t}\n}\nvar rows = []struct{ want, proves string }{\n\t{\"b\", \"RS-001\"},\n}\n", "if a {", "if !(a) {"},
		{"a condition of a function in Go that is called", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\tb()\n\tr.c(t)\n}\nfunc b() {}\nfunc (r R) c(t T) {\n\tif d {\n\t\tt.Error(d)\n\t}\n}\n", "if d {", "if !(d) {"},
		{"a line of a simulation that Go writes", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\tsim.Script(t, life())\n}\nfunc life() string {\n\tsay(\"nodes 3\")\n\tsay(\"stdout %d\", 3)\n}\n", "say(\"stdout %d\", 3)", "say(\"! stdout %d\", 3)"},
		{"what is asked again in Go", "a_test.go", "package a\nfunc f(t T) {\n\ttrace.Proves(t, \"RS-001\")\n\teventually(t, func() error {\n\t\tif a {\n\t\t\treturn fmt.Errorf(\"a\")\n\t\t}\n\t})\n}\n", "if a {", "if !(a) {"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			line := 1 + strings.Count(tc.text[:strings.Index(tc.text, "RS-001")], "\n")
			if strings.Contains(tc.text, "-- proves --") {
				line--
			}
			b, err := BreakAt(tc.file, []byte(tc.text), line, "RS-001")
			if err != nil {
				t.Fatal(err)
			}
			if len(b.Lines) != 1 || b.Lines[0].Was != tc.was || b.Lines[0].Now != tc.now || !strings.Contains(string(b.Data), tc.now) {
				t.Errorf("got %+v, want %q for %q\n%s", b.Lines, tc.now, tc.was, b.Data)
			}
		})
	}
}

// TestBreaksAllRowsThatCite since the name of the test does not tell them apart.
func TestBreaksAllRowsThatCite(t *testing.T) {
	const text = `package a

var rows = []struct{ want, proves string }{
	{"b", "RS-001"},
	{"c", "RS-002"},
	{"d", "RS-002 RS-001"},
}

func f(t T) {
	trace.Proves(t, r.proves)
}
`
	b, err := BreakAt("a_test.go", []byte(text), 10, "RS-001")
	if err != nil {
		t.Fatal(err)
	}
	want := []Line{{4, `{"b", "RS-001"},`, `{"bQqbroken", "RS-001"},`}, {6, `{"d", "RS-002 RS-001"},`, `{"dQqbroken", "RS-002 RS-001"},`}}
	if !slices.Equal(b.Lines, want) || strings.Count(string(b.Data), "Qqbroken") != 2 {
		t.Errorf("got %+v, want %+v\n%s", b.Lines, want, b.Data)
	}
}

func TestLeavesToAPersonWhatItCannotBreak(t *testing.T) {
	for _, tc := range []struct{ name, file, text string }{
		{"a command that expects nothing", "a.txt", "# Proves: RS-001\nnodes 2\n"},
		{"no citation", "a.txt", "nodes 2\n"},
		{"no expectation in a subtest in Go", "a_test.go", "package a\nfunc f(t T) { t.Run(\"a\", func(t *testing.T) { trace.Proves(t, \"RS-001\") })\n\tt.Run(\"b\", func(t *testing.T) {\n\t\tif a {\n\t\t\tt.Error(a)\n\t\t}\n\t})\n}\n"},
		{"no expectation in Go", "a_test.go", "package a\nfunc f(t T) { trace.Proves(t, \"RS-001\") }\nfunc g(t T) {\n\tif a {\n\t\tt.Error(a)\n\t}\n}\n"},
	} {
		line := 1
		if tc.file == "a_test.go" {
			line = 2
		}
		if b, err := BreakAt(tc.file, []byte(tc.text), line, "RS-001"); err == nil || !strings.HasPrefix(err.Error(), "for a person: ") {
			t.Errorf("%s: got %+v, %v, want that a person looks", tc.name, b, err)
		}
	}
}
