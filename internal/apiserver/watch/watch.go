package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/apiserver/answer"
	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/h2"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/cache"
)

// bookmarkEvery is how often a bookmark is due.
const bookmarkEvery = time.Minute

// Watch is one client following a resource.
type Watch struct {
	// Least is how long it lasts at least if its client does not say so; negative: as long as the client likes.
	// It is set before Serve.
	Least time.Duration
	// Announced is called when the end of the initial events has been told, if that was asked for; nil: nobody is told.
	// It is set before Serve.
	Announced func()

	c      *call.Call
	sel    *read.Selection
	cursor *cache.Cursor
	pace   *h2.Pace
	events *answer.Events
	lane   *lane // nil: the watch sends for itself
	// announce: the end of the initial events is still to be told.
	announce bool
	told     int64     // the last revision the client knows to be complete
	sent     time.Time // when events were sent last
}

// Start resolves where the watch that c asks for begins. What it returns must be served.
func Start(ctx context.Context, reads *read.Reader, c *call.Call) (*Watch, error) {
	sel, err := read.SelectionOf(ctx, c)
	if err != nil {
		return nil, err
	}
	w := &Watch{c: c, sel: sel}
	asked := c.List.ResourceVersion
	initial := asked == "" || asked == "0"
	if send := c.List.SendInitialEvents; send != nil {
		initial = *send
	}
	w.announce = initial && c.List.AllowWatchBookmarks
	rev, err := read.ParseRevision(asked)
	if err != nil {
		return nil, err
	}
	from := sel.Cursor()
	switch {
	case initial || rev == 0: // the present state must be fresh enough
		if err := reads.FreshEnough(ctx, c, asked); err != nil {
			return nil, err
		}
		if initial {
			if err := reads.Readable(c, sel); err != nil {
				return nil, err
			}
		}
		from.FromNow, from.After = initial, c.Resource.Cache.Rev() // without initial events: from now on
	default: // changes after a revision, which may be to come
		if err := reads.Synced(ctx, c.Resource.Cache); err != nil {
			return nil, err
		}
		from.After = rev
	}
	w.cursor, err = c.Resource.Cache.Cursor(from)
	if errors.Is(err, cache.ErrTooOld) && reads.Stored != nil && reads.Stored.Recollect(ctx, c.Resource.Def, from.After) == nil {
		w.cursor, err = c.Resource.Cache.Cursor(from)
	}
	if errors.Is(err, cache.ErrTooOld) {
		return nil, w.tooOld(from.After)
	}
	if err != nil {
		return nil, err
	}
	w.told = from.After
	return w, nil
}

// Serve sends the events until the client goes or the time of the watch is up, at the
// given pace. The client may take limit to receive what is sent at a time.
//
// A watch that its connection sends goes on when Serve returns, until the channel is closed.
// Then it must be closed; without a channel it is.
func (w *Watch) Serve(p *answer.Reply, pace *h2.Pace, limit time.Duration) (goesOn <-chan struct{}) {
	ctx := p.R.Context()
	w.pace, w.events = pace, p.Events(limit)
	defer func() {
		if goesOn == nil {
			w.Close()
		}
	}()
	if d := w.c.Resource.Def.Dynamic; d != nil && d.Remote {
		// what converts may take its time, which a connection's other streams cannot wait for
	} else if l := h2.Open(ctx, p.W); l != nil {
		w.lane = &lane{w: w, lane: l, limit: limit}
	}
	err := w.begin(ctx)
	switch {
	case err == nil && w.lane != nil:
		w.lane.run(ctx, w.lasts())
		return w.lane.lane.Done()
	case err == nil:
		err = w.run(ctx)
	}
	if err != nil {
		w.events.Fail(err)
	}
	return nil
}

// Close ends the watch.
func (w *Watch) Close() {
	w.cursor.Close()
	if w.lane != nil {
		w.lane.close()
	}
}

// begin sends the events that begin the watch. One without any has begun, too.
func (w *Watch) begin(ctx context.Context) error {
	if err := w.deliver(ctx); err != nil {
		return err
	}
	return w.events.Flush()
}

// forever is longer than any process lives.
const forever = 1 << 62

// lasts is how long the watch lasts. The random part spreads the reconnects of those that do not say.
func (w *Watch) lasts() time.Duration {
	if seconds := w.c.List.TimeoutSeconds; seconds != nil && *seconds != 0 { // below that it is over at once
		return time.Duration(*seconds) * time.Second
	}
	if w.Least <= 0 {
		return forever
	}
	return w.Least + rand.N(w.Least)
}

// tooOld is what a client hears that is told no more of what happened after a revision: some read
// in it from where on they would be.
func (w *Watch) tooOld(rev int64) error {
	begin, _ := w.c.Resource.Cache.LogBegin()
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", rev, begin))
}

// run sends events until the client goes, its time is up, the resource is served no longer as it
// was, or the cursor falls behind; the last is returned as the error to tell the client.
func (w *Watch) run(ctx context.Context) error {
	end := time.NewTimer(w.lasts())
	defer end.Stop()
	over := make(chan struct{})
	if e := w.c.Resource.End; e != nil {
		defer e.Await(func() { close(over) })()
	}
	var due <-chan time.Time
	if w.c.List.AllowWatchBookmarks {
		ticker := time.NewTicker(bookmarkEvery)
		defer ticker.Stop()
		due = ticker.C
	}
	for {
		select {
		case <-w.cursor.Ready():
			if w.pace.Rest(ctx, w.sent) != nil {
				return nil
			}
		case <-due:
			if rev := w.cursor.Rev(); rev > 0 {
				if err := w.bookmark(rev); err != nil {
					return err
				}
			}
		case <-end.C:
			return w.last()
		case <-over:
		case <-ctx.Done():
			return nil
		}
		if w.over() {
			return w.last()
		}
		if err := w.deliver(ctx); err != nil {
			return err
		}
	}
}

// over reports that the resource is served no longer as it was when the watch began.
func (w *Watch) over() bool { return w.c.Resource.End != nil && w.c.Resource.End.HasCome() }

// last sends the bookmark from which the next watch can go on, to who wants it.
func (w *Watch) last() error {
	if rev := w.cursor.Rev(); w.c.List.AllowWatchBookmarks && rev > 0 {
		return w.bookmark(rev)
	}
	return nil
}

// deliver sends what has happened since the last time.
func (w *Watch) deliver(ctx context.Context) error {
	events, err := w.next(ctx)
	if errors.Is(err, cache.ErrTooOld) {
		return w.tooOld(w.told)
	}
	if err != nil {
		return err
	}
	sent, many := false, w.sent.IsZero() && len(events) > answer.Few
	if many && w.lane != nil && w.lane.lane.Wide() {
		w.lane.begin(events)
		return nil
	}
	for i := range events {
		ok, err := w.event(events[i], many)
		if err != nil {
			return err
		}
		sent = sent || ok
	}
	w.told = w.cursor.Rev()
	if w.announce {
		if err := w.announceEnd(); err != nil {
			return err
		}
		return w.events.Flush()
	}
	if !sent {
		return nil
	}
	w.sent = time.Now()
	return w.events.Flush()
}

// next is what has happened since the last time, with objects as the version of the watch has them.
func (w *Watch) next(ctx context.Context) ([]cache.Event, error) {
	events, err := w.cursor.Next()
	if err != nil || len(events) == 0 || w.c.Resource.Def.Dynamic == nil {
		return events, err
	}
	items := make([]*cache.Item, len(events))
	for i := range events {
		items[i] = events[i].Item
	}
	if items, err = w.c.Resource.View(ctx, items); err != nil {
		return nil, err
	}
	for i := range events {
		events[i].Item = items[i]
	}
	return events, nil
}

// event adds an event; ok is false if the client sees nothing of it.
func (w *Watch) event(e cache.Event, many bool) (ok bool, err error) {
	if !w.sel.Everything() {
		if e, ok = cache.Narrow(e, w.sel.Has); !ok {
			return false, nil
		}
	}
	w.showAsItWas(&e)
	return true, w.events.Add(&e, many)
}

// showAsItWas: who is told that an object has left the selection sees it as it
// was within, at the revision of the change.
func (w *Watch) showAsItWas(e *cache.Event) {
	if e.Type == cache.Deleted && e.Prev != nil && !w.sel.Has(e.Item) {
		e.Item = read.NewItem(cache.AtRevision(e.Prev.Object, e.Rev()), e.Rev())
	}
}

// announceEnd adds the bookmark that ends the initial events.
func (w *Watch) announceEnd() error {
	w.announce = false
	err := w.events.Bookmark(w.told, true)
	if err == nil && w.Announced != nil {
		w.Announced()
	}
	return err
}

func (w *Watch) bookmark(rev int64) error {
	if err := w.events.Bookmark(rev, false); err != nil {
		return err
	}
	return w.events.Flush()
}
