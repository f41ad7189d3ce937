package patch

// trie writes a set of field paths in the form of FieldsV1, while a value is
// walked in the order of its path elements. Parts of a path are written only
// when something below them is in the set.
//
//	{"f:spec":{"f:ports":{".":{},"k:{\"port\":80}":{...}}}}
type trie struct {
	buf    []byte
	levels []level
	open   int // levels[:open] have been written
}

type level struct {
	// One of these names the path element; the latter two are made into a label
	// when it is written.
	label string // `"f:spec":`
	key   string // of a map
	item  *item  // of a list

	marked bool // the path itself is in the set
	filled bool // something within its braces has been written
}

func (l *level) appendLabel(dst []byte) []byte {
	switch {
	case l.label != "":
		return append(dst, l.label...)
	case l.item != nil:
		return append(dst, l.item.label()...)
	}
	return appendLabel(dst, "f:"+l.key)
}

// push goes one element down, pop comes back.
func (t *trie) push(l level) { t.levels = append(t.levels, l) }

func (t *trie) pop() {
	last := len(t.levels) - 1
	switch l := &t.levels[last]; {
	case t.open == last+1:
		t.buf = append(t.buf, '}')
		t.open--
	case l.marked:
		t.openTo(last)
		t.comma(last)
		t.buf = l.appendLabel(t.buf)
		t.buf = append(t.buf, "{}"...)
	}
	t.levels = t.levels[:last]
}

// mark puts the current path into the set. It must come before marks below it.
func (t *trie) mark() {
	last := len(t.levels) - 1
	t.levels[last].marked = true
	t.openTo(last)
}

// openTo writes the first n levels that are not written yet.
func (t *trie) openTo(n int) {
	for ; t.open < n; t.open++ {
		t.comma(t.open)
		l := &t.levels[t.open]
		t.buf = l.appendLabel(t.buf)
		t.buf = append(t.buf, '{')
		if l.marked {
			t.buf = append(t.buf, `".":{}`...)
			l.filled = true
		}
	}
}

// comma separates from what was written before within the parent of level n.
func (t *trie) comma(n int) {
	if n == 0 {
		if len(t.buf) > 0 {
			t.buf = append(t.buf, ',')
		}
		return
	}
	if p := &t.levels[n-1]; p.filled {
		t.buf = append(t.buf, ',')
	} else {
		p.filled = true
	}
}

// json is the set so far, without the outer braces; nil: it is empty.
func (t *trie) json() []byte { return t.buf }
