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

// Compare compares the report that is kept with the records of this run. A
// difference is one that the records do not bear out, or that the report does not
// know. An excuse is a proof that is missing where this machine has made more tests skip than the
// one that the report was written on: it says nothing about the report.
func (c Coverage) Compare(report []byte) (differences, excuses []string) {
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
				excuses = append(excuses, fmt.Sprintf("%s: not shown by %s here", unit, file))
			default:
				differences = append(differences, fmt.Sprintf("%s: the report has it proved by %s, the records do not", unit, file))
			}
		}
		for _, file := range c.files[unit] {
			if !slices.Contains(kept[unit], file) {
				differences = append(differences, fmt.Sprintf("%s: the records have it proved by %s, the report does not", unit, file))
			}
		}
	}
	if len(differences) == 0 && len(excuses) == 0 {
		var now bytes.Buffer
		text, _, _ := bytes.Cut(report, []byte(skippedTitle))
		if c.writeProofs(&now); !bytes.Equal(now.Bytes(), text) {
			differences = append(differences, "the catalogue or the form of the report has changed")
		}
	}
	return differences, excuses
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
