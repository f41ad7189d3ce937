package wire

import "fmt"

// Appender is what writes its own JSON form: compact, as encoding/json would.
type Appender interface {
	AppendJSON(dst []byte) ([]byte, error)
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
