package cache

import (
	"slices"
	"sync"

	"github.com/kemudi/kemudi/internal/resource"
)

// Item is one object as it was at one revision, with the encodings made of it
// so far. All but the encodings is immutable.
type Item struct {
	Key    string // "namespace/name", or "name" if the resource has no namespaces
	Rev    int64
	Object resource.Object // its resourceVersion is Rev

	mu struct {
		sync.Mutex
		encodings []encoding // few: one per version and media type that was asked for
	}
}

type encoding struct {
	form  any
	bytes []byte
}

// Encoding returns the object's bytes in a form (any comparable value the
// caller chooses, such as version and media type), making them on first use.
// make must not block.
func (it *Item) Encoding(form any, make func(resource.Object) ([]byte, error)) ([]byte, error) {
	it.mu.Lock()
	defer it.mu.Unlock()
	for _, e := range it.mu.encodings {
		if e.form == form {
			return e.bytes, nil
		}
	}
	b, err := make(it.Object)
	if err != nil {
		return nil, err
	}
	it.mu.encodings = append(it.mu.encodings, encoding{form, b})
	return b, nil
}

// Encoded returns the object's bytes in a form if they have been made.
func (it *Item) Encoded(form any) ([]byte, bool) {
	it.mu.Lock()
	defer it.mu.Unlock()
	for _, e := range it.mu.encodings {
		if e.form == form {
			return e.bytes, true
		}
	}
	return nil, false
}

// Forget drops the bytes of a form; the next Encoding makes them again.
func (it *Item) Forget(form any) {
	it.mu.Lock()
	defer it.mu.Unlock()
	it.mu.encodings = slices.DeleteFunc(it.mu.encodings, func(e encoding) bool { return e.form == form })
}

// Namespace is the part of the key before the slash; empty if there is none.
func (it *Item) Namespace() string { return it.Object.GetNamespace() }

// Key joins the name parts of an object into an Item's key.
func Key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// EventType says what happened to an object, from the view of who is told.
type EventType string

// The types of events; their values are those of the watch API.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
)

// Event is one change. Item is the object after it; for Deleted, as it last
// was, with the revision of the deletion. Prev is the object before; nil for Added
// objects that did not exist.
type Event struct {
	Type EventType
	Item *Item
	Prev *Item
}

// Rev is the revision at which the change was made.
func (e *Event) Rev() int64 { return e.Item.Rev }
