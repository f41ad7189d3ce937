package patch

import (
	"bytes"
	"cmp"
	"strconv"
)

// setWriter changes sets of fields in their written form, without reading them into
// trees: both sides are in the same order, so that one walk through them is enough. Sets that are
// not written as the library writes them are left to it.
type setWriter struct {
	rest, out []byte // room for what is made
}

// after returns the set of a manager after a change; see afterSet. What it returns
// is valid until the next call.
func (w *setWriter) after(before []byte, ch change, own bool) ([]byte, error) {
	if ch.none() {
		return before, nil
	}
	if after, ok := w.quickly(before, ch, own); ok {
		return after, nil
	}
	return afterSet(before, ch, own)
}

func (w *setWriter) quickly(before []byte, ch change, own bool) ([]byte, bool) {
	var set []byte
	if len(before) > len("{}") {
		if before[0] != '{' || before[len(before)-1] != '}' {
			return nil, false
		}
		set = before[1 : len(before)-1]
	}
	j := joining{out: append(w.rest[:0], '{')}
	j.join(setText{text: set}, setText{text: []byte(ch.removed)}, false)
	w.rest = j.out
	if j.odd {
		return nil, false
	}
	j = joining{out: append(w.out[:0], '{')}
	j.join(setText{text: w.rest[1:]}, setText{text: []byte(ch.set)}, own)
	w.out = append(j.out, '}')
	if len(w.out) == len("{}") {
		return nil, !j.odd
	}
	return w.out, !j.odd
}

// joining makes one set of two.
type joining struct {
	out []byte
	add bool // what is in the second is added, or else taken away
	odd bool // a set is not written as the library does it: what is made is of no use
}

// join appends what becomes of the first set with what is in the second.
func (j *joining) join(a, b setText, add bool) {
	j.add = add
	j.level(&a, &b, false)
	j.odd = j.odd || a.odd || b.odd
}

// level joins one level of two sets, and reports whether anything was written. member
// says that what is around the level is in the set itself.
func (j *joining) level(a, b *setText, member bool) (some bool) {
	inner := a.depth > 0
	begin := func() {
		switch {
		case some:
			j.out = append(j.out, ',')
		case member:
			j.out = append(j.out, `".":{},`...)
		}
		some = true
	}
	x, y := a.first(inner), b.first(inner)
	for x.there() || y.there() {
		switch c := compareNames(&x, &y); {
		case a.odd || b.odd || j.odd:
			return some
		case c < 0 || c > 0 && j.add:
			begin()
			from, e := a, &x
			if c > 0 {
				from, e = b, &y
			}
			j.out = append(append(append(j.out, '"'), e.text...), `":`...)
			j.out = append(j.out, from.skip()...)
			*e = from.next(e, inner)
		case c > 0:
			b.skip()
			y = b.next(&y, inner)
		default:
			at, was := len(j.out), some
			begin()
			j.out = append(append(append(j.out, '"'), x.text...), `":{`...)
			inA, emptyA := a.open()
			inB, emptyB := b.open()
			in := inA && (j.add || !inB) || inB && j.add
			if below := j.below(a, b, openings{in, emptyA, emptyB}); !below && !in {
				j.out, some = j.out[:at], was
			} else {
				j.out = append(j.out, '}')
			}
			x, y = a.next(&x, inner), b.next(&y, inner)
		}
	}
	return some
}

// openings are what is known of a field of both sets when its levels have been opened.
type openings struct {
	in             bool // the field itself is in the result
	emptyA, emptyB bool // there is nothing below: the level has been closed
}

func (j *joining) below(a, b *setText, o openings) (some bool) {
	none := setText{text: []byte("}"), depth: 1} // a level that is closed at once
	from, other := a, b
	if o.emptyA {
		none1 := none
		from = &none1
	}
	if o.emptyB {
		other = &none
	}
	some = j.level(from, other, o.in)
	if !o.emptyA {
		a.depth--
	}
	if !o.emptyB {
		b.depth--
	}
	return some
}

// setText is a set that is being read. Once odd, nothing more can be read.
type setText struct {
	text  []byte
	at    int
	depth int // of levels that are open, the outermost not counted
	odd   bool
}

// setName is the name of a field in its written form; no text: there are no more.
type setName struct {
	text []byte
	keys [setKeys]setKey // of an item of a list
	n    int             // how many
}

// setKeys is how many keys an item may have that is not left to the library.
const setKeys = 4

type setKey struct {
	name []byte // none: the item is a value
	kind setKind
	text []byte
	n    int64 // of a number; 1: true
}

// setKind is the type of a key's value, in their order.
type setKind uint8

const (
	keyNumber setKind = iota
	keyText
	keyBool
)

func (e *setName) there() bool { return len(e.text) > 0 }

// first reads the first name of a level, next the one behind e, whose level has been
// read.
func (s *setText) first(inner bool) setName { return s.name(inner, true) }

func (s *setText) next(e *setName, inner bool) setName {
	n := s.name(inner, false)
	if n.there() && !s.odd {
		if compareNames(e, &n) >= 0 {
			s.fail()
			return setName{}
		}
	}
	return n
}

func (s *setText) fail() { s.odd = true }

func (s *setText) name(inner, first bool) setName {
	switch {
	case s.odd:
		return setName{}
	case inner && s.at < len(s.text) && s.text[s.at] == '}':
		s.at++
		return setName{}
	case !inner && s.at == len(s.text):
		return setName{}
	case !first && !s.take(","):
		s.fail()
		return setName{}
	}
	text := s.quoted()
	if len(text) < len("f:") || text[1] != ':' || text[0] != 'f' && text[0] != 'k' && text[0] != 'v' || !s.take(":") {
		s.fail()
		return setName{}
	}
	e := setName{text: text}
	if text[0] == 'f' && bytes.IndexByte(text, '\\') >= 0 || text[0] != 'f' && !e.read() {
		s.fail()
		return setName{}
	}
	return e
}

// quoted reads a string, and returns what is between its quotes; nil: it is none, or
// has other than plain characters.
func (s *setText) quoted() []byte {
	if !s.take(`"`) {
		return nil
	}
	for i := s.at; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			text := s.text[s.at:i]
			s.at = i + 1
			return text
		case c == '\\':
			i++
			if i == len(s.text) || s.text[i] != '"' {
				return nil
			}
		case c < ' ' || c >= 0x7f:
			return nil
		}
	}
	return nil
}

func (s *setText) take(mark string) bool {
	if end := s.at + len(mark); end <= len(s.text) && string(s.text[s.at:end]) == mark {
		s.at = end
		return true
	}
	return false
}

// open begins to read what is below a name. member says that the field itself is in the set,
// empty that there is nothing below, and the level is closed.
func (s *setText) open() (member, empty bool) {
	switch {
	case s.take("{}"):
		return true, true
	case s.take(`{".":{},`):
		s.depth++
		return true, false
	case s.take("{"):
		s.depth++
		return false, false
	}
	s.fail()
	return false, true
}

// skip reads all that is below a name, and returns it.
func (s *setText) skip() []byte {
	from := s.at
	s.skipLevel()
	if s.odd {
		return nil
	}
	return s.text[from:s.at]
}

func (s *setText) skipLevel() {
	if _, empty := s.open(); empty {
		return
	}
	for e := s.first(true); e.there(); e = s.next(&e, true) {
		s.skipLevel()
	}
	s.depth--
}

// compareNames is the order of names in a set; none comes last.
func compareNames(a, b *setName) int {
	switch {
	case !a.there() || !b.there():
		return compareBools(!a.there(), !b.there())
	case bytes.Equal(a.text, b.text):
		return 0
	case a.text[0] != b.text[0]:
		return int(a.text[0]) - int(b.text[0])
	case a.text[0] == 'f':
		return bytes.Compare(a.text, b.text)
	}
	for i := range min(a.n, b.n) {
		x, y := &a.keys[i], &b.keys[i]
		if c := cmp.Or(bytes.Compare(x.name, y.name), cmp.Compare(x.kind, y.kind), cmp.Compare(x.n, y.n), bytes.Compare(x.text, y.text)); c != 0 {
			return c
		}
	}
	return a.n - b.n
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// read reads the keys of an item, or its value, in a name. It reports false for what is
// left to the library.
func (e *setName) read() bool {
	r := setText{text: e.text[len("k:"):]}
	if e.text[0] == 'v' {
		e.n = 1
		return r.scalar(&e.keys[0]) && r.at == len(r.text)
	}
	for e.n = 0; e.n < setKeys; {
		mark := ","
		if e.n == 0 {
			mark = "{"
		}
		k := &e.keys[e.n]
		ok := r.take(mark) && r.plain(&k.name) && r.take(":") && r.scalar(k)
		if !ok || e.n > 0 && bytes.Compare(e.keys[e.n-1].name, k.name) >= 0 {
			return false
		}
		e.n++
		if r.take("}") {
			return r.at == len(r.text)
		}
	}
	return false
}

// plain reads a string within a string, without escapes of its own.
func (s *setText) plain(into *[]byte) bool {
	if !s.take(`\"`) {
		return false
	}
	n := bytes.IndexByte(s.text[s.at:], '\\')
	if n < 0 {
		return false
	}
	*into = s.text[s.at : s.at+n]
	s.at += n
	return s.take(`\"`)
}

// scalar reads a text, a whole number, true or false.
func (s *setText) scalar(k *setKey) bool {
	switch {
	case s.take("true"):
		k.kind, k.n = keyBool, 1
		return true
	case s.take("false"):
		k.kind = keyBool
		return true
	case s.at < len(s.text) && s.text[s.at] == '\\':
		k.kind = keyText
		return s.plain(&k.text)
	}
	from := s.at
	for s.at < len(s.text) && (s.text[s.at] == '-' || s.text[s.at] >= '0' && s.text[s.at] <= '9') {
		s.at++
	}
	text := string(s.text[from:s.at])
	n, err := strconv.ParseInt(text, 10, 64)
	k.n = n
	return err == nil && strconv.FormatInt(n, 10) == text
}
