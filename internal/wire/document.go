package wire

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"unicode/utf8"
)

// document is a JSON document that is read from its beginning to its end. Its
// methods read what is next, and the space after it, and report whether that is what
// they read; if not, nothing more can be read.
type document struct {
	text  []byte
	at    int // the next byte
	depth int // of objects and arrays around it

	found []pair // of the objects without types around it
}

// depthMost is how deep objects and arrays may lie within each other. The library
// takes more.
const depthMost = 200

func (d *document) ended() bool { return d.at == len(d.text) }

// next is the next byte; 0: there is none.
func (d *document) next() byte {
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

// space goes over white space.
func (d *document) space() {
	for d.at < len(d.text) {
		switch d.text[d.at] {
		case ' ', '\n', '\t', '\r':
			d.at++
		default:
			return
		}
	}
}

// mark reads one character.
func (d *document) mark(c byte) bool {
	if d.next() != c {
		return false
	}
	d.at++
	d.space()
	return true
}

// word reads true, false or null.
func (d *document) word(w string) bool {
	if len(d.text)-d.at < len(w) || string(d.text[d.at:d.at+len(w)]) != w {
		return false
	}
	d.at += len(w)
	d.space()
	return true
}

func (d *document) null() bool { return d.word("null") }

// object reads an object; member reads each value. The name is valid until then.
func (d *document) object(member func(name []byte) bool) bool {
	if d.depth++; d.depth > depthMost || !d.mark('{') {
		return false
	}
	for first := true; !d.mark('}'); first = false {
		if !first && !d.mark(',') {
			return false
		}
		name, plain, ok := d.quoted()
		if ok && !plain {
			name, ok = unescape(name)
		}
		if !ok || !d.mark(':') || !member(name) {
			return false
		}
	}
	d.depth--
	return true
}

// array reads an array; item reads each value.
func (d *document) array(item func() bool) bool {
	if d.depth++; d.depth > depthMost || !d.mark('[') {
		return false
	}
	for first := true; !d.mark(']'); first = false {
		if !first && !d.mark(',') || !item() {
			return false
		}
	}
	d.depth--
	return true
}

// quoted reads a string, as it stands between its quotes; plain says that it has
// no escapes.
func (d *document) quoted() (text []byte, plain, ok bool) {
	if d.next() != '"' {
		return nil, false, false
	}
	from, ascii := d.at+1, true
	plain = true
	for i := from; ; {
		i += unquoted(d.text[i:])
		if i == len(d.text) {
			return nil, false, false
		}
		switch c := d.text[i]; {
		case c == '"':
			text = d.text[from:i]
			d.at = i + 1
			d.space()
			return text, plain, ascii || utf8.Valid(text)
		case c == '\\':
			plain = false
			i++ // what is escaped is looked at by unescape
			if i == len(d.text) {
				return nil, false, false
			}
			if d.text[i] < ' ' {
				return nil, false, false
			}
		case c < ' ':
			return nil, false, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
		i++
	}
}

// unquoted is how many bytes at the beginning of b stand for themselves in a
// string, as far as that can be seen eight bytes at a time.
func unquoted(b []byte) (n int) {
	for ; n+8 <= len(b); n += 8 {
		v := binary.LittleEndian.Uint64(b[n:])
		if v&highs != 0 || below(v, ' ')|has(v, '"')|has(v, '\\') != 0 {
			return n
		}
	}
	return n
}

// string reads a string.
func (d *document) string() (string, bool) {
	text, plain, ok := d.quoted()
	if !ok || plain {
		return string(text), ok
	}
	text, ok = unescape(text)
	return string(text), ok
}

// unescape replaces the escapes in a string. Halves of surrogate pairs are left to
// the library.
func unescape(text []byte) (out []byte, ok bool) {
	out = make([]byte, 0, len(text))
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return append(out, text...), true
		}
		out = append(out, text[:i]...)
		c := text[i+1] // quoted has seen it
		text = text[i+2:]
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'u':
			if len(text) < 4 {
				return nil, false
			}
			r, err := strconv.ParseUint(string(text[:4]), 16, 16)
			if err != nil || r >= 0xd800 && r < 0xe000 {
				return nil, false
			}
			out, text = utf8.AppendRune(out, rune(r)), text[4:]
		default:
			return nil, false
		}
	}
}

// integer reads a whole number.
func (d *document) integer(into *int64) bool {
	text, ok := d.number()
	if !ok {
		return false
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	*into = n
	return err == nil
}

// number reads a number as it stands.
func (d *document) number() (text []byte, ok bool) {
	from := d.at
	if d.next() == '-' {
		d.at++
	}
	if d.next() == '0' {
		d.at++
	} else if !d.digits() {
		return nil, false
	}
	if d.next() == '.' {
		if d.at++; !d.digits() {
			return nil, false
		}
	}
	if c := d.next(); c == 'e' || c == 'E' {
		d.at++
		if c := d.next(); c == '+' || c == '-' {
			d.at++
		}
		if !d.digits() {
			return nil, false
		}
	}
	text = d.text[from:d.at]
	d.space()
	return text, true
}

func (d *document) digits() bool {
	from := d.at
	for c := d.next(); c >= '0' && c <= '9'; c = d.next() {
		d.at++
	}
	return d.at > from
}

// raw reads any value, as it stands.
func (d *document) raw() (text []byte, ok bool) {
	from := d.at
	if !d.skip() {
		return nil, false
	}
	return bytes.TrimRight(d.text[from:d.at], " \n\t\r"), true
}

// skip reads any value.
func (d *document) skip() bool {
	switch d.next() {
	case '{':
		return d.object(func([]byte) bool { return d.skip() })
	case '[':
		return d.array(d.skip)
	case '"':
		text, plain, ok := d.quoted()
		if ok && !plain {
			_, ok = unescape(text)
		}
		return ok
	case 't':
		return d.word("true")
	case 'f':
		return d.word("false")
	case 'n':
		return d.null()
	}
	_, ok := d.number()
	return ok
}
