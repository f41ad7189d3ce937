package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestEachStateOfAFileIsParsedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	parsed := 0
	f := New(path, func(data []byte) (string, error) {
		parsed++
		if strings.HasPrefix(string(data), "bad") {
			return "", errors.New("cannot be read")
		}
		return string(data), nil
	})
	// write has the file say something since a while ago.
	write := func(text string, ago time.Duration) {
		t.Helper()
		at := time.Now().Add(-ago)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	gets := func(want string, parses int) {
		t.Helper()
		parsed = 0
		for range 3 {
			if got, err := f.Get(); got != want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
		if parsed != parses {
			t.Errorf("%q: got %d parses in three reads, want %d", want, parsed, parses)
		}
	}
	if _, err := f.Get(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v of a file that is not there", err)
	}
	write("one", time.Hour)
	gets("one", 1)
	gets("one", 0)
	write("two", 30*time.Minute)
	gets("two", 1)
	write("new", 0) // what is written next may have the same time
	gets("new", 3)
	write("bad", time.Hour)
	if got, err := f.Get(); err == nil {
		t.Errorf("got %q of what cannot be parsed", got)
	}
	write(" \n", time.Hour)
	if got, err := f.Get(); !errors.Is(err, ErrEmpty) {
		t.Errorf("got %q, %v of an empty file", got, err)
	}
	write("two", 30*time.Minute)
	gets("two", 1)
}
