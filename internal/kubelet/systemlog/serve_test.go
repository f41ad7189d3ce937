package systemlog

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// journalOf is a program that stands in for the journal's: it knows one unit, and shows what it is told.
const journalOf = `#!/bin/sh
case "$1" in
--field) echo web.service; echo kemudi.service ;;
*) for a; do printf '%s|' "$a"; done; echo ;;
esac
`

// bed are logs that are asked over HTTP.
type bed struct {
	*testing.T
	h http.Handler
}

// newBed makes logs with a journal; without one where there is to be none.
func newBed(t *testing.T, journal bool) *bed {
	dir := t.TempDir()
	for name, text := range map[string]string{"syslog": "all is well\n", "db.log": "db says\n", "cache/cache.log": "cache says\n", "plain": "plain says\n", "web.log": "web in a file\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "out.log")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "journal")
	if journal {
		if err := os.WriteFile(program, []byte(journalOf), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join(t.TempDir(), "own")
	if err := os.WriteFile(own, []byte("kemudi says\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &bed{t, Logs{Dir: dir, Queries: true, Journal: program, Own: own}.Handler()}
}

func (b *bed) get(path, query string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil)
	r.URL.Path, r.URL.RawQuery = path, query
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	return w
}

func TestQueriesAreAnsweredFromTheJournalOrElseFromFiles(t *testing.T) {
	b := newBed(t, true)
	for _, tc := range []struct{ query, want string }{
		{"query=web", "--utc|--no-pager|--output=short-precise|--unit=web|\n"},
		{"query=web&tailLines=7&boot=-1&pattern=fail.*d", "--utc|--no-pager|--output=short-precise|--lines=7|--unit=web|--grep=fail.*d|--case-sensitive=false|--boot|-1|\n"},
		{"query=web&tailLines=0&sinceTime=2026-03-01T10:00:00%2B02:00&untilTime=2026-03-01T09:00:00Z", "--utc|--no-pager|--output=short-precise|--since=2026-03-01 08:00:00 UTC|--until=2026-03-01 09:00:00 UTC|--lines=0|--unit=web|\n"},
		{"query=db", "db says\n"},
		{"query=cache", "cache says\n"},
		{"query=plain&query=db", "plain says\ndb says\n"},
		{"query=web&query=db", "--utc|--no-pager|--output=short-precise|--unit=web|\ndb says\n"},
		{"query=kubelet&tailLines=1", "--utc|--no-pager|--output=short-precise|--lines=1|--unit=kemudi|\n"},
		{"query=none", "\nlog not found for none\n"},
		{"query=out", "\nerror getting log for out: statat out.log: path escapes from parent\n"},
		{"query=pipe", "\nerror getting log for pipe: not a regular file\n"},
		{"query=db&tailLines=1", "\noptions present and query resolved to log files for [db]\ntry without specifying options\n"},
		{"query=/syslog", "all is well\n"},
		{"query=cache/cache.log", "cache says\n"},
		{`query=cache%5Ccache.log`, "cache says\n"},
		{"query=/../../syslog", "all is well\n"},
		{"query=/cache/", `<a href="cache.log">cache.log</a>`},
	} {
		if w := b.get("/", tc.query); w.Code != 200 || w.Body.String() != tc.want && !strings.Contains(w.Body.String(), `<a `) || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s: got %d %q, want %q", tc.query, w.Code, w.Body, tc.want)
		}
	}
	if w := b.get("/syslog", ""); w.Body.String() != "all is well\n" {
		t.Errorf("a file by its path: got %d %q", w.Code, w.Body)
	}
	if w := newBed(t, false).get("/", "query=web"); w.Body.String() != "web in a file\n" {
		t.Errorf("where there is no journal: got %q", w.Body)
	}
	if w := newBed(t, false).get("/", "query=kubelet"); w.Body.String() != "kemudi says\n" {
		t.Errorf("of what this process is, where there is no journal: got %q", w.Body)
	}
	w := b.get("/", "query=db", "Accept-Encoding: gzip")
	if w.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("packed: got %v", w.Header())
	}
	packed, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(packed); err != nil || string(text) != "db says\n" {
		t.Errorf("packed: got %q, %v", text, err)
	}
}

func TestQueriesThatMakeNoSenseAreRefused(t *testing.T) {
	b := newBed(t, true)
	for _, tc := range []struct {
		query string
		code  int
		want  string
	}{
		{"query=", 400, "query: Invalid value: [\"\"]: query cannot be empty"},
		{"query=%20", 400, "query cannot be empty"},
		{"query=web&sinceTime=yesterday", 400, `sinceTime: Invalid value: "yesterday": invalid time format`},
		{"query=web&untilTime=1", 400, `untilTime: Invalid value: "1": invalid time format`},
		{"query=web&boot=last", 400, `boot: Invalid value: "last": `},
		{"query=web&tailLines=many", 400, `tailLines: Invalid value: "many": `},
		{"query=web&tailLines=-1", 400, `tailLines: Invalid value: "-1": must be between 0 and 100000, inclusive`},
		{"query=web&tailLines=100001", 406, `tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive`},
		{"query=web&boot=1", 406, "boot: Invalid value: 1: must be less than 1"},
		{"query=web&pattern=(", 406, `pattern: Invalid value: "(": error parsing regexp: missing closing )`},
		{"query=web&sinceTime=2026-03-02T00:00:00Z&untilTime=2026-03-01T00:00:00Z", 406, "must be after `sinceTime`"},
		{"pattern=x", 406, "query: Required value: cannot be empty with options"},
		{"tailLines=0", 406, "cannot be empty with options"},
		{"query=a&query=b&query=c&query=d&query=e", 406, "query: Too many: 5: must have at most 4 items"},
		{"query=" + url.QueryEscape("a;b"), 406, `query: Invalid value: "a;b": input contains unsupported characters`},
		{"query=" + strings.Repeat("a", 257), 406, "length must be at most 256"},
		{"query=/syslog&query=web", 406, "cannot specify a file and service"},
		{"query=/syslog&query=/db.log", 406, "cannot specify more than one file"},
		{"query=/syslog&tailLines=3", 406, "cannot specify file with options"},
		{"query=/none", 406, "no such file or directory"},
		{"query=/out.log", 406, "path escapes from parent"},
		{"query=/pipe", 406, "not a regular file"},
	} {
		if w := b.get("/", tc.query); w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s: got %d %q, want %d %q", tc.query, w.Code, w.Body, tc.code, tc.want)
		}
	}
	if w := b.get("/db.log", "query=web"); w.Code != 406 || !strings.Contains(w.Body.String(), "path not allowed in query mode") {
		t.Errorf("a query of a path: got %d %q", w.Code, w.Body)
	}
}
