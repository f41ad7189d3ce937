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

// Proofs maps an ID to the tests that proved it, sorted, each once, named
// <package>.<test> with the package relative to the module.
type Proofs map[string][]string

const modulePrefix = "github.com/kemudi/kemudi/"

// ReadProofs collects the records that a test run has left in dir.
func ReadProofs(dir string) (Proofs, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("list trace directory: %w", err)
	}
	p := Proofs{}
	for _, name := range names {
		if err := p.readFile(name); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	for id, tests := range p {
		slices.Sort(tests)
		p[id] = slices.Compact(tests)
	}
	return p, nil
}

func (p Proofs) readFile(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	records := json.NewDecoder(bytes.NewReader(data))
	for {
		var r Record
		err := records.Decode(&r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("decode record: %w", err)
		}
		for _, id := range r.IDs {
			p[id] = append(p[id], strings.TrimPrefix(r.Package, modulePrefix)+"."+r.Test)
		}
	}
}

// AreaCoverage says what of one area is proved. Background lines that a test
// proves nevertheless are in Covered, the others in neither list.
type AreaCoverage struct {
	Area       Area
	Covered    []string
	Open       []string
	Background int // lines that are background and not proved
}

// Behaviours returns the number of lines that a test should prove.
func (a AreaCoverage) Behaviours() int { return len(a.Covered) + len(a.Open) }

// A Coverage compares the catalogue with the proofs of a test run.
type Coverage struct {
	Areas       []AreaCoverage
	Conformance []string // the conformance IDs proved, sorted
	KEPs        []string // the enhancement proposals cited, sorted
	proofs      Proofs
}

// Cover builds the coverage of c by p.
func Cover(c *Catalogue, p Proofs) Coverage {
	cov := Coverage{proofs: p}
	for _, area := range c.Areas {
		ac := AreaCoverage{Area: area}
		for _, id := range area.IDs {
			switch r, _ := c.Lookup(id); {
			case len(p[id]) > 0:
				ac.Covered = append(ac.Covered, id)
			case r.Background():
				ac.Background++
			default:
				ac.Open = append(ac.Open, id)
			}
		}
		cov.Areas = append(cov.Areas, ac)
	}
	for _, id := range slices.Sorted(maps.Keys(p)) {
		switch {
		case isConformance(id):
			cov.Conformance = append(cov.Conformance, id)
		case kepID.MatchString(id):
			cov.KEPs = append(cov.KEPs, id)
		}
	}
	return cov
}

// Totals returns the numbers of the whole catalogue.
func (c Coverage) Totals() (covered, open, background int) {
	for _, a := range c.Areas {
		covered += len(a.Covered)
		open += len(a.Open)
		background += a.Background
	}
	return covered, open, background
}

// WriteText writes the report for a terminal: covered and open IDs by area,
// the totals last.
func (c Coverage) WriteText(w io.Writer) error {
	var b bytes.Buffer
	for _, a := range c.Areas {
		fmt.Fprintf(&b, "%-6s %3d of %3d  %s\n", a.Area.Name, len(a.Covered), a.Behaviours(), a.Area.Title)
		writeIDs(&b, "  covered", a.Covered)
		writeIDs(&b, "  open   ", a.Open)
	}
	writeIDs(&b, "conformance", c.Conformance)
	writeIDs(&b, "KEPs", c.KEPs)
	covered, open, background := c.Totals()
	fmt.Fprintf(&b, "\n%d of %d behaviours covered, %d open; %d background lines; %d of %d conformance lines\n",
		covered, covered+open, open, background, len(c.Conformance), conformanceCount)
	_, err := w.Write(b.Bytes())
	return err
}

func writeIDs(b *bytes.Buffer, label string, ids []string) {
	if len(ids) > 0 {
		fmt.Fprintf(b, "%s: %s\n", label, strings.Join(ids, " "))
	}
}

// WriteMarkdown writes the report that is kept as docs/requirements/COVERAGE.md.
// It depends on the proofs alone: the same proofs give the same bytes.
func (c Coverage) WriteMarkdown(w io.Writer) error {
	var b bytes.Buffer
	covered, open, background := c.Totals()
	fmt.Fprintf(&b, "# Coverage of the requirements\n\n")
	fmt.Fprintf(&b, "Written by `make requirements` from the records of the last `make test`; do not edit. A requirement is\ncovered when a test that cites it has run and passed.\n\n")
	fmt.Fprintf(&b, "**%d of %d behaviours covered, %d open.** Besides: %d lines of background that need no test; %d of %d lines of the\nofficial conformance list cited.\n\n",
		covered, covered+open, open, background, len(c.Conformance), conformanceCount)
	fmt.Fprintf(&b, "| area | subject | behaviours | covered | open |\n| --- | --- | ---: | ---: | ---: |\n")
	for _, a := range c.Areas {
		fmt.Fprintf(&b, "| %s | [%s](%s) | %d | %d | %d |\n", a.Area.Name, a.Area.Title, a.Area.File, a.Behaviours(), len(a.Covered), len(a.Open))
	}
	for _, a := range c.Areas {
		fmt.Fprintf(&b, "\n## %s: %s\n", a.Area.Name, a.Area.Title)
		c.writeProofs(&b, a.Covered)
		if len(a.Open) > 0 {
			fmt.Fprintf(&b, "\nOpen: %s\n", strings.Join(a.Open, ", "))
		}
	}
	if len(c.Conformance) > 0 {
		fmt.Fprintf(&b, "\n## Conformance\n")
		c.writeProofs(&b, c.Conformance)
	}
	if len(c.KEPs) > 0 {
		fmt.Fprintf(&b, "\n## Enhancement proposals\n")
		c.writeProofs(&b, c.KEPs)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeProofs writes one line for each ID with the tests that prove it.
func (c Coverage) writeProofs(b *bytes.Buffer, ids []string) {
	if len(ids) > 0 {
		b.WriteByte('\n')
	}
	for _, id := range ids {
		fmt.Fprintf(b, "- %s: `%s`\n", id, strings.Join(c.proofs[id], "`, `"))
	}
}
