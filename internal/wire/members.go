package wire

import (
	"fmt"
	"iter"
)

// Appender is what writes its own JSON form: compact, as encoding/json would.
type Appender interface {
	AppendJSON(dst []byte) ([]byte, error)
}

// Each goes through the members of the JSON object that doc is, each as it stands: the bytes are
// of doc, but for a name that has escapes. What is broken, or no object, ends it.
func Each(doc []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		d := document{text: doc}
		d.space()
		d.object(func(name []byte) bool {
			value, ok := d.raw()
			return ok && yield(name, value)
		})
	}
}

// Elements goes through those of the JSON array that doc is, each as it stands. What is broken, or no array, ends it.
func Elements(doc []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		d := document{text: doc}
		d.space()
		d.array(func() bool {
			value, ok := d.raw()
			return ok && yield(value)
		})
	}
}

// Text is what the JSON string says that doc is; ok is false if it is none.
func Text(doc []byte) (text []byte, ok bool) {
	d := document{text: doc}
	d.space()
	text, plain, ok := d.quoted()
	if ok && !plain {
		text, ok = unescape(text)
	}
	return text, ok && d.ended()
}

// Members calls fn with the members of the JSON object that doc is, each as it stands: the bytes are
// of doc.
func Members(doc []byte, fn func(name, value []byte)) error {
	d := document{text: doc}
	d.space()
	ok := d.object(func(name []byte) bool {
		value, ok := d.raw()
		if ok {
			fn(name, value)
		}
		return ok
	})
	if !ok || !d.ended() {
		return fmt.Errorf("read JSON: not an object, or broken at byte %d", d.at)
	}
	return nil
}
