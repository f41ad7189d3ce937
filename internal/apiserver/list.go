package apiserver

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/store"
)

// listQuery is what a list asks for.
type listQuery struct {
	sel   *selection
	rev   string // resourceVersion
	match metav1.ResourceVersionMatch
	limit int64
	token string // continue
}

// page is what a list answers.
type page struct {
	items []*cache.Item
	meta  metav1.ListMeta
	part  bool // of a list that is asked for in parts
}

// list reads the collection that the call is about.
func (r *reader) list(ctx context.Context, c *call.Call) (*page, error) {
	sel, err := selectionOf(c)
	if err != nil {
		return nil, err
	}
	o := c.List
	return r.query(ctx, c, &listQuery{sel: sel, rev: o.ResourceVersion, match: o.ResourceVersionMatch, limit: o.Limit, token: o.Continue})
}

// query reads a collection: from a snapshot of the cache, or, where a revision is
// asked for that the cache has forgotten, from the store.
func (r *reader) query(ctx context.Context, c *call.Call, q *listQuery) (*page, error) {
	if q.token != "" {
		return r.listOn(ctx, c, q)
	}
	rev, err := parseRevision(q.rev)
	switch {
	case err != nil:
		return nil, err
	case q.exact(c, rev):
		return r.listPast(ctx, c, q, request.Position{Rev: rev})
	}
	if err := r.freshEnough(ctx, c, q.rev); err != nil {
		return nil, err
	}
	if q.sel.index != "" {
		if p := r.listIndexed(c, q); q.limit == 0 || int64(len(p.items)) <= q.limit {
			return p, nil
		}
	}
	snap := c.Resource.Cache.Snapshot()
	return r.listSnapshot(c, q, snap, request.Position{Rev: snap.Rev}), nil
}

// exact reports whether the state at the revision itself is asked for. In parts, a
// list of a revision has always meant that, long before resourceVersionMatch; but
// not of a single object.
func (q *listQuery) exact(c *call.Call, rev int64) bool {
	return q.match == metav1.ResourceVersionMatchExact || q.match == "" && q.limit > 0 && rev > 0 && !q.sel.single(c)
}

// single reports whether the selection names the one object that it can find.
func (s *selection) single(c *call.Call) bool {
	return s.name != "" && (s.namespace != "" || !c.Resource.Def.Namespaced)
}

// listIndexed reads the objects that an index narrows the search to.
func (r *reader) listIndexed(c *call.Call, q *listQuery) *page {
	rev := c.Resource.Cache.Rev()
	p := &page{meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(rev, 10)}}
	for _, it := range c.Resource.Cache.ByIndex(q.sel.index, q.sel.value) {
		if (q.sel.namespace == "" || it.Namespace() == q.sel.namespace) && q.sel.matches(it.Object) {
			p.items = append(p.items, it)
		}
	}
	slices.SortFunc(p.items, func(a, b *cache.Item) int { return strings.Compare(a.Key, b.Key) })
	return p
}

// listSnapshot reads one page from a snapshot, beginning after at.Key.
func (r *reader) listSnapshot(c *call.Call, q *listQuery, snap *cache.Snapshot, at request.Position) *page {
	p := &page{meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(at.Rev, 10)}, part: at.Key != ""}
	if q.sel.single(c) && at.Key == "" {
		if it := snap.Get(cache.Key(q.sel.namespace, q.sel.name)); q.sel.has(it) {
			p.items = []*cache.Item{it}
		}
		return p
	}
	if q.sel.everything() && q.sel.namespace == "" && q.limit == 0 {
		p.items = make([]*cache.Item, 0, snap.Len())
	}
	from, remaining := "", int64(0)
	if at.Key != "" {
		from = at.Key + "\x00"
	}
	all := q.sel.everything() && q.sel.namespace == "" && from == ""
	more := false
	snap.Scan(q.sel.namespace, from, func(it *cache.Item) bool {
		switch full := q.limit > 0 && int64(len(p.items)) == q.limit; {
		case full && all: // what remains is known without a look
			more, remaining = true, int64(snap.Len())-q.limit
			return false
		case full && q.sel.everything():
			more = true
			remaining++
		case !q.sel.matches(it.Object):
		case full:
			more = true
			return false
		default:
			p.items = append(p.items, it)
		}
		return true
	})
	if more {
		p.goesOn(at.Rev, remaining, q)
	}
	return p
}

// goesOn notes in the page that more follows.
func (p *page) goesOn(rev, remaining int64, q *listQuery) {
	p.part = true
	p.meta.Continue = request.EncodeToken(request.Position{Rev: rev, Key: p.items[len(p.items)-1].Key})
	if q.sel.everything() {
		p.meta.RemainingItemCount = &remaining
	}
}

// listOn reads the page that a continue token stands for.
func (r *reader) listOn(ctx context.Context, c *call.Call, q *listQuery) (*page, error) {
	at, err := request.DecodeToken(q.token)
	if err != nil {
		return nil, refusal.BadRequest("invalid continue token: %v", err)
	}
	if q.rev != "" && q.rev != "0" {
		return nil, refusal.BadRequest("specifying resource version is not allowed when using continue")
	}
	if at.Rev == request.AnyRev {
		if err := r.caughtUp(ctx, c.Resource.Cache); err != nil {
			return nil, err
		}
		snap := c.Resource.Cache.Snapshot()
		at.Rev = snap.Rev
		return r.listSnapshot(c, q, snap, at), nil
	}
	p, err := r.listPast(ctx, c, q, at)
	if apierrors.IsResourceExpired(err) {
		return nil, expiredToken(at)
	}
	return p, err
}

// expiredToken is the answer to a token whose revision is compacted away. It
// has a new token, which goes on from the same key in the newest state.
func expiredToken(at request.Position) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. " +
		"Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between " +
		"the time the first chunk was returned and now may show up in the list.")
	err.ErrStatus.ListMeta.Continue = request.EncodeToken(request.Position{Rev: request.AnyRev, Key: at.Key})
	return err
}

// listPast reads one page as it was at a revision: from the cache, whose log
// reaches back for a while, or else from the store. Of a revision that the store
// has forgotten nothing is shown: how old a list may be does not depend on how busy
// the resource was.
func (r *reader) listPast(ctx context.Context, c *call.Call, q *listQuery, at request.Position) (*page, error) {
	snap := c.Resource.Cache.SnapshotAt(at.Rev)
	if snap == nil {
		return r.listAt(ctx, c, q, at)
	}
	prefix := c.Resource.Def.Key("", "")
	// Nothing is there: a name has no such byte.
	if _, err := r.store.List(ctx, prefix, store.ListOptions{From: prefix + "\xff", Rev: at.Rev, Limit: 1}); err != nil {
		return nil, refusedAt(c, at.Rev, err)
	}
	return r.listSnapshot(c, q, snap, at), nil
}

// refusedAt is the answer to a read of a revision that the store refused.
func refusedAt(c *call.Call, rev int64, err error) error {
	switch {
	case errors.Is(err, store.ErrCompacted):
		return apierrors.NewResourceExpired("The provided resource version is too old.")
	case errors.Is(err, store.ErrFuture):
		return tooLarge(rev, c.Resource.Cache.Rev())
	}
	return err
}

// chunk is how many keys are read from the store at a time.
const chunk = 500

// listAt reads one page as it was at a revision, from the store.
func (r *reader) listAt(ctx context.Context, c *call.Call, q *listQuery, at request.Position) (*page, error) {
	prefix := c.Resource.Def.Key(q.sel.namespace, "")
	from := ""
	if at.Key != "" {
		from = c.Resource.Def.Key("", at.Key) + "\x00"
	}
	p := &page{meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(at.Rev, 10)}, part: at.Key != ""}
	for {
		// One more than needed tells whether more follow.
		o := store.ListOptions{From: from, Rev: at.Rev, Limit: chunk}
		if q.limit > 0 && q.sel.everything() {
			o.Limit = int(q.limit)
		}
		got, err := r.store.List(ctx, prefix, o)
		if err != nil {
			return nil, refusedAt(c, at.Rev, err)
		}
		for i, kv := range got.KVs {
			it, err := r.itemAt(c, kv)
			if err != nil {
				return nil, err
			}
			if q.sel.matches(it.Object) {
				p.items = append(p.items, it)
			}
			if q.limit > 0 && int64(len(p.items)) == q.limit {
				if left := got.More + int64(len(got.KVs)-1-i); left > 0 {
					p.goesOn(at.Rev, left, q)
				}
				return p, nil
			}
		}
		if got.More == 0 || len(got.KVs) == 0 {
			return p, nil
		}
		from = got.KVs[len(got.KVs)-1].Key + "\x00"
	}
}

// itemAt is the cached item of a stored value if it has not changed since, so
// that its encodings are used; otherwise it is decoded.
func (r *reader) itemAt(c *call.Call, kv store.KV) (*cache.Item, error) {
	key := strings.TrimPrefix(kv.Key, c.Resource.Def.Key("", ""))
	if it := c.Resource.Cache.Get(key); it != nil && it.Rev == kv.Rev {
		return it, nil
	}
	return r.decodeItem(c.Resource.Def, kv)
}
