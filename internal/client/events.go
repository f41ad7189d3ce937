package client

import (
	"github.com/kemudi/kemudi/internal/resource"
)

// EventSink takes notes about objects for people: the Events of kubectl
// describe. Writing never blocks and never fails the caller.
type EventSink interface {
	// Event notes something about obj. kind is "Normal" or "Warning"; reason is
	// one UpperCamelCase word that programs may look for; message is for people.
	Event(obj resource.Object, kind, reason, message string)
}

// Part is an object given to an EventSink of which the event is about one part,
// named as events name it: "spec.containers{web}".
type Part struct {
	resource.Object
	FieldPath string
}

// Deed is an object given to an EventSink of which the event also says, in one word, what is being done,
// and who else has to do with it, if anybody.
type Deed struct {
	resource.Object
	Action  string
	Related resource.Object
}

// Annotated is an object given to an EventSink of which the event has annotations, for programs.
type Annotated struct {
	resource.Object
	Annotations map[string]string
}

// NoEvents drops all events.
var NoEvents EventSink = noEvents{}

type noEvents struct{}

func (noEvents) Event(resource.Object, string, string, string) {}
