package route

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/trace"
)

// site reads a site of lines "HOST PATH TYPE UPSTREAM", where - is nothing, "default UPSTREAM" and
// "tls CERTIFICATE HOST...".
func site(t testing.TB, key string, created int64, lines string) *Site {
	t.Helper()
	s := &Site{Key: key, Created: created}
	nothing := func(text string) string { return strings.TrimPrefix(text, "-") }
	for line := range strings.SplitSeq(lines, "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case f[0] == "default":
			s.Default = f[1]
		case f[0] == "tls":
			s.TLS = append(s.TLS, TLS{Certificate: f[1], Hosts: f[2:]})
		case f[0] == "canary":
			s.Options = &Options{Canary: &Canary{Weight: 10}}
		case len(f) == 4:
			s.Rules = append(s.Rules, Rule{Host: nothing(f[0]), Path: nothing(f[1]), Type: PathType(f[2]), Upstream: f[3]})
		default:
			t.Fatalf("line %q of a site", line)
		}
	}
	return s
}

// tableOf makes a table of sites, each older than the next.
func tableOf(t testing.TB, sites ...string) *Table {
	c := Change{Sites: map[string]*Site{}}
	for i, lines := range sites {
		key := fmt.Sprintf("team/s%d", i)
		c.Sites[key] = site(t, key, int64(i), lines)
	}
	return (*Table)(nil).With(c)
}

func found(t *Table, host, path string) string {
	target := t.Find(host, path, nil)
	if target == nil {
		return "none"
	}
	return target.Upstream
}

func TestPathsMatchByTypeAndElement(t *testing.T) {
	for _, tc := range []struct{ rules, path, want string }{
		// The table of the documents.
		{"- / prefix all", "/any/path", "all"},
		{"- /foo exact one", "/foo", "one"},
		{"- /foo exact one", "/bar", "none"},
		{"- /foo exact one", "/foo/", "none"},
		{"- /foo/ exact one", "/foo", "none"},
		{"- /foo prefix one", "/foo", "one"},
		{"- /foo prefix one", "/foo/", "one"},
		{"- /foo/ prefix one", "/foo", "one"},
		{"- /foo/ prefix one", "/foo/", "one"},
		{"- /aaa/bb prefix one", "/aaa/bbb", "none"},
		{"- /aaa/bbb prefix one", "/aaa/bbb", "one"},
		{"- /aaa/bbb/ prefix one", "/aaa/bbb", "one"},
		{"- /aaa/bbb prefix one", "/aaa/bbb/", "one"},
		{"- /aaa/bbb prefix one", "/aaa/bbb/ccc", "one"},
		{"- /aaa/bbb prefix one", "/aaa/bbbxyz", "none"},
		{"- / prefix root\n- /aaa prefix one", "/aaa/ccc", "one"},
		{"- / prefix root\n- /aaa prefix one", "/ccc", "root"},
		{"- /aaa prefix one\n- /aaa/bbb prefix two", "/aaa/bbb/c", "two"},
		{"- /aaa prefix one\n- /aaa/bbb prefix two", "/aaa/b", "one"},
		{"- /foo prefix below\n- /foo exact one", "/foo", "one"},
		{"- /foo prefix below\n- /foo exact one", "/foo/x", "below"},
		{"- /FOO exact one", "/foo", "none"},
		{"- - prefix all", "/x", "all"},
		// Expressions: as long as they are, and of whichever case.
		{"- /api/v[0-9]+ regex version\n- /api prefix api", "/api/v2/x", "version"},
		{"- /api/v[0-9]+ regex version\n- /api prefix api", "/api/x", "api"},
		{"- /api/v[0-9]+ regex version", "/API/V2", "version"},
		{"- /a.* regex short\n- /a/b/c/d/e prefix long", "/a/b/c/d/e/f", "long"},
		{"- /a exact one\n- /a.* regex any", "/a", "one"},
		{"- /( regex broken\n- / prefix rest", "/x", "rest"},
		{"default rest", "/x", "rest"},
		{"foo.com /foo prefix one\ndefault rest", "/bar", "none"},
	} {
		trace.Proves(t, "ING-016", "ING-018", "ING-022")
		if got := found(tableOf(t, tc.rules), "bar.com", tc.path); got != tc.want {
			t.Errorf("%s of %q: got %s, want %s", tc.path, tc.rules, got, tc.want)
		}
	}
}

func TestHostsMatchFromTheNarrowestOn(t *testing.T) {
	trace.Proves(t, "ING-014", "ING-020", "ING-031", "ING-032")
	table := tableOf(t,
		"foo.com /foo prefix foo\ndefault foorest",
		"*.foo.com / prefix star\nbar.foo.com /bar prefix bar",
		"- /any prefix any",
		"default everything",
		"*.tld /only prefix tld",
	)
	for _, tc := range []struct{ host, path, want string }{
		{"foo.com", "/foo", "foo"},
		{"foo.com", "/any", "any"},
		{"foo.com", "/other", "foorest"},
		{"a.foo.com", "/foo", "star"},
		{"a.b.foo.com", "/x", "everything"},
		{"bar.foo.com", "/bar", "bar"},
		{"bar.foo.com", "/x", "star"},
		{"other.com", "/any/x", "any"},
		{"other.com", "/x", "everything"},
		{"", "/any", "any"},
		{"tld", "/only", "everything"},
		{"x.tld", "/only/y", "tld"},
		{".tld", "/only/y", "everything"},
	} {
		if got := found(table, tc.host, tc.path); got != tc.want {
			t.Errorf("%s%s: got %s, want %s", tc.host, tc.path, got, tc.want)
		}
	}
}

func TestOlderSitesKeepWhatTheyHave(t *testing.T) {
	table := tableOf(t, "foo.com /a prefix old\ntls old foo.com", "foo.com /a prefix new\nfoo.com /b prefix new\ntls new foo.com bar.com")
	for path, want := range map[string]string{"/a": "old", "/b": "new"} {
		if got := found(table, "foo.com", path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	for host, want := range map[string]string{"foo.com": "old", "bar.com": "new", "x.com": ""} {
		if got := table.Certificate(host); got != want {
			t.Errorf("certificate of %s: got %q, want %q", host, got, want)
		}
	}
	table = table.With(Change{Sites: map[string]*Site{"team/s0": nil}})
	if got := found(table, "foo.com", "/a"); got != "new" {
		t.Errorf("after the older site has gone: got %s, want new", got)
	}
	if got := table.Certificate("foo.com"); got != "new" {
		t.Errorf("certificate after the older site has gone: got %s, want new", got)
	}
}

func TestCertificatesAreFoundByName(t *testing.T) {
	trace.Proves(t, "ING-033", "ING-035")
	table := tableOf(t, "foo.com / prefix a\n*.bar.com / prefix b\ntls one foo.com\ntls star *.bar.com", "- / prefix c\ntls any", "x.com / prefix d\ntls - x.com")
	for host, want := range map[string]string{"foo.com": "one", "a.bar.com": "star", "bar.com": "any", "a.b.bar.com": "any", "": "any"} {
		if got := table.Certificate(host); got != want {
			t.Errorf("certificate of %q: got %q, want %q", host, got, want)
		}
	}
	if !table.Find("a.bar.com", "/", nil).Secure {
		t.Error("a.bar.com is not secure, although a certificate is named for *.bar.com")
	}
}

func TestCanariesAreBesideTheRuleThatIsLikeTheirs(t *testing.T) {
	table := tableOf(t, "canary\nfoo.com /a prefix canary\nfoo.com /b prefix canary", "foo.com /a prefix main")
	target := table.Find("foo.com", "/a/x", nil)
	if target == nil || target.Upstream != "main" || len(target.Canaries) != 1 || target.Canaries[0].Upstream != "canary" {
		t.Errorf("got %+v, want main with one canary", target)
	}
	if got := found(table, "foo.com", "/b"); got != "none" {
		t.Errorf("a canary without a main rule: got %s, want none", got)
	}
}

// What a table answers depends on the sites it has, not on how it came by them (R5), and a
// change leaves the tables before it as they are.
func TestTablesDoNotDependOnTheirPast(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	hosts := []string{"", "a.com", "*.a.com", "b.a.com", "*.com"}
	paths := []string{"", "/", "/x", "/x/y", "/x/y/z", "/w"}
	types := []PathType{Exact, Prefix, Prefix, Regex}
	one := func(key string) *Site {
		s := &Site{Key: key, Created: random.Int64N(3)}
		for range random.IntN(4) {
			h := hosts[random.IntN(len(hosts))]
			s.Rules = append(s.Rules, Rule{Host: h, Path: paths[random.IntN(len(paths))], Type: types[random.IntN(len(types))], Upstream: fmt.Sprint(key, random.IntN(100))})
			if random.IntN(3) == 0 {
				s.TLS = append(s.TLS, TLS{Hosts: []string{h}, Certificate: key})
			}
		}
		if random.IntN(4) == 0 {
			s.Default = key + "rest"
		}
		if random.IntN(4) == 0 {
			s.Options = &Options{Canary: &Canary{}}
		}
		return s
	}
	show := func(t *Table) string {
		var b strings.Builder
		for _, h := range []string{"", "a.com", "b.a.com", "c.a.com", "d.com", "com"} {
			fmt.Fprintln(&b, h, t.Certificate(h))
			for _, p := range []string{"/", "/x", "/x/", "/x/y", "/x/y/z", "/w/v", "/xy"} {
				fmt.Fprint(&b, " ", found(t, h, p))
				if target := t.Find(h, p, nil); target != nil {
					fmt.Fprint(&b, len(target.Canaries), target.Secure)
				}
			}
		}
		return b.String()
	}
	sites := map[string]*Site{}
	var table *Table
	var before, said string
	answered := 0
	for range 300 {
		last := table
		before = said
		c := Change{Sites: map[string]*Site{}}
		for range 1 + random.IntN(3) {
			key := string(rune('a' + random.IntN(6)))
			if random.IntN(3) == 0 {
				c.Sites[key] = nil
				delete(sites, key)
			} else {
				c.Sites[key] = one(key)
				sites[key] = c.Sites[key]
			}
		}
		table = table.With(c)
		said = show(table)
		if fresh := show((*Table)(nil).With(Change{Whole: true, Sites: sites})); said != fresh {
			t.Fatalf("after changes:\n%s\nfrom anew:\n%s", said, fresh)
		}
		if last != nil && show(last) != before {
			t.Fatalf("a change has changed the table before it:\n%s\nwas\n%s", show(last), before)
		}
		answered += strings.Count(said, "true")
	}
	if answered == 0 {
		t.Error("no table had a secure target: nothing was tested")
	}
}

func TestPathsThatCanBeReadInTwoWaysAreRefused(t *testing.T) {
	for path, want := range map[string]string{
		"/": "/", "/a/b": "/a/b", "//a///b//": "/a/b/", "/.well-known/x": "/.well-known/x", "/a/...": "/a/...", "/a.b": "/a.b", "/..a": "/..a", "/ü": "/ü", "/a;x=1": "/a;x=1",
		"": "refused", "*": "refused", "a": "refused", "/.": "refused", "/..": "refused", "/a/..": "refused", "/a/../b": "refused", "/./a": "refused",
		`/a\..\b`: "refused", `/a\b`: "refused", "/..;/a": "refused", "/.;x/a": "refused", "/a\x00b": "refused", "/a\r\nb": "refused", "/a\x7f": "refused",
	} {
		got, ok := Clean(path)
		if !ok {
			got = "refused"
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}

func TestHostsAreReadInOneWay(t *testing.T) {
	for host, want := range map[string]string{
		"foo.com": "foo.com", "FOO.com:80": "foo.com", "foo.com.": "foo.com", "foo.com.:443": "foo.com", "[::1]:80": "::1", "[::1]": "::1", "": "", "10.0.0.1:8080": "10.0.0.1",
		"a_b.com": "a_b.com", "foo.com:x": "refused", "foo.com/x": "refused", "foo@bar.com": "refused", "[::1": "refused", "[::1]x": "refused", "a b": "refused", "*.com": "refused",
	} {
		got, ok := Canonical(host)
		if !ok {
			got = "refused"
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", host, got, want)
		}
	}
}

// FuzzClean holds that a clean path has no segment that goes up, whichever way it is split.
func FuzzClean(f *testing.F) {
	for _, seed := range []string{"/", "/a/../b", "//x", "/..;/x", `/\..`, "/a/./b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		clean, ok := Clean(path)
		if !ok {
			return
		}
		if clean[0] != '/' || strings.Contains(clean, "//") || strings.ContainsAny(clean, "\\\x00\r\n") {
			t.Errorf("%q became %q", path, clean)
		}
		for segment := range strings.SplitSeq(clean, "/") {
			if bare, _, _ := strings.Cut(segment, ";"); bare == "." || bare == ".." {
				t.Errorf("%q became %q, in which %q goes up", path, clean, segment)
			}
		}
		if again, ok := Clean(clean); !ok || again != clean {
			t.Errorf("%q became %q, and that %q", path, clean, again)
		}
	})
}

// FuzzFind holds that tables of any rules answer about any path without failing, and by elements.
func FuzzFind(f *testing.F) {
	f.Add("foo.com", "/a/b", "*.com", "/a", "/b(", "foo.com")
	f.Fuzz(func(t *testing.T, host, path, ruleHost, prefix, pattern, exact string) {
		table := (*Table)(nil).With(Change{Sites: map[string]*Site{"a": {Key: "a", Rules: []Rule{
			{Host: ruleHost, Path: prefix, Type: Prefix, Upstream: "prefix"}, {Host: exact, Path: prefix, Type: Exact, Upstream: "exact"},
			{Host: host, Path: pattern, Type: Regex, Upstream: "pattern"},
		}}}})
		target := table.Find(host, path, nil)
		if target == nil || target.Upstream != "prefix" {
			return
		}
		bare := strings.TrimSuffix(prefix, "/")
		if rest, ok := strings.CutPrefix(path, bare); !ok || rest != "" && rest[0] != '/' {
			t.Errorf("%q was found below %q", path, prefix)
		}
	})
}

func manySites(n int) Change {
	c := Change{Sites: map[string]*Site{}, Upstreams: map[string]*Upstream{}}
	for i := range n {
		key := fmt.Sprintf("team/s%05d", i)
		c.Sites[key] = &Site{Key: key, Rules: []Rule{{Host: fmt.Sprintf("h%05d.example.com", i), Path: "/", Type: Prefix, Upstream: key}, {Host: fmt.Sprintf("h%05d.example.com", i), Path: "/api", Type: Prefix, Upstream: key}}}
		c.Upstreams[key] = &Upstream{Endpoints: []string{"10.0.0.1:80"}}
	}
	return c
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{1, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := (*Table)(nil).With(manySites(n))
			b.ReportAllocs()
			for b.Loop() {
				if table.Find("h00000.example.com", "/api/v1/things", nil) == nil {
					b.Fatal("not found")
				}
			}
		})
	}
}

func BenchmarkChangeOneOfTenThousand(b *testing.B) {
	table := (*Table)(nil).With(manySites(10000))
	s := &Site{Key: "team/s00001", Rules: []Rule{{Host: "new.example.com", Type: Prefix, Upstream: "x"}}}
	b.ReportAllocs()
	for b.Loop() {
		table = table.With(Change{Sites: map[string]*Site{s.Key: s}})
	}
}
