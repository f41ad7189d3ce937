package alloc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
)

// prefixOfAll is where values that are taken live in the store, below it
// CLASS/NAME; the value of the key is the key of the object that holds it. Its last word is
// what this was called when the first stores were written.
const prefixOfAll = "/registry/kemudi/claims/"

// Options configure an Allocator. Store is required.
type Options struct {
	Store    store.Store
	Settings map[string]string // values of the server's flags
	Shared   bool              // other servers allocate in the store as well
}

// Allocator knows who holds which unique values (cluster IPs, node ports). What it
// remembers may be outdated by other servers: the conditions of the
// transaction decide, and a lost one is read again. What would be refused is read anew before.
type Allocator struct {
	o Options

	mu struct {
		sync.Mutex
		classes map[string]map[string]held // class, name
	}
}

// held is who has one value.
type held struct {
	owner string // the object's key; empty: free
	rev   int64  // that of the allocation in the store; 0: free
}

// New returns what is known of the allocations in a store: nothing yet.
func New(o Options) *Allocator {
	a := &Allocator{o: o}
	a.mu.classes = map[string]map[string]held{}
	return a
}

// load reads a class from the store unless it is known.
func (a *Allocator) load(ctx context.Context, class string) error {
	a.mu.Lock()
	known := a.mu.classes[class] != nil
	a.mu.Unlock()
	if known {
		return nil
	}
	names, err := a.list(ctx, class)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.classes[class] == nil {
		a.mu.classes[class] = names
	}
	return nil
}

// reload reads a class from the store, where others may have left some of it. What is
// written meanwhile may be missing: a transaction that relies on that is lost.
func (a *Allocator) reload(ctx context.Context, class string) error {
	names, err := a.list(ctx, class)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.classes[class] = names
	return nil
}

// list reads a class from the store.
func (a *Allocator) list(ctx context.Context, class string) (map[string]held, error) {
	prefix := prefixOfAll + class + "/"
	page, err := a.o.Store.List(ctx, prefix, store.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list allocations of %s: %w", class, err)
	}
	names := make(map[string]held, len(page.KVs))
	for _, kv := range page.KVs {
		names[strings.TrimPrefix(kv.Key, prefix)] = held{string(kv.Value), kv.Rev}
	}
	return names, nil
}

// askAnew is who holds a value, as others may have left it meanwhile.
func (a *Allocator) askAnew(ctx context.Context, class, name string) (held, error) {
	key := prefixOfAll + class + "/" + name
	kv, _, err := a.o.Store.Get(ctx, key)
	if err != nil {
		return held{}, fmt.Errorf("read the allocation of %s %s: %w", class, name, err)
	}
	h := held{string(kv.Value), kv.Rev}
	a.note(key, h)
	return h, nil
}

func (a *Allocator) get(class, name string) held {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.classes[class][name]
}

// note remembers the state of the allocation with the key.
func (a *Allocator) note(key string, h held) {
	class, name, ok := strings.Cut(strings.TrimPrefix(key, prefixOfAll), "/")
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.classes[class] == nil {
		return
	}
	if h.owner == "" {
		delete(a.mu.classes[class], name)
		return
	}
	a.mu.classes[class][name] = h
}

// Lost takes in the true state of allocations that a transaction met otherwise.
func (a *Allocator) Lost(conds []store.Cond, now []store.KV) {
	for i := range conds {
		if strings.HasPrefix(conds[i].Key, prefixOfAll) {
			a.note(conds[i].Key, held{string(now[i].Value), now[i].Rev})
		}
	}
}

// Allocation is a value that is taken, as it stands in the store.
type Allocation struct {
	Key   string // the allocation's own
	Owner string // the key of the object that holds it
	Rev   int64  // the allocation's own revision
}

// All reads the allocations of all classes from the store.
func (a *Allocator) All(ctx context.Context) (all []Allocation, err error) {
	page, err := a.o.Store.List(ctx, prefixOfAll, store.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list allocations: %w", err)
	}
	for _, kv := range page.KVs {
		all = append(all, Allocation{kv.Key, string(kv.Value), kv.Rev})
	}
	return all, nil
}

// Freed notes that an allocation is no more.
func (a *Allocator) Freed(was Allocation) { a.note(was.Key, held{}) }

// Begin starts the allocations of one write of the object with the key.
func (a *Allocator) Begin(ctx context.Context, owner string) *Tx {
	return &Tx{a: a, ctx: ctx, owner: owner, want: map[string]held{}, was: map[string]held{}}
}

// Tx collects what a Commit allocates and releases.
type Tx struct {
	a     *Allocator
	ctx   context.Context // of the one request that this serves
	owner string
	order []string
	want  map[string]held // by key: owner set for an allocation, empty for a release
	was   map[string]held
	Err   error // what the store answered, if that went wrong
}

var _ resource.Tx = (*Tx)(nil)

// Allocate takes name for the object, which may hold it already.
func (t *Tx) Allocate(class, name string) error {
	h, err := t.look(class, name)
	if err != nil {
		return err
	}
	if h.owner != "" && h.owner != t.owner && t.a.o.Shared {
		if h, err = t.a.askAnew(t.ctx, class, name); err != nil {
			t.Err = err
			return err
		}
	}
	if h.owner != "" && h.owner != t.owner {
		return resource.ErrAllocated
	}
	t.set(class, name, h, t.owner)
	return nil
}

// AllocateAny takes the first free one of the candidates.
func (t *Tx) AllocateAny(class string, candidates func(yield func(name string) bool)) (string, error) {
	taken, err := t.takeFirst(class, candidates)
	if errors.Is(err, resource.ErrExhausted) && t.a.o.Shared {
		if err := t.a.reload(t.ctx, class); err != nil {
			t.Err = err
			return "", err
		}
		return t.takeFirst(class, candidates)
	}
	return taken, err
}

func (t *Tx) takeFirst(class string, candidates func(yield func(name string) bool)) (string, error) {
	var taken string
	var failed error
	candidates(func(name string) bool {
		h, err := t.look(class, name)
		switch {
		case err != nil:
			failed = err
			return false
		case h.owner != "":
			return true
		}
		t.set(class, name, h, t.owner)
		taken = name
		return false
	})
	switch {
	case failed != nil:
		return "", failed
	case taken == "":
		return "", resource.ErrExhausted
	}
	return taken, nil
}

// Release gives name up, if the object holds it.
func (t *Tx) Release(class, name string) {
	if h, err := t.look(class, name); err == nil && h.owner == t.owner {
		t.set(class, name, h, "")
	}
}

// Keys are the keys of the allocations that the transaction is about.
func (t *Tx) Keys() []string { return t.order }

// Setting is the value of a flag of the server.
func (t *Tx) Setting(flag string) string { return t.a.o.Settings[flag] }

// look is who holds a value, with this transaction's own changes in view.
func (t *Tx) look(class, name string) (held, error) {
	key := prefixOfAll + class + "/" + name
	if h, ok := t.want[key]; ok {
		return h, nil
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
	key := prefixOfAll + class + "/" + name
	if _, ok := t.was[key]; !ok {
		t.was[key] = seen
		t.order = append(t.order, key)
	}
	t.want[key] = held{owner: owner}
}

// AddTo adds what has changed to the transaction. A nil Tx has no allocations.
func (t *Tx) AddTo(txn *store.Txn) {
	if t == nil {
		return
	}
	for _, key := range t.order {
		was, want := t.was[key], t.want[key]
		if was.owner == want.owner {
			continue
		}
		txn.Conds = append(txn.Conds, store.Cond{Key: key, Rev: was.rev})
		op := store.Op{Key: key}
		if want.owner != "" {
			op.Value = []byte(want.owner)
		}
		txn.Ops = append(txn.Ops, op)
	}
}

// Committed remembers the allocations after the transaction at rev.
func (t *Tx) Committed(rev int64) {
	if t == nil {
		return
	}
	for _, key := range t.order {
		if want := t.want[key]; want.owner != t.was[key].owner {
			t.a.note(key, held{want.owner, rev})
		}
	}
}
