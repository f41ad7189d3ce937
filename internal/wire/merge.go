package wire

import (
	"bytes"

	"github.com/kemudi/kemudi/internal/layout"
)

// MergeJSON applies a merge patch (RFC 7386) to a document as the library does that
// answers clients: it takes nulls out of all that it sets, within lists too. ok is false,
// and the library has to do it, if one of the two is no object or says something
// twice.
func MergeJSON(doc, patch []byte) (out []byte, ok bool) {
	if layout.Library {
		return nil, false
	}
	return appendMerged(make([]byte, 0, len(doc)+len(patch)), doc, patch)
}

// namedText is a member of an object as it stands.
type namedText struct {
	name, value []byte
	seen        bool
}

// named lists the members of the object that text is.
func named(text []byte) (list []namedText, ok bool) {
	d := document{text: text}
	d.space()
	ok = d.object(func(name []byte) bool {
		for i := range list {
			if bytes.Equal(list[i].name, name) {
				return false
			}
		}
		value, ok := d.raw()
		list = append(list, namedText{name: name, value: value})
		return ok
	})
	return list, ok && d.ended()
}

func appendMerged(dst, doc, patch []byte) (out []byte, ok bool) {
	changes, ok := named(patch)
	if !ok {
		return dst, false
	}
	members, ok := named(doc)
	if !ok {
		return dst, false
	}
	dst = append(dst, '{')
	from := len(dst)
	for _, m := range members {
		c := changeOf(changes, m.name)
		switch {
		case c == nil:
			dst = append(appendName(dst, from, m.name), m.value...)
			continue
		case isNull(c.value):
			continue
		case m.value[0] == '{' && c.value[0] == '{':
			dst, ok = appendMerged(appendName(dst, from, m.name), m.value, c.value)
		case m.value[0] == '{':
			dst = append(appendName(dst, from, m.name), c.value...)
		default:
			dst, ok = appendPruned(appendName(dst, from, m.name), c.value)
		}
		if !ok {
			return dst, false
		}
	}
	for i := range changes {
		if c := &changes[i]; !c.seen && !isNull(c.value) {
			if dst, ok = appendPruned(appendName(dst, from, c.name), c.value); !ok {
				return dst, false
			}
		}
	}
	return append(dst, '}'), true
}

// changeOf is what the patch says of a member, nil if nothing.
func changeOf(changes []namedText, name []byte) *namedText {
	for i := range changes {
		if c := &changes[i]; bytes.Equal(c.name, name) {
			c.seen = true
			return c
		}
	}
	return nil
}

func isNull(value []byte) bool { return value[0] == 'n' }

// appendName appends the name of the next member of an object, whose members begin at from.
func appendName(dst []byte, from int, name []byte) []byte {
	if len(dst) > from {
		dst = append(dst, ',')
	}
	return append(AppendString(dst, string(name)), ':')
}

// appendPruned appends a value without the members that are null.
func appendPruned(dst, value []byte) (out []byte, ok bool) {
	switch value[0] {
	case '{':
		members, ok := named(value)
		if !ok {
			return dst, false
		}
		dst = append(dst, '{')
		from := len(dst)
		for _, m := range members {
			if isNull(m.value) {
				continue
			}
			if dst, ok = appendPruned(appendName(dst, from, m.name), m.value); !ok {
				return dst, false
			}
		}
		return append(dst, '}'), true
	case '[':
		dst = append(dst, '[')
		from := len(dst)
		d := document{text: value}
		ok = d.array(func() bool {
			if len(dst) > from {
				dst = append(dst, ',')
			}
			item, ok := d.raw()
			if ok {
				dst, ok = appendPruned(dst, item)
			}
			return ok
		})
		return append(dst, ']'), ok
	}
	return append(dst, value...), true
}
