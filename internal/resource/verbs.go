package resource

import "slices"

// Verbs is a set of what can be done with a resource or a subresource.
type Verbs uint8

// The verbs, in the order of their names.
const (
	Create Verbs = 1 << iota
	Delete
	DeleteCollection
	Get
	List
	Patch
	Update
	Watch
)

// Sets that declarations mean when they name none.
const (
	AllVerbs  = Create | Delete | DeleteCollection | Get | List | Patch | Update | Watch // of what is stored
	PartVerbs = Get | Patch | Update                                                     // of a subresource
	ReadVerbs = Get | List                                                               // of what is computed
)

// verbNames are the verbs as requests, roles and discovery have them.
var verbNames = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// Verb is the verb with the name; a name of none makes an empty set.
func Verb(name string) Verbs {
	if i := slices.Index(verbNames, name); i >= 0 {
		return 1 << i
	}
	return 0
}

// Has reports whether the verb is in the set.
func (v Verbs) Has(verb Verbs) bool { return v&verb != 0 }

// Names lists the set in the order of discovery.
func (v Verbs) Names() []string {
	var names []string
	for i, name := range verbNames {
		if v.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
}
