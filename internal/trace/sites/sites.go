package sites

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A Site is one citation.
type Site struct {
	Line int // from 1
	IDs  []string

	// Holds are the lines, from 1 and without the last, of the command whose passing is the proof.
	// Both are 0 in Go files and when no command follows.
	Holds [2]int
	// Idle says that the command expects nothing, so that its passing proves nothing.
	Idle bool
}

// Crowded reports whether the site proves nothing in particular.
func (s Site) Crowded(max int) bool { return len(s.IDs) > max || s.Idle }

// id matches an ID with or without a clause.
var id = regexp.MustCompile(`^(?:[A-Z]{1,8}-K?[0-9]{2,3}(?:/[A-Za-z0-9-]+)?|KEP-[1-9][0-9]*)$`)

// IDs takes text apart if it is IDs and nothing else.
func IDs(text string) []string {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t[]", r) })
	for _, w := range words {
		if !id.MatchString(w) {
			return nil
		}
	}
	return words
}

// Find returns the citations of a file in the order of its lines. Files that cannot hold one
// have none.
func Find(name string, data []byte) ([]Site, error) {
	switch path.Ext(name) {
	case ".go":
		return findGo(name, data)
	case ".txt":
		return findText(string(data)), nil
	case ".yaml":
		return findCases(string(data)), nil
	}
	return nil, nil
}

var (
	textCitation = regexp.MustCompile(`^(?:# Proves:|proves) (.*)$`)
	caseCitation = regexp.MustCompile(`^proves: \[(.*)\]$`)
)

// findText finds the citations of a text script: lines, and sections of that name.
func findText(text string) (out []Site) {
	lines := strings.Split(text, "\n")
	form := formOf(text)
	for i, line := range lines {
		m := textCitation.FindStringSubmatch(line)
		if line == "-- proves --" && i+1 < len(lines) {
			m = []string{"", lines[i+1]}
		}
		if m == nil {
			continue
		}
		s := Site{Line: i + 1, IDs: IDs(m[1])}
		if len(s.IDs) == 0 {
			continue
		}
		s.Holds, s.Idle = form(lines, i+1)
		out = append(out, s)
	}
	return out
}

// A form returns the lines of the command at or after the line from, counted from 0,
// and whether it expects nothing.
type form func(lines []string, from int) (holds [2]int, idle bool)

// formOf tells the kinds of scripts by what only one of them has.
func formOf(text string) form {
	switch {
	case strings.Contains("\n"+text, "\n$ "):
		return transcript
	case strings.Contains(text, "\n----\n"):
		return story
	case strings.Contains(text, "\n= "):
		return decision
	case strings.Contains("\n"+text, "\n-- proves --\n"):
		return section
	}
	return simulation
}

// transcript is of test/clients: "$ command", then what it prints.
func transcript(lines []string, from int) (holds [2]int, idle bool) {
	for i := from; i < len(lines) && !strings.HasPrefix(lines[i], "-- "); i++ {
		if strings.HasPrefix(lines[i], "# Proves:") {
			break
		}
		if !strings.HasPrefix(lines[i], "$ ") {
			continue
		}
		end := i + 1
		for end < len(lines) && !strings.HasPrefix(lines[end], "$ ") && !strings.HasPrefix(lines[end], "# ") && lines[end] != "#" && !strings.HasPrefix(lines[end], "-- ") {
			end++
		}
		wants := slices.DeleteFunc(slices.Clone(lines[i+1:end]), func(l string) bool { return l == "" })
		return [2]int{i + 1, end + 1}, len(wants) > 0 && !slices.ContainsFunc(wants, func(l string) bool { return l != "..." })
	}
	return holds, true
}

// expecting are the commands of a simulation that expect something.
var expecting = []string{"stdout", "wait", "wait-count"}

// simulation is of internal/sim: one command a line, "!" before one that must fail.
func simulation(lines []string, from int) (holds [2]int, idle bool) {
	for i := from; i < len(lines) && !strings.HasPrefix(lines[i], "-- "); i++ {
		if strings.HasPrefix(lines[i], "# Proves:") {
			break
		}
		words := strings.Fields(lines[i])
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		return [2]int{i + 1, i + 2}, words[0] != "!" && !slices.Contains(expecting, words[0])
	}
	return holds, true
}

// story is of internal/kubelet/podstep: a command, "----", what comes of it, an empty line.
func story(lines []string, from int) (holds [2]int, idle bool) {
	for i := from; i < len(lines); i++ {
		if textCitation.MatchString(lines[i]) {
			break
		}
		if lines[i] != "----" {
			continue
		}
		end := i
		for end < len(lines) && lines[end] != "" {
			end++
		}
		return [2]int{i + 1, end + 1}, false
	}
	return holds, true
}

// decision is of internal/scheduler: the next line that begins with "= ".
func decision(lines []string, from int) (holds [2]int, idle bool) {
	for i := from; i < len(lines); i++ {
		if textCitation.MatchString(lines[i]) {
			break
		}
		if strings.HasPrefix(lines[i], "= ") {
			return [2]int{i, i + 2}, false
		}
	}
	return holds, true
}

// written are the sections of DNS and proxy that hold what comes out.
var written = regexp.MustCompile(`^-- (?:ask|changes .*|full .*|base .*|flows|health) --$`)

// section is of internal/dns and internal/proxy: the next section that holds what comes out.
func section(lines []string, from int) (holds [2]int, idle bool) {
	for i := from; i < len(lines); i++ {
		if lines[i] == "-- proves --" {
			break
		}
		if !written.MatchString(lines[i]) {
			continue
		}
		end := i + 1
		for end < len(lines) && !strings.HasPrefix(lines[end], "-- ") {
			end++
		}
		return [2]int{i + 1, end + 1}, false
	}
	return holds, true
}

// findCases finds those of a file of cases in YAML: each is a key of its case.
func findCases(text string) (out []Site) {
	lines := strings.Split(text, "\n")
	from := 0
	for i := 0; i <= len(lines); i++ {
		if i < len(lines) && lines[i] != "---" {
			continue
		}
		for n := from; n < i; n++ {
			if m := caseCitation.FindStringSubmatch(lines[n]); m != nil && len(IDs(m[1])) > 0 {
				out = append(out, Site{Line: n + 1, IDs: IDs(m[1]), Holds: [2]int{from + 1, i + 1}})
			}
		}
		from = i + 1
	}
	return out
}

// At returns the site whose citation is on a line.
func At(sites []Site, line int) (Site, error) {
	for _, s := range sites {
		if s.Line == line {
			return s, nil
		}
	}
	return Site{}, fmt.Errorf("line %d holds no citation", line)
}
