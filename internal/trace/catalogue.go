package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/kemudi/kemudi/docs/requirements"
)

// A Requirement is one numbered line of the catalogue: one behaviour that a
// test can show.
type Requirement struct {
	ID   string   // such as RS-006 or VOL-K01
	Area string   // the letters of the ID: RS
	Tags []string // such as api, node, doc-only, in the order written
	Text string   // the behaviour, markdown on one line
	File string   // the catalogue file that holds it

	// Clauses names the parts that are proved one by one, in the order written.
	// None: one assertion shows the whole.
	Clauses []string
}

// Background reports whether the requirement describes the document's
// surroundings and holds no behaviour of the system itself. Such lines are
// counted apart: no test is expected for them.
func (r Requirement) Background() bool {
	return len(r.Tags) == 1 && r.Tags[0] == "doc-only"
}

// Units returns what is cited to prove the requirement: its ID, or one ID for
// each of its clauses (GC-003/Job).
func (r Requirement) Units() []string {
	if len(r.Clauses) == 0 {
		return []string{r.ID}
	}
	units := make([]string, len(r.Clauses))
	for i, clause := range r.Clauses {
		units[i] = r.ID + "/" + clause
	}
	return units
}

// An Area is a group of requirements whose IDs share their letters: one
// subject, such as ReplicaSet.
type Area struct {
	Name  string // RS
	Title string // the first-level heading that the first of them stands under
	File  string
	IDs   []string // in the order of the catalogue
}

// A Catalogue is every requirement known, in the order of the files' names
// and of the lines in them.
type Catalogue struct {
	Areas   []Area
	byID    map[string]Requirement
	excused map[string]bool // what stays open for a reason, by what is cited
}

// Lookup returns the requirement with the given ID.
func (c *Catalogue) Lookup(id string) (Requirement, bool) {
	r, ok := c.byID[id]
	return r, ok
}

// Len returns the number of requirements.
func (c *Catalogue) Len() int { return len(c.byID) }

// requirementLine matches "12. `RS-006` [controller][node] text" and
// "- `VOL-K01` [api] text", with or without the backquotes.
var requirementLine = regexp.MustCompile("^ *(?:[0-9]+\\.|-) +`?(([A-Z]{1,8})-K?[0-9]{2,3})`?((?: ?\\[[a-z-]+\\])+) *(.*)$")

// clauseList matches the end of a requirement that names its clauses.
var clauseList = regexp.MustCompile(` *\{clauses: ([^{}]+)\}$`)

// notCatalogue names the markdown files beside the catalogue that define nothing.
var notCatalogue = []string{"README.md", "COVERAGE.md", "defects.md", reasons}

// reasons names the file that says of some lines why they stay open.
const reasons = "today.md"

// reasonLine matches "- RS-021: why", with the name of a clause or without.
var reasonLine = regexp.MustCompile(`(?m)^- ([A-Z]{1,8}-K?[0-9]{2,3}(?:/[\w.-]+)?): .`)

// Parse reads a catalogue from the markdown files at the root of files. A
// line that defines an ID a second time is an error.
func Parse(files fs.FS) (*Catalogue, error) {
	names, err := fs.Glob(files, "*.md")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	c := &Catalogue{byID: map[string]Requirement{}}
	for _, name := range names {
		if slices.Contains(notCatalogue, name) {
			continue
		}
		if err := c.parseFile(files, name); err != nil {
			return nil, err
		}
	}
	c.cutClauses()
	return c, c.readReasons(files)
}

// readReasons notes what stays open for a reason.
func (c *Catalogue) readReasons(files fs.FS) error {
	text, err := fs.ReadFile(files, reasons)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the reasons: %w", err)
	}
	c.excused = map[string]bool{}
	for _, m := range reasonLine.FindAllStringSubmatch(string(text), -1) {
		if err := c.citable(m[1]); err != nil {
			return fmt.Errorf("%s: %w", reasons, err)
		}
		c.excused[m[1]] = true
	}
	return nil
}

// cutClauses takes the names of the clauses from the end of each text.
func (c *Catalogue) cutClauses() {
	for id, r := range c.byID {
		if m := clauseList.FindStringSubmatchIndex(r.Text); m != nil {
			r.Clauses = strings.Split(r.Text[m[2]:m[3]], ", ")
			r.Text = r.Text[:m[0]]
			c.byID[id] = r
		}
	}
}

func (c *Catalogue) parseFile(files fs.FS, name string) error {
	f, err := files.Open(name)
	if err != nil {
		return fmt.Errorf("open catalogue file: %w", err)
	}
	defer f.Close()
	title, last, fenced := "", "", false
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if fenced {
			continue
		}
		if heading, ok := strings.CutPrefix(line, "# "); ok {
			title = heading
		}
		m := requirementLine.FindStringSubmatch(line)
		if m == nil {
			last = c.extend(last, line)
			continue
		}
		r := Requirement{ID: m[1], Area: m[2], Tags: splitTags(m[3]), Text: m[4], File: name}
		if first, dup := c.byID[r.ID]; dup {
			return fmt.Errorf("%s:%d: %s is already defined in %s", name, n, r.ID, first.File)
		}
		c.byID[r.ID] = r
		c.add(r, title)
		last = r.ID
	}
	return lines.Err()
}

// extend appends line to the text of the requirement last when it is indented
// and thus continues it. It returns the requirement that a further line may
// continue: none after any other line.
func (c *Catalogue) extend(last, line string) string {
	if last == "" || !strings.HasPrefix(line, "  ") {
		return ""
	}
	r := c.byID[last]
	r.Text += " " + strings.TrimSpace(line)
	c.byID[last] = r
	return last
}

// add appends r to its area, which it creates under title when r is its first.
func (c *Catalogue) add(r Requirement, title string) {
	i := slices.IndexFunc(c.Areas, func(a Area) bool { return a.Name == r.Area })
	if i < 0 {
		i = len(c.Areas)
		c.Areas = append(c.Areas, Area{Name: r.Area, Title: title, File: r.File})
	}
	c.Areas[i].IDs = append(c.Areas[i].IDs, r.ID)
}

// splitTags turns "[api] [node]" into its words.
func splitTags(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == '[' || r == ']' || r == ' ' })
}

// catalogue reads the embedded catalogue, once a process.
var catalogue = sync.OnceValues(func() (*Catalogue, error) { return Parse(requirements.Files) })

// Embedded returns the catalogue of docs/requirements as it was when this
// program was built.
func Embedded() (*Catalogue, error) { return catalogue() }

// conformance is the area of the official conformance tests. Their lines are
// counted apart: they say again, test by test, what other lines say.
const conformance = "C"

var kepID = regexp.MustCompile(`^KEP-[1-9][0-9]*$`)

// citable returns why id may not be cited, if so: it is neither in the catalogue,
// with its clause if it has some, nor the number of an enhancement proposal (KEP-592).
func (c *Catalogue) citable(id string) error {
	line, clause, _ := strings.Cut(id, "/")
	r, ok := c.byID[line]
	switch {
	case kepID.MatchString(id):
		return nil
	case !ok:
		return fmt.Errorf("unknown requirement ID %q (neither in docs/requirements nor KEP-<n>)", id)
	case clause == "" && len(r.Clauses) > 0:
		return fmt.Errorf("%s has clauses: cite those that are shown, of %s", id, strings.Join(r.Units(), ", "))
	case line != id && !slices.Contains(r.Clauses, clause):
		return fmt.Errorf("%s has no clause %q, it has %q", line, clause, r.Clauses)
	}
	return nil
}
