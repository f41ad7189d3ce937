package read

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/store"
)

// query is what a list asks for.
type query struct {
	sel   *Selection
	rev   string // resourceVersion
	match metav1.ResourceVersionMatch
	limit int64
	token string // continue
}

// Page is what a list answers.
type Page struct {
	Items []*cache.Item
	Meta  metav1.ListMeta
	Part  bool // of a list that is asked for in parts
}

// List reads the collection that the call is about.
func (r *Reader) List(ctx context.Context, c *call.Call) (*Page, error) {
	sel, err := SelectionOf(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.Resource.Def.Computed {
		return r.computeAll(ctx, c, sel)
	}
	o := c.List
	ctx, span := c.Step(ctx, "cacher.GetList")
	defer span.End()
	p, err := r.collect(ctx, c, &query{sel: sel, rev: o.ResourceVersion, match: o.ResourceVersionMatch, limit: o.Limit, token: o.Continue})
	if err == nil {
		sel.tellShard(p)
		if span != nil {
			span.Event("Filtered items", tracing.Number("count", len(p.Items)))
		}
	}
	return p, err
}

// collect reads a collection: from a snapshot of the cache, or, where a revision is
// asked for that the cache has forgotten, from the store.
func (r *Reader) collect(ctx context.Context, c *call.Call, q *query) (*Page, error) {
	if q.token != "" {
		if err := r.Readable(c, q.sel); err != nil {
			return nil, err
		}
		return r.listOn(ctx, c, q)
	}
	rev, err := ParseRevision(q.rev)
	switch {
	case err != nil:
		return nil, refusal.BadRequest("invalid resource version: %v", err)
	case q.exact(c, rev):
		return r.listPast(ctx, c, q, request.Position{Rev: rev})
	}
	if err := r.FreshEnough(ctx, c, q.rev); err != nil {
		return nil, err
	}
	if err := r.Readable(c, q.sel); err != nil {
		return nil, err
	}
	if q.sel.index != "" {
		if p := r.listIndexed(c, q); q.limit == 0 || int64(len(p.Items)) <= q.limit {
			return p, nil
		}
	}
	snap := c.Resource.Cache.Snapshot()
	return r.listSnapshot(c, q, snap, request.Position{Rev: snap.Rev}), nil
}

// exact reports whether the state at the revision itself is asked for. In parts, a
// list of a revision has always meant that, long before resourceVersionMatch; but
// not of a single object.
func (q *query) exact(c *call.Call, rev int64) bool {
	return q.match == metav1.ResourceVersionMatchExact || q.match == "" && q.limit > 0 && rev > 0 && !q.sel.single(c)
}

// single reports whether the selection names the one object that it can find.
func (s *Selection) single(c *call.Call) bool {
	return s.name != "" && (s.namespace != "" || !c.Resource.Def.Namespaced)
}

// listIndexed reads the objects that an index narrows the search to.
func (r *Reader) listIndexed(c *call.Call, q *query) *Page {
	rev := c.Resource.Cache.Rev()
	p := &Page{Meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(rev, 10)}}
	found := c.Resource.Cache.ByIndex(q.sel.index, q.sel.value)
	for _, it := range found {
		if (q.sel.namespace == "" || it.Namespace() == q.sel.namespace) && q.sel.Has(it) {
			p.Items = append(p.Items, it)
		}
	}
	slices.SortFunc(p.Items, func(a, b *cache.Item) int { return strings.Compare(a.Key, b.Key) })
	r.lists.add(Listed{c.Resource.Def.Group, c.Resource.Def.Plural, true, q.sel.index}, ListCounts{Fetched: int64(len(found)), Returned: int64(len(p.Items))})
	return p
}

// listSnapshot reads one page from a snapshot, beginning after at.Key.
func (r *Reader) listSnapshot(c *call.Call, q *query, snap *cache.Snapshot, at request.Position) *Page {
	p := &Page{Meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(at.Rev, 10)}, Part: at.Key != ""}
	fetched := int64(1)
	defer func() {
		r.lists.add(Listed{c.Resource.Def.Group, c.Resource.Def.Plural, true, ""}, ListCounts{Fetched: fetched, Returned: int64(len(p.Items))})
	}()
	if q.sel.single(c) && at.Key == "" {
		if it := snap.Get(cache.Key(q.sel.namespace, q.sel.name)); q.sel.Has(it) {
			p.Items = []*cache.Item{it}
		}
		return p
	}
	fetched = 0
	if q.sel.Everything() && q.sel.namespace == "" && q.limit == 0 {
		p.Items = make([]*cache.Item, 0, snap.Len())
	}
	from, remaining := "", int64(0)
	left, known := snap.Len(), true // from there on, of all namespaces
	if at.Key != "" {
		from = at.Key + "\x00"
		left, known = snap.After(at.Key)
	}
	all := q.sel.Everything() && q.sel.namespace == ""
	more := false
	snap.Scan(q.sel.namespace, from, func(it *cache.Item) bool {
		fetched++
		switch full := q.limit > 0 && int64(len(p.Items)) == q.limit; {
		case full && all && known: // what remains is known without a look
			more, remaining = true, int64(left)-q.limit
			return false
		case full && q.sel.Everything():
			more = true
			remaining++
		case !q.sel.Has(it):
		case full:
			more = true
			return false
		default:
			p.Items = append(p.Items, it)
		}
		return true
	})
	if more {
		p.goesOn(at.Rev, remaining, q)
		if all {
			snap.NoteAfter(p.Items[len(p.Items)-1].Key, int(remaining))
		}
	}
	return p
}

// goesOn notes in the page that more follows.
func (p *Page) goesOn(rev, remaining int64, q *query) {
	p.Part = true
	p.Meta.Continue = request.EncodeToken(request.Position{Rev: rev, Key: p.Items[len(p.Items)-1].Key})
	if q.sel.Everything() {
		p.Meta.RemainingItemCount = &remaining
	}
}

// listOn reads the page that a continue token stands for.
func (r *Reader) listOn(ctx context.Context, c *call.Call, q *query) (*Page, error) {
	at, err := request.DecodeToken(q.token)
	if err != nil {
		return nil, refusal.BadRequest("invalid continue token: %v", err)
	}
	if q.rev != "" && q.rev != "0" {
		return nil, refusal.BadRequest("specifying resource version is not allowed when using continue")
	}
	if at.Rev == request.AnyRev {
		if err := r.CaughtUp(ctx, c.Resource.Cache); err != nil {
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
func (r *Reader) listPast(ctx context.Context, c *call.Call, q *query, at request.Position) (*Page, error) {
	snap := c.Resource.Cache.SnapshotAt(at.Rev)
	if snap == nil {
		return r.listAt(ctx, c, q, at)
	}
	prefix := c.Resource.Def.Key("", "")
	// Nothing is there: a name has no such byte.
	if _, err := r.Store.List(ctx, prefix, store.ListOptions{From: prefix + "\xff", Rev: at.Rev, Limit: 1}); err != nil {
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
func (r *Reader) listAt(ctx context.Context, c *call.Call, q *query, at request.Position) (*Page, error) {
	prefix := c.Resource.Def.Key(q.sel.namespace, "")
	from := ""
	if at.Key != "" {
		from = c.Resource.Def.Key("", at.Key) + "\x00"
	}
	p := &Page{Meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(at.Rev, 10)}, Part: at.Key != ""}
	read := ListCounts{}
	defer func() {
		read.Returned = int64(len(p.Items))
		r.lists.add(Listed{c.Resource.Def.Group, c.Resource.Def.Plural, false, ""}, read)
	}()
	for {
		// One more than needed tells whether more follow.
		o := store.ListOptions{From: from, Rev: at.Rev, Limit: chunk}
		if q.limit > 0 && q.sel.Everything() {
			o.Limit = int(q.limit)
		}
		began := time.Now()
		got, err := r.Store.List(ctx, prefix, o)
		r.Tell("list", c, began, err)
		if err != nil {
			return nil, refusedAt(c, at.Rev, err)
		}
		read.Fetched += int64(len(got.KVs))
		for i, kv := range got.KVs {
			read.Evaluated++
			it, err := r.itemAt(c, kv)
			if err != nil {
				return nil, err
			}
			if q.sel.Has(it) {
				p.Items = append(p.Items, it)
			}
			if q.limit > 0 && int64(len(p.Items)) == q.limit {
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
func (r *Reader) itemAt(c *call.Call, kv store.KV) (*cache.Item, error) {
	key := strings.TrimPrefix(kv.Key, c.Resource.Def.Key("", ""))
	if it := c.Resource.Cache.Get(key); it != nil && it.Rev == kv.Rev {
		return it, nil
	}
	return r.decodeItem(c.Resource.Def, kv)
}
