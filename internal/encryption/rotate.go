package encryption

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/seal"
)

// Path is where a server says how its objects lie in the store (GET), and writes some of those of a
// resource anew (POST, with the resource's name after it).
const Path = "/kemudi.io/v1/encryption"

// State is how the objects of a resource lie in the store.
type State struct {
	Resource string `json:"resource"`
	// Writes is what new values begin with, "identity" where they are stored as they are.
	Writes     string         `json:"writes"`
	Objects    int            `json:"objects"`
	Stale      int            `json:"stale"` // that would be stored otherwise today
	Unreadable int            `json:"unreadable"`
	Stored     map[string]int `json:"stored"` // how many begin with what
}

// Step is what was done to some objects of a resource.
type Step struct {
	Resource  string `json:"resource"`
	Looked    int    `json:"looked"`    // at so many
	Rewritten int    `json:"rewritten"` // of which so many were stale
	Changed   int    `json:"changed"`   // were written by somebody else at the same time
	// Failed says of each object that stays as it was why.
	Failed []Failure `json:"failed,omitempty"`
	// Next is where to go on; empty: that was all.
	Next string `json:"next,omitempty"`
	Left int64  `json:"left"` // how many objects follow
}

// Failure is why an object was not written anew.
type Failure struct {
	Key   string `json:"key"`
	Error string `json:"error"`
}

// Rotator writes objects anew. All its fields are required.
type Rotator struct {
	// Store is the store as it lies there: nothing of it is opened.
	Store store.Store
	Rules seal.Rules
	// Defs are the resources at present.
	Defs func() []*resource.Def
}

// plain is how values are called that are stored as they are.
const plain = "identity"

// page is how many values are read at a time, and at most written in one step.
const page = 250

// Status says how all resources lie in the store that are encrypted, or may be.
func (r *Rotator) Status(ctx context.Context) ([]State, error) {
	all := []State{}
	for _, d := range r.encrypted() {
		s := State{Resource: d.String(), Writes: cmp.Or(r.Rules(d.Key("", "")).Writes(), plain), Stored: map[string]int{}}
		for from, more := "", true; more; {
			got, err := r.Store.List(ctx, d.Key("", ""), store.ListOptions{From: from, Limit: page})
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", d, err)
			}
			for i := range got.KVs {
				kv := &got.KVs[i]
				s.Stored[cmp.Or(seal.Prefix(kv.Value), plain)]++
				r.Rules.Open(ctx, kv)
				switch {
				case kv.Err != nil:
					s.Unreadable++
				case kv.Stale:
					s.Stale++
				}
			}
			s.Objects += len(got.KVs)
			if more = got.More > 0; more {
				from = got.KVs[len(got.KVs)-1].Key + "\x00"
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// encrypted are the resources that the configuration names, in the order of their names.
func (r *Rotator) encrypted() (list []*resource.Def) {
	for _, d := range r.Defs() {
		if d.Stored() && r.Rules(d.Key("", "")) != nil {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b *resource.Def) int { return cmp.Compare(a.String(), b.String()) })
	return list
}

// ErrNotEncrypted is that of a resource that the configuration does not name.
type ErrNotEncrypted struct{ Resource string }

func (e *ErrNotEncrypted) Error() string {
	return fmt.Sprintf("the encryption configuration of this server names no stored resource %q", e.Resource)
}

// ErrBadPlace is that of a place to go on at that no step has named.
type ErrBadPlace struct{ error }

// Step writes anew what is stale of the next objects of a resource, from the place on that the step before has
// named; empty: from the first one. Who is cut off begins again: what was written is not stale any more (E7).
func (r *Rotator) Step(ctx context.Context, name, from string) (*Step, error) {
	key, err := base64.RawURLEncoding.DecodeString(from)
	if err != nil {
		return nil, &ErrBadPlace{err}
	}
	i := slices.IndexFunc(r.encrypted(), func(d *resource.Def) bool { return d.String() == name })
	if i < 0 {
		return nil, &ErrNotEncrypted{name}
	}
	d := r.encrypted()[i]
	got, err := r.Store.List(ctx, d.Key("", ""), store.ListOptions{From: string(key), Limit: page})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d, err)
	}
	s := &Step{Resource: name, Looked: len(got.KVs), Left: got.More}
	if got.More > 0 {
		s.Next = base64.RawURLEncoding.EncodeToString([]byte(got.KVs[len(got.KVs)-1].Key + "\x00"))
	}
	var mu sync.Mutex
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(writers, len(got.KVs)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(got.KVs)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				did, err := r.rewrite(ctx, &got.KVs[i])
				mu.Lock()
				switch {
				case err != nil:
					s.Failed = append(s.Failed, Failure{got.KVs[i].Key, err.Error()})
				case did == rewritten:
					s.Rewritten++
				case did == changed:
					s.Changed++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.SortFunc(s.Failed, func(a, b Failure) int { return cmp.Compare(a.Key, b.Key) })
	return s, context.Cause(ctx)
}

// writers is how many values are written at a time: they wait for the disk together.
const writers = 8

// What became of a value.
type outcome int

const (
	asItWas outcome = iota
	rewritten
	changed
)

// rewrite writes a value anew that is stale, if it is still the one that was read (E7). How long the key lives is kept.
func (r *Rotator) rewrite(ctx context.Context, kv *store.KV) (outcome, error) {
	r.Rules.Open(ctx, kv)
	if kv.Err != nil || !kv.Stale {
		return asItWas, kv.Err
	}
	value, err := r.Rules(kv.Key).Seal(kv.Value, kv.Key)
	if err != nil {
		return asItWas, err
	}
	res, err := r.Store.Txn(ctx, store.Txn{
		Conds: []store.Cond{{Key: kv.Key, Rev: kv.Rev}},
		Ops:   []store.Op{{Key: kv.Key, Value: value, Keep: true}},
	})
	switch {
	case err != nil:
		return asItWas, err
	case !res.OK:
		return changed, nil
	}
	return rewritten, nil
}
