package cache

import (
	"sync"

	"github.com/kemudi/kemudi/internal/resource"
)

// Item is one object as it was at one revision, with what its readers have made
// of it so far. All but these notes is immutable.
type Item struct {
	Key    string // "namespace/name", or "name" if the resource has no namespaces
	Rev    int64
	Object resource.Object // its resourceVersion is Rev

	mu struct {
		sync.Mutex
		notes []note // few: one per form that was asked for
	}
}

type note struct{ key, value any }

// Note returns what is kept with the item under a key (any comparable value the
// caller chooses), such as the object's bytes in a form. If nothing is, it keeps
// what first returns, which must not block.
func (it *Item) Note(key any, first func() any) any {
	it.mu.Lock()
	defer it.mu.Unlock()
	for _, n := range it.mu.notes {
		if n.key == key {
			return n.value
		}
	}
	value := first()
	it.mu.notes = append(it.mu.notes, note{key, value})
	return value
}

// Noted is what is kept under a key, nil if nothing is.
func (it *Item) Noted(key any) any {
	it.mu.Lock()
	defer it.mu.Unlock()
	for _, n := range it.mu.notes {
		if n.key == key {
			return n.value
		}
	}
	return nil
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
