package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const modulePrefix = "github.com/kemudi/kemudi/"

// A Proof is one place where a test that has passed cites an ID.
type Proof struct {
	Site string // file:line
	Test string // <package>.<test>, the package relative to the module
}

// File returns the file of the site.
func (p Proof) File() string {
	file, _, _ := strings.Cut(p.Site, ":")
	return file
}

// A Run is what a test run has left.
type Run struct {
	Proofs  map[string][]Proof // by ID, or ID/clause: sorted, each once
	Skipped []string           // the tests that were skipped, as Proof names them, sorted
}

// ReadRun collects the records that a test run has left in dir. What a test
// cites does not count if one of its subtests was skipped.
func ReadRun(dir string) (*Run, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("list trace directory: %w", err)
	}
	r := &Run{Proofs: map[string][]Proof{}}
	for _, name := range names {
		if err := r.readFile(name); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	slices.Sort(r.Skipped)
	r.Skipped = slices.Compact(r.Skipped)
	for id, proofs := range r.Proofs {
		proofs = slices.DeleteFunc(proofs, func(p Proof) bool { return r.skippedBelow(p.Test) })
		slices.SortFunc(proofs, func(a, b Proof) int {
			if c := strings.Compare(a.Site, b.Site); c != 0 {
				return c
			}
			return strings.Compare(a.Test, b.Test)
		})
		r.Proofs[id] = slices.Compact(proofs)
		if len(proofs) == 0 {
			delete(r.Proofs, id)
		}
	}
	return r, nil
}

// skippedBelow reports whether a subtest of test was skipped. The test itself
// is not looked at: if it has left a record, it ran, in this process or in a child.
func (r *Run) skippedBelow(test string) bool {
	return slices.ContainsFunc(r.Skipped, func(s string) bool { return strings.HasPrefix(s, test+"/") })
}

func (r *Run) readFile(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	records := json.NewDecoder(bytes.NewReader(data))
	for {
		var rec Record
		err := records.Decode(&rec)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("decode record: %w", err)
		}
		test := strings.TrimPrefix(rec.Package, modulePrefix) + "." + rec.Test
		if rec.Skipped {
			r.Skipped = append(r.Skipped, test)
		}
		for _, id := range rec.IDs {
			r.Proofs[id] = append(r.Proofs[id], Proof{Site: rec.Site, Test: test})
		}
	}
}

// files returns where each ID is proved, without lines.
func (r *Run) files() map[string][]string {
	out := map[string][]string{}
	for id, proofs := range r.Proofs {
		files := map[string]bool{}
		for _, p := range proofs {
			files[p.File()] = true
		}
		out[id] = slices.Sorted(maps.Keys(files))
	}
	return out
}
