package trace

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// MaxIDs is how many IDs one citation may have: what cites more proves none of
// them in particular.
const MaxIDs = 5

// DirEnv names the environment variable that holds the directory of the
// records. Unset or empty means that nothing is recorded.
const DirEnv = "KEMUDI_TRACE_DIR"

// A Record says that one test ran, passed, and proved these IDs at one place;
// or, if Skipped, that it was skipped.
type Record struct {
	Test    string   `json:"test"`
	Package string   `json:"package"`
	IDs     []string `json:"ids,omitempty"`
	Site    string   `json:"site,omitempty"` // file:line, the file relative to the root
	Skipped bool     `json:"skipped,omitempty"`
}

// Proves says that the assertion that follows shows the behaviours with these IDs, [MaxIDs]
// at most: requirements of docs/requirements (RS-006), conformance lines (C-124) or
// enhancement proposals (KEP-592). One that has clauses is cited clause by clause
// (GC-003/Job). An ID that does not exist fails the test.
//
// The IDs are recorded with the caller's file and line when the test has ended and
// has neither failed nor been skipped.
func Proves(t testing.TB, ids ...string) {
	t.Helper()
	_, file, line, _ := runtime.Caller(1)
	ProvesAt(t, file, line, ids...)
}

// ProvesAt is Proves for what cites in a file of data, at the line of the citation there. The
// file is as the test opens it.
func ProvesAt(t testing.TB, file string, line int, ids ...string) {
	t.Helper()
	if len(ids) == 0 {
		t.Error("trace.Proves: no requirement IDs given")
		return
	}
	c, err := Embedded()
	if err != nil {
		t.Errorf("trace.Proves: read requirement catalogue: %v", err)
		return
	}
	for _, id := range ids {
		if err := c.citable(id); err != nil {
			t.Errorf("trace.Proves: %v", err)
		}
	}
	file = fromRoot(file)
	if len(ids) > MaxIDs {
		t.Errorf("trace.Proves: %d IDs at one place, at most %d may stand there: cite each at its assertion", len(ids), MaxIDs)
	}
	dir := os.Getenv(DirEnv)
	if dir == "" {
		return
	}
	t.Cleanup(func() {
		if t.Failed() || t.Skipped() {
			return
		}
		r := Record{Test: t.Name(), Package: testedPackage(), IDs: ids, Site: fmt.Sprintf("%s:%d", file, line)}
		if err := r.Keep(dir); err != nil {
			t.Errorf("trace.Proves: %v", err)
		}
	})
}

// fromRoot returns the path of a source file relative to the root of the tree, which is the folder
// above it that holds go.mod. The compiler names files by their place on the machine, or, with
// -trimpath, by their import path.
func fromRoot(file string) string {
	if rel, ok := strings.CutPrefix(file, modulePrefix); ok {
		return rel
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return file
	}
	for dir := filepath.Dir(abs); dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.ToSlash(strings.TrimPrefix(abs, dir+"/"))
		}
	}
	return file
}

// Keep adds r to the file of its package in dir. Every line is one write to
// a file opened for appending, so processes do not mix their lines.
func (r Record) Keep(dir string) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create trace directory: %w", err)
	}
	name := filepath.Join(dir, strings.ReplaceAll(r.Package, "/", "_")+".jsonl")
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open trace file: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write trace file: %w", err)
	}
	return nil
}

// testedPackage returns the import path of the package whose test binary this
// process is.
func testedPackage() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Path == "" {
		return "unknown"
	}
	return strings.TrimSuffix(info.Path, ".test")
}
