package claims

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
)

// claimPrefix is where claimed values live in the store, below it
// CLASS/NAME; the value of the key is the key of the object that holds it.
const claimPrefix = "/registry/kemudi/claims/"

// Claims knows who holds which unique values (cluster IPs, node ports). What it
// remembers may be outdated by other servers: the conditions of the
// transaction decide, and a lost one is read again.
type Claims struct {
	store    store.Store
	settings map[string]string

	mu struct {
		sync.Mutex
		classes map[string]map[string]held // class, name
	}
}

// held is one claimed value.
type held struct {
	owner string // the object's key; empty: free
	rev   int64  // the claim's own revision in the store; 0: free
}

// New returns what is known of the claims in a store: nothing yet.
func New(st store.Store, settings map[string]string) *Claims {
	c := &Claims{store: st, settings: settings}
	c.mu.classes = map[string]map[string]held{}
	return c
}

// load reads a class from the store unless it is known.
func (c *Claims) load(ctx context.Context, class string) error {
	c.mu.Lock()
	known := c.mu.classes[class] != nil
	c.mu.Unlock()
	if known {
		return nil
	}
	prefix := claimPrefix + class + "/"
	page, err := c.store.List(ctx, prefix, store.ListOptions{})
	if err != nil {
		return fmt.Errorf("list claims of %s: %w", class, err)
	}
	names := make(map[string]held, len(page.KVs))
	for _, kv := range page.KVs {
		names[strings.TrimPrefix(kv.Key, prefix)] = held{string(kv.Value), kv.Rev}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.classes[class] == nil {
		c.mu.classes[class] = names
	}
	return nil
}

func (c *Claims) get(class, name string) held {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.classes[class][name]
}

// note remembers the state of the claim with the key.
func (c *Claims) note(key string, h held) {
	class, name, ok := strings.Cut(strings.TrimPrefix(key, claimPrefix), "/")
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.classes[class] == nil {
		return
	}
	if h.owner == "" {
		delete(c.mu.classes[class], name)
		return
	}
	c.mu.classes[class][name] = h
}

// Lost takes in the true state of claims that a transaction met otherwise.
func (c *Claims) Lost(conds []store.Cond, now []store.KV) {
	for i := range conds {
		if strings.HasPrefix(conds[i].Key, claimPrefix) {
			c.note(conds[i].Key, held{string(now[i].Value), now[i].Rev})
		}
	}
}

// Claim is a claimed value as it stands in the store.
type Claim struct {
	Key   string // the claim's own
	Owner string // the key of the object that holds it
	Rev   int64  // the claim's own revision
}

// All reads the claims of all classes from the store.
func (c *Claims) All(ctx context.Context) (all []Claim, err error) {
	page, err := c.store.List(ctx, claimPrefix, store.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
	}
	for _, kv := range page.KVs {
		all = append(all, Claim{kv.Key, string(kv.Value), kv.Rev})
	}
	return all, nil
}

// Freed notes that a claim is no more.
func (c *Claims) Freed(claim Claim) { c.note(claim.Key, held{}) }

// Begin starts the claims of one write of the object with the key.
func (c *Claims) Begin(ctx context.Context, owner string) *Tx {
	return &Tx{c: c, ctx: ctx, owner: owner, want: map[string]held{}, was: map[string]held{}}
}

// Tx collects what a Commit claims and releases.
type Tx struct {
	c     *Claims
	ctx   context.Context // of the one request that this serves
	owner string
	order []string
	want  map[string]held // by key: owner set for a claim, empty for a release
	was   map[string]held
	Err   error // what the store answered, if that went wrong
}

var _ resource.Tx = (*Tx)(nil)

// Claim takes name for the object, which may hold it already.
func (t *Tx) Claim(class, name string) error {
	h, err := t.look(class, name)
	if err != nil {
		return err
	}
	if h.owner != "" && h.owner != t.owner {
		return resource.ErrClaimed
	}
	t.set(class, name, h, t.owner)
	return nil
}

// ClaimAny takes the first free one of the candidates.
func (t *Tx) ClaimAny(class string, candidates func(yield func(name string) bool)) (string, error) {
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

// Keys are the keys of the claims that the transaction is about.
func (t *Tx) Keys() []string { return t.order }

// Setting is the value of a flag of the server.
func (t *Tx) Setting(flag string) string { return t.c.settings[flag] }

// look is who holds a value, with this transaction's own changes in view.
func (t *Tx) look(class, name string) (held, error) {
	key := claimPrefix + class + "/" + name
	if h, ok := t.want[key]; ok {
		return h, nil
	}
	if err := t.c.load(t.ctx, class); err != nil {
		t.Err = err
		return held{}, err
	}
	return t.c.get(class, name), nil
}

// set gives a value to owner on the ground of what look has seen: the transaction
// demands just that, for it may be another's by now.
func (t *Tx) set(class, name string, seen held, owner string) {
	key := claimPrefix + class + "/" + name
	if _, ok := t.was[key]; !ok {
		t.was[key] = seen
		t.order = append(t.order, key)
	}
	t.want[key] = held{owner: owner}
}

// AddTo adds what has changed to the transaction. A nil Tx has no claims.
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

// Committed remembers the claims after the transaction at rev.
func (t *Tx) Committed(rev int64) {
	if t == nil {
		return
	}
	for _, key := range t.order {
		if want := t.want[key]; want.owner != t.was[key].owner {
			t.c.note(key, held{want.owner, rev})
		}
	}
}
