package apiserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/answer"
	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/h2"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// watchQuery is what a watch asks for.
type watchQuery struct {
	sel         *read.Selection
	rev         string
	bookmarks   bool
	sendInitial *bool
	timeout     time.Duration
}

// Times of a watch: how often a bookmark is due, and how long a watch lasts
// that does not say (the random part spreads the reconnects).
const (
	bookmarkEvery = time.Minute
	minWatch      = 30 * time.Minute
)

// sink takes the events of one watch, as its client wants them.
type sink interface {
	// event adds an event, which is one of many that begin a watch or not; flush sends
	// all added since.
	event(e *cache.Event, many bool) error
	bookmark(rev int64, initialEnd bool) error
	flush() error
}

// watcher is one client following a resource.
type watcher struct {
	c      *call.Call
	pace   *h2.Pace
	q      *watchQuery
	sink   sink
	source *laneSource // nil: the watch sends for itself
	cursor *cache.Cursor
	// announce: the end of the initial events is still to be told.
	announce bool
	told     int64     // the last revision the client knows to be complete
	sent     time.Time // when events were sent last
}

// startWatch resolves where a watch begins.
func (s *Server) startWatch(ctx context.Context, c *call.Call, q *watchQuery) (*watcher, error) {
	o := cache.CursorOptions{Namespace: q.sel.Namespace}
	if q.sel.Index != "" {
		o.Index, o.Value = q.sel.Index, q.sel.Value
	}
	w := &watcher{c: c, q: q, pace: s.pace}
	initial := q.rev == "" || q.rev == "0"
	if q.sendInitial != nil {
		initial = *q.sendInitial
		w.announce = initial && q.bookmarks
	}
	rev, err := read.ParseRevision(q.rev)
	if err != nil {
		return nil, err
	}
	switch {
	case initial || rev == 0: // the present state must be fresh enough
		if err := s.reads.FreshEnough(ctx, c, q.rev); err != nil {
			return nil, err
		}
		o.FromNow, o.After = initial, c.Resource.Cache.Rev() // without initial events: from now on
	default: // changes after a revision, which may be to come
		if err := s.reads.Synced(ctx, c.Resource.Cache); err != nil {
			return nil, err
		}
		o.After = rev
	}
	cursor, err := c.Resource.Cache.Cursor(o)
	if errors.Is(err, cache.ErrTooOld) {
		return nil, tooOld(o.After)
	}
	if err != nil {
		return nil, err
	}
	w.cursor, w.told = cursor, o.After
	return w, nil
}

func tooOld(rev int64) error {
	return apierrors.NewResourceExpired("too old resource version: " + strconv.FormatInt(rev, 10))
}

// run feeds the sink until the client goes, its time is up, or the cursor
// falls behind; the latter is returned as the error to tell the client.
func (w *watcher) run(ctx context.Context) error {
	defer w.cursor.Close()
	timeout := w.q.timeout
	if timeout <= 0 {
		timeout = minWatch + rand.N(minWatch)
	}
	end := time.NewTimer(timeout)
	defer end.Stop()
	var due <-chan time.Time
	if w.q.bookmarks {
		ticker := time.NewTicker(bookmarkEvery)
		defer ticker.Stop()
		due = ticker.C
	}
	for first := true; ; first = false {
		if err := w.deliver(); err != nil {
			return err
		}
		if first {
			if err := w.sink.flush(); err != nil { // an empty watch has begun, too
				return err
			}
			if w.source != nil {
				w.source.run(ctx, due, end.C)
				return nil
			}
		}
		select {
		case <-w.cursor.Ready():
			if w.pace.Rest(ctx, w.sent) != nil {
				return nil
			}
		case <-due:
			if rev := w.cursor.Rev(); rev > 0 {
				if err := w.bookmark(rev, false); err != nil {
					return err
				}
			}
		case <-end.C:
			if rev := w.cursor.Rev(); w.q.bookmarks && rev > 0 {
				return w.bookmark(rev, false) // the next watch can go on from here
			}
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// deliver sends what has happened since the last time.
func (w *watcher) deliver() error {
	events, err := w.cursor.Next()
	if errors.Is(err, cache.ErrTooOld) {
		return tooOld(w.told)
	}
	if err != nil {
		return err
	}
	sent, many := false, w.sent.IsZero() && len(events) > answer.Few
	for i := range events {
		ok, err := w.event(events[i], many)
		if err != nil {
			return err
		}
		sent = sent || ok
	}
	w.told = w.cursor.Rev()
	if w.announce {
		w.announce = false
		return w.bookmark(w.told, true)
	}
	if !sent {
		return nil
	}
	w.sent = time.Now()
	return w.sink.flush()
}

// event adds an event; ok is false if the client sees nothing of it.
func (w *watcher) event(e cache.Event, many bool) (ok bool, err error) {
	if !w.q.sel.Everything() {
		if e, ok = cache.Narrow(e, w.q.sel.Has); !ok {
			return false, nil
		}
	}
	w.showAsItWas(&e)
	return true, w.sink.event(&e, many)
}

// showAsItWas: who is told that an object has left the selection sees it as it
// was within, at the revision of the change.
func (w *watcher) showAsItWas(e *cache.Event) {
	if e.Type == cache.Deleted && e.Prev != nil && !w.q.sel.Matches(e.Item.Object) {
		e.Item = read.NewItem(cache.AtRevision(e.Prev.Object, e.Rev()), e.Rev())
	}
}

func (w *watcher) bookmark(rev int64, initialEnd bool) error {
	if err := w.sink.bookmark(rev, initialEnd); err != nil {
		return err
	}
	return w.sink.flush()
}

// bookmarkObject is an object of the version that says nothing but a revision.
func bookmarkObject(v *served.Resource, rev int64, initialEnd bool) resource.Object {
	obj := v.New()
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	if initialEnd {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return obj
}
