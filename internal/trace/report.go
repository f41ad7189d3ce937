package trace

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// AreaCoverage says what of one area is proved, in lists of IDs. Background lines
// that a test proves nevertheless are in Proved, the others in no list.
type AreaCoverage struct {
	Area       Area
	Proved     []string // with all clauses
	Partly     []string // some clauses
	Open       []string
	Background int // lines that are background and not proved
}

// Behaviours returns the number of lines that a test should prove.
func (a AreaCoverage) Behaviours() int { return len(a.Proved) + len(a.Partly) + len(a.Open) }

// A Coverage compares the catalogue with the proofs of a test run.
type Coverage struct {
	Areas       []AreaCoverage // without the conformance lines
	Conformance AreaCoverage
	KEPs        []string // the enhancement proposals cited, sorted

	catalogue *Catalogue
	run       *Run
	files     map[string][]string
}

// Cover builds the coverage of c by what r has left.
func Cover(c *Catalogue, r *Run) Coverage {
	cov := Coverage{catalogue: c, run: r, files: r.files()}
	for _, area := range c.Areas {
		ac := AreaCoverage{Area: area}
		for _, id := range area.IDs {
			line, _ := c.Lookup(id)
			units := line.Units()
			open := cov.open(line)
			switch {
			case len(open) == 0:
				ac.Proved = append(ac.Proved, id)
			case line.Background():
				ac.Background++
			case len(open) < len(units):
				ac.Partly = append(ac.Partly, id)
			default:
				ac.Open = append(ac.Open, id)
			}
		}
		if area.Name == conformance {
			cov.Conformance = ac
		} else {
			cov.Areas = append(cov.Areas, ac)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.Proofs)) {
		if kepID.MatchString(id) {
			cov.KEPs = append(cov.KEPs, id)
		}
	}
	return cov
}

// open returns the units of a requirement that nothing proves.
func (c Coverage) open(r Requirement) (out []string) {
	for _, unit := range r.Units() {
		if len(c.run.Proofs[unit]) == 0 {
			out = append(out, unit)
		}
	}
	return out
}

// Totals returns the numbers of the whole catalogue, conformance lines left out.
func (c Coverage) Totals() (t struct{ Proved, Partly, Open, Background int }) {
	for _, a := range c.Areas {
		t.Proved += len(a.Proved)
		t.Partly += len(a.Partly)
		t.Open += len(a.Open)
		t.Background += a.Background
	}
	return t
}

// summary is the numbers of the whole in words.
func (c Coverage) summary() string {
	t := c.Totals()
	return fmt.Sprintf("%d of %d behaviours proved, %d partly, %d open; %d background lines; %d of %d listed conformance lines, %d partly",
		t.Proved, t.Proved+t.Partly+t.Open, t.Partly, t.Open, t.Background, len(c.Conformance.Proved), c.Conformance.Behaviours(), len(c.Conformance.Partly))
}

// WriteText writes the report for a terminal: each ID with the places that
// prove it, by area, the totals last.
func (c Coverage) WriteText(w io.Writer) error {
	var b bytes.Buffer
	for _, a := range append(slices.Clone(c.Areas), c.Conformance) {
		if a.Area.Name == "" {
			continue // a catalogue without conformance lines
		}
		fmt.Fprintf(&b, "%-6s %3d of %3d, %d partly  %s\n", a.Area.Name, len(a.Proved), a.Behaviours(), len(a.Partly), a.Area.Title)
		c.writeSites(&b, "proved", a.Proved)
		c.writeSites(&b, "partly", a.Partly)
		if len(a.Open) > 0 {
			fmt.Fprintf(&b, "  open   %s\n", strings.Join(a.Open, " "))
		}
	}
	if len(c.KEPs) > 0 {
		b.WriteString("KEPs\n")
		c.writeSites(&b, "proved", c.KEPs)
	}
	fmt.Fprintf(&b, "\n%s\n", c.summary())
	_, err := w.Write(b.Bytes())
	return err
}

// writeSites writes a line for each place that proves an ID.
func (c Coverage) writeSites(b *bytes.Buffer, state string, ids []string) {
	for _, id := range ids {
		for _, unit := range c.units(id) {
			for _, p := range c.run.Proofs[unit] {
				fmt.Fprintf(b, "  %s %s  %s  %s\n", state, unit, p.Site, p.Test)
			}
		}
		if r, _ := c.catalogue.Lookup(id); state == "partly" {
			fmt.Fprintf(b, "  open   %s\n", strings.Join(c.open(r), " "))
		}
	}
}

// units returns the units of a line of the catalogue, or a KEP alone.
func (c Coverage) units(id string) []string {
	if r, ok := c.catalogue.Lookup(id); ok {
		return r.Units()
	}
	return []string{id}
}

// skippedTitle begins the part of the report that depends on the machine.
const skippedTitle = "\n## Skipped\n"

// WriteMarkdown writes the report that is kept as docs/requirements/COVERAGE.md. It
// names files, not lines: it changes when what is proved changes, or where,
// and not with every edit above it.
func (c Coverage) WriteMarkdown(w io.Writer) error {
	var b bytes.Buffer
	c.writeProofs(&b)
	if len(c.run.Skipped) > 0 {
		fmt.Fprintf(&b, "%s\nThe tests that were skipped in this run. On a machine that skips more, what those prove is not compared.\n\n", skippedTitle)
		for _, test := range c.run.Skipped {
			fmt.Fprintf(&b, "- `%s`\n", test)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeProofs writes the part that depends on the proofs alone.
func (c Coverage) writeProofs(b *bytes.Buffer) {
	t := c.Totals()
	fmt.Fprintf(b, "# Coverage of the requirements\n\n")
	fmt.Fprintf(b, "Written by `make requirements` from the records of the last `make test`, which fails if any is lost; do not edit. A\nrequirement is proved when each of its clauses is cited by a test that has run and passed, and partly when some are.\n`make requirements` also prints the line of each citation.\n\n")
	fmt.Fprintf(b, "**%d of %d behaviours proved, %d partly, %d open.** Besides: %d lines of background that need no test; %d of the %d lines of the\nofficial conformance list that are [listed](conformance.md) proved, %d partly.\n\n",
		t.Proved, t.Proved+t.Partly+t.Open, t.Partly, t.Open, t.Background, len(c.Conformance.Proved), c.Conformance.Behaviours(), len(c.Conformance.Partly))
	fmt.Fprintf(b, "| area | subject | behaviours | proved | partly | open |\n| --- | --- | ---: | ---: | ---: | ---: |\n")
	for _, a := range c.Areas {
		fmt.Fprintf(b, "| %s | [%s](%s) | %d | %d | %d | %d |\n", a.Area.Name, a.Area.Title, a.Area.File, a.Behaviours(), len(a.Proved), len(a.Partly), len(a.Open))
	}
	for _, a := range c.Areas {
		fmt.Fprintf(b, "\n## %s: %s\n", a.Area.Name, a.Area.Title)
		c.writeArea(b, a)
	}
	if c.Conformance.Behaviours() > 0 {
		fmt.Fprintf(b, "\n## Conformance\n")
		c.writeArea(b, c.Conformance)
	}
	if len(c.KEPs) > 0 {
		fmt.Fprintf(b, "\n## Enhancement proposals\n\n")
		c.writeFiles(b, c.KEPs)
	}
}

// writeArea writes what is proved, clause by clause, and what is open.
func (c Coverage) writeArea(b *bytes.Buffer, a AreaCoverage) {
	open := slices.Clone(a.Open)
	for _, id := range a.Partly {
		r, _ := c.catalogue.Lookup(id)
		open = append(open, c.open(r)...)
	}
	slices.SortFunc(open, func(x, y string) int { return c.order(a.Area, x) - c.order(a.Area, y) })
	ids := append(slices.Clone(a.Proved), a.Partly...)
	slices.SortFunc(ids, func(x, y string) int { return c.order(a.Area, x) - c.order(a.Area, y) })
	if len(ids) > 0 {
		b.WriteByte('\n')
		c.writeFiles(b, ids)
	}
	var excused []string
	open = slices.DeleteFunc(open, func(unit string) bool {
		if c.catalogue.excused[unit] {
			excused = append(excused, unit)
		}
		return c.catalogue.excused[unit]
	})
	if len(open) > 0 {
		fmt.Fprintf(b, "\nOpen: %s\n", strings.Join(open, ", "))
	}
	if len(excused) > 0 {
		fmt.Fprintf(b, "\nOpen [for a reason](%s): %s\n", reasons, strings.Join(excused, ", "))
	}
}

// order is the place of an ID, or of that of its clause, in the catalogue.
func (c Coverage) order(a Area, unit string) int {
	id, _, _ := strings.Cut(unit, "/")
	return slices.Index(a.IDs, id)
}

// writeFiles writes one line for each ID with the files that prove it.
func (c Coverage) writeFiles(b *bytes.Buffer, ids []string) {
	for _, id := range ids {
		for _, unit := range c.units(id) {
			if files := c.files[unit]; len(files) > 0 {
				fmt.Fprintf(b, "- %s: `%s`\n", unit, strings.Join(files, "`, `"))
			}
		}
	}
}
