package sites

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A Break is a change of a file that a test must notice.
type Break struct {
	Data  []byte
	Lines []Line // that were changed
}

// A Line is one of a file, before and after a change.
type Line struct {
	Number   int // from 1
	Was, Now string
}

// noWay says that only a person can judge a site.
func noWay(why string) error { return fmt.Errorf("for a person: %s", why) }

// BreakAt breaks the expectation that belongs to the citation of an ID on a line of a file. An
// error says why a person has to look instead.
func BreakAt(name string, data []byte, line int, id string) (*Break, error) {
	if path.Ext(name) == ".go" {
		return breakGo(name, data, line, id)
	}
	found, err := Find(name, data)
	if err != nil {
		return nil, err
	}
	s, err := At(found, line)
	if err != nil {
		return nil, noWay(err.Error())
	}
	if s.Idle || s.Holds[0] == 0 {
		return nil, noWay("the command after the citation expects nothing")
	}
	lines := strings.Split(string(data), "\n")
	i, now := breakLines(path.Ext(name), formOf(string(data)), lines, s.Holds)
	if i < 0 {
		return nil, noWay("there is no line in what is expected that can be changed")
	}
	was := lines[i]
	lines[i] = now
	return &Break{[]byte(strings.Join(lines, "\n")), []Line{{i + 1, was, now}}}, nil
}

// wrong is a word that nothing prints.
const wrong = "Qqbroken"

// breakLines chooses a line of the command and what to write there; -1: none will do.
func breakLines(ext string, f form, lines []string, holds [2]int) (int, string) {
	from, to := holds[0]-1, holds[1]-1
	if ext == ".yaml" {
		return breakCase(lines, from, to)
	}
	if strings.HasPrefix(lines[from], "$ ") || lines[from] == "----" || strings.HasPrefix(lines[from], "-- ") {
		for i := from + 1; i < to; i++ {
			if lines[i] != "" && lines[i] != "..." && !strings.HasPrefix(lines[i], "[exit ") {
				return i, lines[i] + " " + wrong
			}
		}
		if strings.HasPrefix(lines[from], "$ ") { // it must print nothing, or only fail
			return from, lines[from] + "; echo " + wrong
		}
		if strings.HasPrefix(lines[from], "-- ") { // nothing must come out
			return from, lines[from] + "\n" + wrong
		}
		return -1, ""
	}
	for i := from; i < to; i++ {
		if strings.HasPrefix(lines[i], "= ") {
			return i, lines[i] + " " + wrong
		}
	}
	return from, breakCommand(lines[from])
}

var lastNumber = regexp.MustCompile(`^(wait-count \S+ )(\d+)(.*)$`)

// breakCommand breaks a line of a simulation.
func breakCommand(line string) string {
	if m := lastNumber.FindStringSubmatch(line); m != nil {
		return m[1] + m[2] + "7" + m[3]
	}
	if rest, ok := strings.CutPrefix(line, "! "); ok {
		return rest
	}
	if strings.HasPrefix(line, "stdout ") {
		return "! " + line
	}
	words := strings.Split(line, " ")
	for i, w := range words {
		if i > 1 && !strings.HasPrefix(w, "timeout=") {
			if w == "deleted" {
				words[i] = "jsonpath={.metadata.name}=" + wrong
			} else {
				words[i] = strings.TrimSuffix(w, "'") + wrong + w[len(strings.TrimSuffix(w, "'")):]
			}
			break
		}
	}
	return strings.Join(words, " ")
}

var (
	listItem    = regexp.MustCompile(`^(- .*?)('?)$`)
	flatNumber  = regexp.MustCompile(`^(.*: )(-?[0-9]+)([,}].*|)$`)
	flatWord    = regexp.MustCompile(`: "?[A-Za-z0-9][A-Za-z0-9./%-]*`)
	flatNull    = regexp.MustCompile(`^(.*: )null([,}].*|)$`)
	expectation = regexp.MustCompile(`^(errors|warnings|want|stored|columns):`)
)

// breakCase changes the first thing that a case expects.
func breakCase(lines []string, from, to int) (int, string) {
	inside, absent, there := false, -1, "" // absent: the first line that expects that something is not there
	for i := from; i < to; i++ {
		line := lines[i]
		if line != "" && line[0] != ' ' && line[0] != '-' {
			inside = expectation.MatchString(line)
		}
		if !inside || line == "errors:" || line == "warnings:" {
			continue
		}
		if strings.HasPrefix(line, "- ") {
			m := listItem.FindStringSubmatch(line)
			return i, m[1] + " " + wrong + m[2]
		}
		if m := flatNumber.FindStringSubmatch(line); m != nil {
			return i, m[1] + m[2] + "7" + m[3]
		}
		for _, m := range flatWord.FindAllStringIndex(line, -1) {
			if line[m[0]:m[1]] != ": null" {
				return i, line[:m[1]] + wrong + line[m[1]:]
			}
		}
		if m := flatNull.FindStringSubmatch(line); m != nil && absent < 0 {
			absent, there = i, m[1]+wrong+m[2]
		}
	}
	if absent >= 0 {
		return absent, there
	}
	if !slices.ContainsFunc(lines[from:to], expectation.MatchString) { // it expects that nothing is refused
		return from, "errors: [" + wrong + "]\n" + lines[from]
	}
	return -1, ""
}
