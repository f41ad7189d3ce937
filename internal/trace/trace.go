package trace

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// DirEnv names the environment variable that holds the directory of the
// records. Unset or empty means that nothing is recorded.
const DirEnv = "KEMUDI_TRACE_DIR"

// A Record says that one test ran, passed, and proved these IDs.
type Record struct {
	Test    string   `json:"test"`
	Package string   `json:"package"`
	IDs     []string `json:"ids"`
}

// Proves says that the calling test shows the behaviours with these IDs:
// requirements of docs/requirements (RS-006), conformance lines (C-123) or
// enhancement proposals (KEP-592). An ID that does not exist fails the test.
//
// The IDs are recorded when the test has ended and has neither failed nor
// been skipped. Call it first in a test: what fails in a cleanup that was
// registered earlier comes too late to be seen.
func Proves(t testing.TB, ids ...string) {
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
		if !c.known(id) {
			t.Errorf("trace.Proves: unknown requirement ID %q (not in docs/requirements, not C-001 to C-%d, not KEP-<n>)", id, conformanceCount)
		}
	}
	dir := os.Getenv(DirEnv)
	if dir == "" {
		return
	}
	t.Cleanup(func() {
		if t.Failed() || t.Skipped() {
			return
		}
		if err := appendRecord(dir, Record{Test: t.Name(), Package: testedPackage(), IDs: ids}); err != nil {
			t.Errorf("trace.Proves: %v", err)
		}
	})
}

// appendRecord adds r to the file of its package. Every line is one write to
// a file opened for appending, so processes do not mix their lines.
func appendRecord(dir string, r Record) error {
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
