package alloc

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
)

// prefixOfAll is where values that no objects take live in the store, below it
// CLASS/NAME; the value of the key is the key of the object that holds it. Its last word is
// what this was called when the first stores were written.
const prefixOfAll = "/registry/kemudi/claims/"

// Options configure an Allocator. Store is required.
type Options struct {
	Store    store.Store
	Settings map[string]string // values of the server's flags
	// Defs are all resources, and Caches those of their objects: for the classes whose values
	// are taken by objects ([resource.Taking]).
	Defs   []*resource.Def
	Caches Caches
	// Count is told what has come of each value that was to be taken, or was found to be nobody's. Nil: nobody counts.
	Count func(Outcome)
}

// Outcome is what has come of taking a value.
type Outcome struct {
	Class, Value string // Value may be one of many that are taken already
	Asked        bool   // it was asked for by name
	Mending      bool   // its object has it already: the store is to say so, too
	Came         Result
	// Object is the one that is mended; nil: none is, or none has the value any more.
	Object resource.Object
}

// Result is how it came out.
type Result uint8

const (
	Given   Result = iota // the object has it now
	Another               // it is another's
	Outside               // it is none of those that there are to be had
	Nothing               // none is left
	Leaked                // no object had it any more, and it was given up
)

// Caches show the objects of resources.
type Caches interface {
	Cache(def *resource.Def) *cache.Cache
	// Handoff spares the decoding of a value that is about to be written.
	Handoff(def *resource.Def, key string, value []byte, obj resource.Object) (at func(rev int64) *cache.Item)
}

// Allocator knows who holds which unique values (cluster IPs, node ports), whichever server
// has given them: it is told of the changes in the store. What it remembers may be behind by what is
// under way: the conditions of the transaction decide, and a lost one is read again. Who has waited for
// the caches to show all writes so far is refused nothing that was free before.
//
// What objects take (see takings.go) is seen in their cache instead of by what it is told.
type Allocator struct {
	o       Options
	takings map[string]*resource.Def               // by class
	offers  map[string]*resource.Def               // likewise
	kinds   map[schema.GroupResource]*resource.Def // all that may hold

	mu struct {
		sync.Mutex
		classes map[string]map[string]held // class, name
		told    int64                      // the revision up to which the store has told of changes
		changed int64                      // that of the newest allocation among them
		seen    map[string]seen            // by key: of what objects take, what the cache does not show yet
	}
}

// held is who has one value.
type held struct {
	owner string // the object's key; empty: free
	rev   int64  // that of the allocation in the store; 0: free
}

// New returns what is known of the allocations in a store: nothing yet.
func New(o Options) *Allocator {
	a := &Allocator{o: o, takings: map[string]*resource.Def{}, offers: map[string]*resource.Def{}, kinds: map[schema.GroupResource]*resource.Def{}}
	a.mu.classes, a.mu.seen = map[string]map[string]held{}, map[string]seen{}
	for _, d := range o.Defs {
		a.kinds[d.GroupResource()] = d
		if d.Taking != nil {
			a.takings[d.Taking.Class] = d
		}
		if d.Offer != nil {
			a.offers[d.Offer.Class] = d
		}
	}
	return a
}

// load reads a class from the store unless it is known.
func (a *Allocator) load(ctx context.Context, class string) error {
	for {
		a.mu.Lock()
		known := a.mu.classes[class] != nil
		a.mu.Unlock()
		if known {
			return nil
		}
		names, rev, err := a.list(ctx, class)
		if err != nil {
			return err
		}
		a.learn(class, names, rev)
	}
}

// learn remembers a class as it was at a revision, unless the changes since then have been told
// of already.
func (a *Allocator) learn(class string, names map[string]held, rev int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.classes[class] == nil && rev >= a.mu.changed {
		a.mu.classes[class] = names
	}
}

// Told takes in changes of the store up to a revision. They may be of any keys.
func (a *Allocator) Told(changes []store.Change, rev int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range changes {
		if strings.HasPrefix(c.Key, prefixOfAll) {
			a.setLocked(c.Key, held{string(c.Value), c.Rev})
			a.mu.changed = c.Rev
		}
	}
	a.mu.told = rev
}

// Missed says that what has changed up to a revision will not be told.
func (a *Allocator) Missed(rev int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.mu.classes)
	a.mu.told, a.mu.changed = rev, rev
}

// list reads a class from the store, and at which revision.
func (a *Allocator) list(ctx context.Context, class string) (map[string]held, int64, error) {
	prefix := prefixOfAll + class + "/"
	page, err := a.o.Store.List(ctx, prefix, store.ListOptions{})
	if err != nil {
		return nil, 0, fmt.Errorf("list allocations of %s: %w", class, err)
	}
	names := make(map[string]held, len(page.KVs))
	for _, kv := range page.KVs {
		names[strings.TrimPrefix(kv.Key, prefix)] = held{string(kv.Value), kv.Rev}
	}
	return names, page.Rev, nil
}

// Taken is how many values of a class are taken, if that is known.
func (a *Allocator) Taken(class string) (n int, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	names, known := a.mu.classes[class]
	return len(names), known && names != nil
}

// Know reads a class from the store, unless it is known.
func (a *Allocator) Know(ctx context.Context, class string) error { return a.load(ctx, class) }

func (a *Allocator) get(class, name string) held {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.classes[class][name]
}

// note remembers the state of the allocation with the key as a transaction has made or met
// it at a revision. What the store has told of is newer, or the same.
func (a *Allocator) note(key string, h held, rev int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.takingOf(key) != nil:
		a.seeLocked(key, h, rev)
	case rev > a.mu.told:
		a.setLocked(key, h)
	}
}

func (a *Allocator) setLocked(key string, h held) {
	rest, ok := strings.CutPrefix(key, prefixOfAll)
	class, name, named := strings.Cut(rest, "/")
	switch {
	case !ok || !named || a.mu.classes[class] == nil:
	case h.owner == "":
		delete(a.mu.classes[class], name)
	default:
		a.mu.classes[class][name] = h
	}
}

// Lost takes in the true state of allocations that a transaction met otherwise.
func (a *Allocator) Lost(conds []store.Cond, res store.TxnResult) {
	for i := range conds {
		now := res.Now[i]
		h := held{string(now.Value), now.Rev}
		if d := a.takingOf(conds[i].Key); d != nil {
			h = a.taken(d, now)
		}
		a.note(conds[i].Key, h, res.Rev)
	}
}

// Allocation is a value that is taken, as it stands in the store.
type Allocation struct {
	Key   string // the allocation's own
	Owner string // the key of the object that holds it
	Rev   int64  // the allocation's own revision
	// Object says that an object takes the value: who holds it is for a controller to see to.
	Object bool
}

// All reads the allocations of all classes: from the store, or, if objects take them, from the
// cache, which must have been filled. Objects that clients have made are none.
func (a *Allocator) All(ctx context.Context) (all []Allocation, err error) {
	page, err := a.o.Store.List(ctx, prefixOfAll, store.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list allocations: %w", err)
	}
	for _, kv := range page.KVs {
		all = append(all, Allocation{Key: kv.Key, Owner: string(kv.Value), Rev: kv.Rev})
	}
	for _, d := range a.takings {
		all = append(all, a.madeTakings(d)...)
	}
	return all, nil
}

// Freed notes that an allocation, which was of no use any more, is gone since a revision.
func (a *Allocator) Freed(was Allocation, rev int64) {
	a.note(was.Key, held{}, rev)
	class, name := a.named(was.Key)
	a.count(Outcome{Class: class, Value: name, Mending: true, Came: Leaked})
}

// Begin starts the allocations of one write of the object with the key, which is the holder.
func (a *Allocator) Begin(ctx context.Context, owner string, holder resource.Holder) *Tx {
	return &Tx{a: a, ctx: ctx, owner: owner, holder: holder, want: map[string]held{}, was: map[string]held{}}
}

// Tx collects what a Commit allocates and releases.
type Tx struct {
	a      *Allocator
	ctx    context.Context // of the one request that this serves
	owner  string
	holder resource.Holder
	order  []string
	want   map[string]held // by key: owner set for an allocation, empty for a release
	was    map[string]held
	drawn  map[string]bool // keys of values that nobody has asked for by name
	// Mends is the object if it is there, and has its values already.
	Mends resource.Object
	Err   error // what the store answered, if that went wrong
}

var _ resource.Tx = (*Tx)(nil)

// Allocate takes name for the object, which may hold it already.
func (t *Tx) Allocate(class, name string) error {
	h, err := t.look(class, name)
	if err != nil {
		return err
	}
	if h.owner != "" && h.owner != t.owner {
		t.count(Outcome{Class: class, Value: name, Asked: true, Came: Another})
		return resource.ErrAllocated
	}
	t.set(class, name, h, t.owner)
	return nil
}

// AllocateAny takes the first free one of the candidates.
func (t *Tx) AllocateAny(class string, candidates func(yield func(name string) bool)) (string, error) {
	var taken, last string
	var failed error
	candidates(func(name string) bool {
		last = name
		h, err := t.look(class, name)
		switch {
		case err != nil:
			failed = err
			return false
		case h.owner != "":
			return true
		}
		t.set(class, name, h, t.owner)
		if t.a.o.Count != nil {
			if t.drawn == nil {
				t.drawn = map[string]bool{}
			}
			t.drawn[t.a.key(class, name)] = true
		}
		taken = name
		return false
	})
	switch {
	case failed != nil:
		return "", failed
	case taken == "":
		t.count(Outcome{Class: class, Value: last, Came: Nothing})
		return "", resource.ErrExhausted
	}
	return taken, nil
}

// Outside tells that a value was asked for that there is none of.
func (t *Tx) Outside(class, name string) {
	t.count(Outcome{Class: class, Value: name, Asked: true, Came: Outside})
}

// Release gives name up, if the object holds it.
func (t *Tx) Release(class, name string) {
	if h, err := t.look(class, name); err == nil && h.owner == t.owner {
		t.set(class, name, h, "")
	}
}

// Keys are the keys of the allocations that the transaction is about.
func (t *Tx) Keys() []string { return t.order }

// Offered is what there is to be had of a class.
func (t *Tx) Offered(class string) (values []string, ok bool) { return t.a.Offered(class) }

// Setting is the value of a flag of the server.
func (t *Tx) Setting(flag string) string { return t.a.o.Settings[flag] }

// look is who holds a value, with this transaction's own changes in view.
func (t *Tx) look(class, name string) (held, error) {
	key := t.a.key(class, name)
	if h, ok := t.want[key]; ok {
		return h, nil
	}
	if d := t.a.takings[class]; d != nil {
		return t.a.see(t.ctx, d, name)
	}
	if err := t.a.load(t.ctx, class); err != nil {
		t.Err = err
		return held{}, err
	}
	return t.a.get(class, name), nil
}

// set gives a value to owner on the ground of what look has seen: the transaction
// demands just that, for it may be another's by now.
func (t *Tx) set(class, name string, seen held, owner string) {
	key := t.a.key(class, name)
	if _, ok := t.was[key]; !ok {
		t.was[key] = seen
		t.order = append(t.order, key)
	}
	t.want[key] = held{owner: owner}
}

// AddTo adds what has changed to the transaction. A nil Tx has no allocations.
func (t *Tx) AddTo(txn *store.Txn) error {
	if t == nil {
		return nil
	}
	for _, key := range t.order {
		was, want := t.was[key], t.want[key]
		if was.owner == want.owner {
			continue
		}
		txn.Conds = append(txn.Conds, store.Cond{Key: key, Rev: was.rev})
		op := store.Op{Key: key}
		switch d := t.a.takingOf(key); {
		case want.owner == "":
		case d != nil:
			value, err := t.a.taking(d, key, t.holder)
			if err != nil {
				return err
			}
			op.Value = value
		default:
			op.Value = []byte(want.owner)
		}
		txn.Ops = append(txn.Ops, op)
	}
	return nil
}

// Committed remembers the allocations after the transaction at rev.
func (t *Tx) Committed(rev int64) {
	if t == nil {
		return
	}
	for _, key := range t.order {
		if want := t.want[key]; want.owner != t.was[key].owner {
			t.a.note(key, held{want.owner, rev}, rev)
			if want.owner != "" && t.a.o.Count != nil {
				class, name := t.a.named(key)
				t.count(Outcome{Class: class, Value: name, Asked: !t.drawn[key]})
			}
		}
	}
}

func (t *Tx) count(o Outcome) {
	o.Object, o.Mending = t.Mends, t.Mends != nil
	t.a.count(o)
}

func (a *Allocator) count(o Outcome) {
	if a.o.Count != nil {
		a.o.Count(o)
	}
}
