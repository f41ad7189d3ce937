package logs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

const sample = `2030-01-01T00:00:01.000000001Z stdout F one
2030-01-01T00:00:02.5Z stderr F oops
2030-01-01T00:00:03Z stdout P half 
2030-01-01T00:00:03.1Z stdout F line
garbage
2030-01-01T00:00:04Z stdout F 
2030-01-01T00:00:05Z stdout F last
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadsTheWantedPartOfALog(t *testing.T) {
	trace.Proves(t, "C-268")
	all := Options{Tail: -1, Limit: -1}
	cases := []struct {
		name     string
		change   func(*Options)
		out, err string
	}{
		{"all", func(*Options) {}, "one\nhalf line\n\nlast\n", "oops\n"},
		{"tail 2", func(o *Options) { o.Tail = 2 }, "\nlast\n", ""},
		{"tail 0", func(o *Options) { o.Tail = 0 }, "", ""},
		{"tail more than there is", func(o *Options) { o.Tail = 100 }, "one\nhalf line\n\nlast\n", "oops\n"},
		{"since", func(o *Options) { o.Since = time.Date(2030, 1, 1, 0, 0, 3, 0, time.UTC) }, "half line\n\nlast\n", ""},
		{"limit", func(o *Options) { o.Limit = 6 }, "on", "oops"},
		{"timestamps", func(o *Options) { o.Timestamps = true; o.Tail = 1 }, "2030-01-01T00:00:05Z last\n", ""},
		{"timestamps once a line", func(o *Options) { o.Timestamps = true; o.Tail = 5 },
			"2030-01-01T00:00:03Z half line\n2030-01-01T00:00:04Z \n2030-01-01T00:00:05Z last\n", ""},
		{"no stderr", func(o *Options) { o.Stderr = nil }, "one\nhalf line\n\nlast\n", ""},
	}
	path := write(t, sample)
	for _, tc := range cases {
		var stdout, stderr bytes.Buffer
		o := all
		o.Stdout, o.Stderr = &stdout, &stderr
		tc.change(&o)
		if tc.name == "limit" { // counts both streams: "one\n" and then "oo"
			tc.out, tc.err = "one\n", "oo"
		}
		if err := Read(t.Context(), path, o); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if stdout.String() != tc.out || stderr.String() != tc.err {
			t.Errorf("%s: got %q and %q, want %q and %q", tc.name, stdout.String(), stderr.String(), tc.out, tc.err)
		}
	}
}

func TestTailOfALongLogIsFound(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "2030-01-01T00:00:00Z stdout F line %d\n", i)
	}
	var out bytes.Buffer
	if err := Read(t.Context(), write(t, b.String()), Options{Tail: 3, Limit: -1, Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "line 4997\nline 4998\nline 4999\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// safeBuffer tells when something was written.
type safeBuffer struct {
	mu    sync.Mutex
	b     bytes.Buffer
	wrote chan struct{}
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.b.Write(p)
	s.wrote <- struct{}{}
	return n, err
}

func (s *safeBuffer) wait(t *testing.T, want string) {
	t.Helper()
	for {
		s.mu.Lock()
		got := s.b.String()
		s.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-s.wrote:
		case <-time.After(wait.Patience):
			t.Fatalf("followed log: got %q, want %q", got, want)
		}
	}
}

func TestFollowsALogThroughRotationToItsEnd(t *testing.T) {
	path := write(t, "2030-01-01T00:00:00Z stdout F a\n")
	appendTo := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	out := &safeBuffer{wrote: make(chan struct{}, 100)}
	done := make(chan struct{})
	result := make(chan error)
	go func() {
		result <- Read(t.Context(), path, Options{Tail: -1, Limit: -1, Follow: true, Stdout: out, Done: done})
	}()
	out.wait(t, "a\n")
	appendTo("2030-01-01T00:00:01Z stdout F b") // not whole yet
	appendTo("b\n")
	out.wait(t, "a\nbb\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	appendTo("2030-01-01T00:00:02Z stdout F c\n")
	out.wait(t, "a\nbb\nc\n")
	appendTo("2030-01-01T00:00:03Z stdout F d\n")
	close(done)
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	out.wait(t, "a\nbb\nc\nd\n")
}

func TestFullLogIsRotatedAndOldOnesGo(t *testing.T) {
	limits := Limits{Size: 1 << 20, Files: 5}
	path := write(t, "")
	if err := limits.Rotate(path, func() error { t.Error("reopened a small log"); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".20290101-000000.gz", ".20290102-000000.gz", ".20290103-000000.gz", ".20290104-000000", ".x.tmp"} {
		if err := os.WriteFile(path+name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(path, limits.Size); err != nil {
		t.Fatal(err)
	}
	if err := limits.Rotate(path, func() error { return errors.New("no") }); err == nil {
		t.Error("Rotate: got no error of reopen")
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("after a failed rotation: %v", err)
	}
	if err := limits.Rotate(path, func() error { return os.WriteFile(path, nil, 0o600) }); err != nil {
		t.Fatal(err)
	}
	names, _ := filepath.Glob(path + "*")
	if len(names) != limits.Files {
		t.Errorf("files: got %v, want %d", names, limits.Files)
	}
	if _, err := os.Stat(path + ".20290104-000000.gz"); err != nil {
		t.Errorf("older log was not compressed: %v", err)
	}
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	if names, _ := filepath.Glob(path + "*"); len(names) != 0 {
		t.Errorf("left after Remove: %v", names)
	}
}

func TestFollowerMissesNothingThatIsWrittenJustBeforeRotation(t *testing.T) {
	path := write(t, "2030-01-01T00:00:00Z stdout F a\n")
	rotated := false
	var out bytes.Buffer
	err := Read(t.Context(), path, Options{Tail: -1, Limit: 4, Follow: true, Stdout: &out, Flush: func() {
		if rotated {
			return
		}
		rotated = true // after a look at the file, and before the next
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		_, err = f.WriteString("2030-01-01T00:00:01Z stdout F b\n")
		if err := errors.Join(err, f.Close(), os.Rename(path, path+".1"), os.WriteFile(path, []byte("2030-01-01T00:00:02Z stdout F c\n"), 0o600)); err != nil {
			t.Error(err)
		}
	}})
	if got, want := out.String(), "a\nb\n"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
