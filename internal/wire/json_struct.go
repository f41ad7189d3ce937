package wire

import (
	"reflect"

	"github.com/kemudi/kemudi/internal/layout"
)

// member is one field of a struct's JSON form.
type member struct {
	name   []byte // `"name":`
	offset uintptr
	omit   func(p layout.Ptr) bool // nil: never
	value  plan
}

func structPlan(t reflect.Type) plan {
	members := membersOf(t)
	if members == nil {
		return libraryPlan(t)
	}
	return func(e *encoding, p layout.Ptr) {
		e.buf = append(e.buf, '{')
		first := true
		for i := range members {
			m := &members[i]
			q := p.Field(m.offset)
			if m.omit != nil && m.omit(q) {
				continue
			}
			if !first {
				e.buf = append(e.buf, ',')
			}
			first = false
			e.buf = append(e.buf, m.name...)
			m.value(e, q)
		}
		e.buf = append(e.buf, '}')
	}
}

// membersOf lists the members of t; nil: it is for the library, for a field of an
// embedded pointer or with the option "string".
func membersOf(t reflect.Type) []member {
	fields, err := layout.Fields(t)
	if err != nil {
		return nil
	}
	members := make([]member, len(fields))
	for i, f := range fields {
		if f.Quoted {
			return nil
		}
		members[i] = member{name: append(AppendString(nil, f.Name), ':'), offset: f.Offset, omit: f.Omit, value: planOf(f.Type)}
	}
	return members
}
