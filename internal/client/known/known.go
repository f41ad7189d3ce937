package known

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// Dir is a directory of states. Its methods may be called concurrently, those about one
// name one after another.
type Dir struct{ path string }

// State is what was known under a name.
type State struct {
	Rev     int64 // of the cluster, when everything in it was so
	Objects [][]byte
}

// ErrBroken says that what lies on the disk is not what was written (W2).
var ErrBroken = errors.New("it is damaged")

// Open returns the directory, which is made if it is not there.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of what is known of the cluster: %w", err)
	}
	return &Dir{path}, nil
}

// Path is where the directory is.
func (d *Dir) Path() string { return d.path }

// What a file consists of: the magic, the name, the revision and the objects, each with
// its length before it, and the hash of all that.
const (
	magic    = "kemudi known 1\n"
	suffix   = ".known"
	hashSize = sha256.Size
)

// file is where a state is: names may be longer than those of files.
func (d *Dir) file(name string) string {
	kind, _, _ := strings.Cut(name, " ")
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(d.path, kind+"-"+hex.EncodeToString(sum[:12])+suffix)
}

// Write keeps a state, and returns how many bytes were written. When it returns, they are
// on the disk (W1). A name begins with a word for what it names, such as the resource.
func (d *Dir) Write(name string, s State) (int, error) {
	b := append([]byte(magic), sized(nil, []byte(name))...)
	b = binary.AppendVarint(b, s.Rev)
	b = binary.AppendUvarint(b, uint64(len(s.Objects)))
	for _, o := range s.Objects {
		b = sized(b, o)
	}
	sum := sha256.Sum256(b)
	b = append(b, sum[:]...)
	if err := wholefile.Write(d.file(name), b, 0o600); err != nil {
		return 0, fmt.Errorf("keep what is known of %s: %w", name, err)
	}
	return len(b), nil
}

func sized(to, b []byte) []byte { return append(binary.AppendUvarint(to, uint64(len(b))), b...) }

// Read returns the state that was kept last; ok is false if there is none.
func (d *Dir) Read(name string) (s State, ok bool, _ error) {
	file := d.file(name)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err == nil {
		s, err = parse(name, b)
	}
	if err != nil {
		return State{}, false, fmt.Errorf("read what is known of %s (%s): %w", name, file, err)
	}
	return s, true, nil
}

// parse reads the state of a name from a file. Objects share the memory of b.
func parse(name string, b []byte) (s State, err error) {
	if len(b) < len(magic)+hashSize || !bytes.HasPrefix(b, []byte(magic)) {
		return s, ErrBroken
	}
	b, sum := b[:len(b)-hashSize], b[len(b)-hashSize:]
	if is := sha256.Sum256(b); !bytes.Equal(is[:], sum) {
		return s, ErrBroken
	}
	r := reader{rest: b[len(magic):]}
	of := r.sized()
	s.Rev = r.number(binary.Varint)
	for range r.number(length) {
		o := r.sized()
		if r.broken {
			break
		}
		s.Objects = append(s.Objects, o)
	}
	if r.broken || len(r.rest) > 0 || string(of) != name {
		return State{}, ErrBroken
	}
	return s, nil
}

// reader reads what sized and package binary append.
type reader struct {
	rest   []byte
	broken bool
}

func (r *reader) number(read func([]byte) (int64, int)) int64 {
	v, n := read(r.rest)
	if n <= 0 || r.broken {
		r.broken = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// length reads a number that says how much follows.
func length(b []byte) (int64, int) {
	v, n := binary.Uvarint(b)
	if v > uint64(len(b)) { // each takes a byte at least
		return 0, 0
	}
	return int64(v), n
}

func (r *reader) sized() []byte {
	n := r.number(length)
	if r.broken || n > int64(len(r.rest)) {
		r.broken = true
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// Keep removes all states but those of the names, and what a crash has left half written.
func (d *Dir) Keep(names map[string]bool) error {
	stays := map[string]bool{}
	for name := range names {
		stays[filepath.Base(d.file(name))] = true
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return fmt.Errorf("look for what is known of the cluster: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !stays[e.Name()] {
			errs = append(errs, os.Remove(filepath.Join(d.path, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what nobody needs to know any more: %w", err)
	}
	return nil
}
