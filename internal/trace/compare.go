package trace

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// reportLine matches a line of the report that says where an ID is proved.
var reportLine = regexp.MustCompile("(?m)^- ([A-Z]+-K?[0-9]+(?:/\\S+)?): (`.*`)$")

// skippedTest matches a line of the report that names a skipped test.
var skippedTest = regexp.MustCompile("(?m)^- `([^`]+)`$")

// Difference is how the report that is kept and the records of a run go apart.
type Difference struct {
	// Lost is proved in the report and by nothing in the records: what was shown to
	// hold is not shown any more.
	Lost []string
	// Behind is what the report does not know yet: proofs that have come, or that
	// stand elsewhere since, a catalogue or a form that has changed.
	Behind []string
	// Excused is proved by nothing in the records where this machine has made more
	// tests skip than the one that the report was written on: it says nothing about the report.
	Excused []string
}

// Compare compares the report that is kept with the records of this run.
func (c Coverage) Compare(report []byte) Difference {
	var d Difference
	kept := map[string][]string{}
	for _, m := range reportLine.FindAllStringSubmatch(string(report), -1) {
		kept[m[1]] = strings.Split(strings.Trim(m[2], "`"), "`, `")
	}
	skipped := slices.Clone(c.run.Skipped)
	for _, m := range skippedTest.FindAllStringSubmatch(string(report), -1) {
		skipped = slices.DeleteFunc(skipped, func(s string) bool { return s == m[1] })
	}
	units := maps.Clone(kept)
	maps.Copy(units, c.files)
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		for _, file := range kept[unit] {
			switch {
			case slices.Contains(c.files[unit], file):
			case below(skipped, path.Dir(file)):
				d.Excused = append(d.Excused, fmt.Sprintf("%s: not shown by %s here", unit, file))
			case len(c.files[unit]) > 0:
				d.Behind = append(d.Behind, fmt.Sprintf("%s: no longer proved by %s, but elsewhere", unit, file))
			default:
				d.Lost = append(d.Lost, fmt.Sprintf("%s: the report has it proved by %s, the records do not", unit, file))
			}
		}
		for _, file := range c.files[unit] {
			if !slices.Contains(kept[unit], file) {
				d.Behind = append(d.Behind, fmt.Sprintf("%s: the records have it proved by %s, the report does not", unit, file))
			}
		}
	}
	if len(d.Lost) == 0 && len(d.Behind) == 0 && len(d.Excused) == 0 {
		var now bytes.Buffer
		text, _, _ := bytes.Cut(report, []byte(skippedTitle))
		if c.writeProofs(&now); !bytes.Equal(now.Bytes(), text) {
			d.Behind = append(d.Behind, "the catalogue or the form of the report has changed")
		}
	}
	return d
}

// below reports whether one of the tests is of the package dir or of one above it: text
// scripts lie below the package that runs them.
func below(tests []string, dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if slices.ContainsFunc(tests, func(s string) bool { return strings.HasPrefix(s, dir+".") }) {
			return true
		}
	}
	return false
}
