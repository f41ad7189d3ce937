package etcd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// sector is what a disk writes at once or not at all.
const sector = 512

// TestStartsAfterAPowerCutInTheMiddleOfAWrite starts on what a disk held when
// the power went: all that was confirmed is there, and the store goes on.
func TestStartsAfterAPowerCutInTheMiddleOfAWrite(t *testing.T) {
	dir := t.TempDir()
	s, _ := run(t, Options{Dir: dir})
	for i := range 20 {
		write(t, s, fmt.Sprintf("/confirmed/%d", i), "value")
	}
	before := crashImage(t, dir).read(t)
	write(t, s, "/last", string(bytes.Repeat([]byte("x"), 16*sector)))
	after := crashImage(t, dir)
	for _, tc := range []struct {
		name string
		tear func(log []byte)
		last bool // the last write is there
	}{
		{"nothing torn", func([]byte) {}, true},
		{"second half missing", func(log []byte) { clear(log[end(log)-8*sector:]) }, false},
		{"one sector missing", func(log []byte) {
			hole := (end(log) - 8*sector) / sector * sector
			clear(log[hole : hole+sector])
		}, false},
		{"only its first sector there", func(log []byte) { clear(log[end(before)/sector*sector+sector:]) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(after.dir)); err != nil {
				t.Fatal(err)
			}
			log := after.read(t)
			tc.tear(log)
			if err := os.WriteFile(filepath.Join(dir, after.log), log, 0o600); err != nil {
				t.Fatal(err)
			}
			for round := range 2 { // what was repaired stays so
				s, stop := run(t, Options{Dir: dir})
				for i := range 20 {
					if kv, _, err := s.Get(t.Context(), fmt.Sprintf("/confirmed/%d", i)); err != nil || string(kv.Value) != "value" {
						t.Errorf("round %d: confirmed write %d: got %q, %v", round, i, kv.Value, err)
					}
				}
				kv, _, err := s.Get(t.Context(), "/last")
				if got := kv.Rev != 0; err != nil || got != tc.last {
					t.Errorf("round %d: last write is there: got %v, %v; want %v", round, got, err, tc.last)
				}
				write(t, s, fmt.Sprintf("/after/%d", round), "value")
				if kv, _, err := s.Get(t.Context(), "/after/0"); err != nil || kv.Rev == 0 {
					t.Errorf("round %d: write after the start: got %+v, %v", round, kv, err)
				}
				stop()
			}
		})
	}
}

// TestStartsAfterAFirstStartThatWasCutOff starts on every beginning of the log
// that a first start writes.
func TestStartsAfterAFirstStartThatWasCutOff(t *testing.T) {
	dir := t.TempDir()
	_, stop := run(t, Options{Dir: dir})
	whole := crashImage(t, dir)
	stop()
	log := whole.read(t)
	// A record is its length in 7 bytes, a byte that says how it is padded to
	// eight, and its data. The first three come with the file.
	var cuts []int
	for at := 0; at < end(log); {
		frame := binary.LittleEndian.Uint64(log[at:])
		at += 8 + (int(frame&(1<<56-1))+7)/8*8
		cuts = append(cuts, at)
	}
	if len(cuts) < 6 {
		t.Fatalf("got %d records, want the members and more", len(cuts))
	}
	for i, cut := range cuts[2:] {
		t.Run(fmt.Sprintf("%d records", i+3), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole.dir)); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, "etcd/member/snap/db")); err != nil {
				t.Fatal(err)
			}
			begun := slices.Clone(log)
			clear(begun[cut:])
			if err := os.WriteFile(filepath.Join(dir, whole.log), begun, 0o600); err != nil {
				t.Fatal(err)
			}
			s, stop := run(t, Options{Dir: dir})
			write(t, s, "/a", "value")
			stop()
			s, _ = run(t, Options{Dir: dir})
			if kv, _, err := s.Get(t.Context(), "/a"); err != nil || string(kv.Value) != "value" {
				t.Errorf("got %q, %v", kv.Value, err)
			}
		})
	}
}

// image is a data directory as a crash would leave it.
type image struct {
	dir string
	log string // the last segment of the write-ahead log, below dir
}

// crashImage copies the directory of a running store: the database behind the
// log, nothing closed.
func crashImage(t *testing.T, dir string) image {
	t.Helper()
	im := image{dir: t.TempDir()}
	if err := os.CopyFS(im.dir, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(im.dir, "etcd/member/wal/*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("log segments: got %v, %v", logs, err)
	}
	if im.log, err = filepath.Rel(im.dir, slices.Max(logs)); err != nil {
		t.Fatal(err)
	}
	return im
}

func (im image) read(t *testing.T) []byte {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(im.dir, im.log))
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// end is where the log's records end: zeros follow.
func end(log []byte) int { return len(bytes.TrimRight(log, "\x00")) }
