package known

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func open(t *testing.T) *Dir {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "known"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// only is the one file of a directory.
func only(t *testing.T, d *Dir) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(d.Path(), "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got files %v, %v, want one", files, err)
	}
	return files[0]
}

func TestStatesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	d := open(t)
	long := "secrets metadata.namespace=a,metadata.name=" + strings.Repeat("n", 253)
	for _, s := range []State{{}, {Rev: 7, Objects: [][]byte{[]byte("one"), {}, []byte("three")}}, {Rev: 1 << 60}} {
		if _, err := d.Write(long, s); err != nil {
			t.Fatal(err)
		}
		got, ok, err := d.Read(long)
		if err != nil || !ok || got.Rev != s.Rev || len(got.Objects) != len(s.Objects) {
			t.Errorf("got %v, %t, %v, want %v", got, ok, err, s)
		}
		for i := range s.Objects {
			if string(got.Objects[i]) != string(s.Objects[i]) {
				t.Errorf("object %d: got %q, want %q", i, got.Objects[i], s.Objects[i])
			}
		}
	}
	if _, ok, err := d.Read("secrets other"); ok || err != nil {
		t.Errorf("another name: got %t, %v, want nothing", ok, err)
	}
}

func TestOnlyTheOwnerReadsWhatIsKnown(t *testing.T) {
	t.Parallel()
	d := open(t)
	if _, err := d.Write("secrets a", State{Objects: [][]byte{[]byte("password")}}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{d.Path(): 0o700, only(t, d): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want %o", path, info, err, want)
		}
	}
}

// TestWhatIsDamagedCountsAsNotThere changes and cuts off each byte of a file.
func TestWhatIsDamagedCountsAsNotThere(t *testing.T) {
	t.Parallel()
	d := open(t)
	if _, err := d.Write("pods a", State{Rev: 3, Objects: [][]byte{[]byte("one"), []byte("two")}}); err != nil {
		t.Fatal(err)
	}
	file := only(t, d)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x20
		for _, b := range [][]byte{bad, good[:i]} {
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if s, ok, err := d.Read("pods a"); ok || !errors.Is(err, ErrBroken) || !reflect.DeepEqual(s, State{}) {
				t.Fatalf("byte %d: got %v, %t, %v, want %v", i, s, ok, err, ErrBroken)
			}
		}
	}
}

func TestKeepRemovesWhatNobodyNames(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, name := range []string{"pods a", "secrets a", "secrets b"} {
		if _, err := d.Write(name, State{Rev: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(d.Path(), "new-1"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Keep(map[string]bool{"secrets b": true, "services c": true}); err != nil {
		t.Fatal(err)
	}
	if file := only(t, d); !strings.HasPrefix(filepath.Base(file), "secrets-") {
		t.Errorf("%s is left", file)
	}
	if _, ok, err := d.Read("secrets b"); !ok || err != nil {
		t.Errorf("what is named: got %t, %v", ok, err)
	}
}
