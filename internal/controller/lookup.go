package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/resource"
)

// Lookup finds the members of a set, as it is at the time, by what objects say of
// each other. Resources that are not stored are not found. Its methods may be
// called concurrently.
type Lookup struct {
	kinds Kinds
	mu    struct {
		sync.Mutex
		now     *found          // nil: not asked yet
		changed <-chan struct{} // closed when now is old
	}
}

// found are the members at one time. They are read-only.
type found struct {
	defs   []*resource.Def
	byName map[string]*resource.Def
	byKind map[schema.GroupKind]*resource.Def
}

// NewLookup returns the lookup of a set.
func NewLookup(kinds Kinds) *Lookup { return &Lookup{kinds: kinds} }

// Defs are all members. The list is read-only.
func (l *Lookup) Defs() []*resource.Def { return l.now().defs }

// Name returns the member of a name (that of its String), or nil.
func (l *Lookup) Name(name string) *resource.Def { return l.now().byName[name] }

// Kind returns the member that has objects of a kind, in whichever of its
// versions, or nil.
func (l *Lookup) Kind(kind schema.GroupKind) *resource.Def { return l.now().byKind[kind] }

func (l *Lookup) now() *found {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.mu.changed:
		l.mu.now = nil
	default:
	}
	if l.mu.now == nil {
		var defs []*resource.Def
		defs, l.mu.changed = l.kinds.Defs()
		l.mu.now = find(defs)
	}
	return l.mu.now
}

func find(defs []*resource.Def) *found {
	f := &found{byName: map[string]*resource.Def{}, byKind: map[schema.GroupKind]*resource.Def{}}
	for _, def := range defs {
		if !def.Stored() {
			continue
		}
		f.defs = append(f.defs, def)
		f.byName[def.String()] = def
		f.byKind[def.GVK().GroupKind()] = def
		for _, v := range def.Versions {
			f.byKind[schema.GroupKind{Group: v.Group, Kind: def.Kind}] = def
		}
	}
	return f
}
