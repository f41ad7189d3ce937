package trace

import (
	"strings"
	"testing"
)

// A Script notes what a text script proves while it runs. A citation in it holds for
// the next command that can fail, and counts when that has passed. Calls come in the
// order of the script's lines.
type Script struct {
	t    testing.TB
	file string

	line int      // of the citation that waits for its command
	ids  []string // none: there is none
}

// NewScript returns the notes of the script in file, as the test opens it.
func NewScript(t testing.TB, file string) *Script { return &Script{t: t, file: file} }

// Cites takes the text of a citation, IDs between spaces or commas.
func (s *Script) Cites(line int, text string) {
	s.t.Helper()
	s.End()
	s.line, s.ids = line, strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
	if len(s.ids) == 0 {
		s.t.Errorf("%s:%d: a citation without IDs", s.file, line)
	}
}

// Passed says that a command that can fail has not.
func (s *Script) Passed() {
	s.t.Helper()
	if len(s.ids) > 0 {
		ProvesAt(s.t, s.file, s.line, s.ids...)
	}
	s.ids = nil
}

// End fails the test if a citation stands before no command.
func (s *Script) End() {
	s.t.Helper()
	if len(s.ids) > 0 && !s.t.Failed() {
		s.t.Errorf("%s:%d: no command follows that could prove %s", s.file, s.line, strings.Join(s.ids, ", "))
	}
	s.ids = nil
}
