package https

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// feed keeps one cache right: it lists what is there and follows it, resumes
// where it was when the connection breaks, and lists again when the server does
// not know any more what has happened since.
type feed struct {
	t      *Transport
	def    *resource.Def
	place  place
	fields string // field selector
	cache  *cache.Cache
	log    *slog.Logger

	use struct { // guarded by the lock of the transport
		holders  int
		kept     bool // somebody wants it for as long as the transport lives
		released bool
		end      context.CancelCauseFunc // of run
	}

	// Owned by run.
	resume int64 // the server is asked for what happened after this (H3); 0: nothing is known
	last   int64 // the last revision that a change was delivered of
	failed bool  // the last try failed
	filled time.Time
	broke  time.Time     // when a watch did, or ended early; zero: who answered has been verified since
	before *recollection // what was known earlier; nil: nothing, or it does not count any more

	// Guarded by the lock of the memory.
	written time.Time // when the state was written
	size    int       // of what was written
}

// expiredSoon is how soon after a list a revision has no right to be too old.
const expiredSoon = 5 * time.Second

func newFeed(t *Transport, def *resource.Def, scope string) *feed {
	f := &feed{t: t, def: def, cache: cache.New(def, &cache.Progress{})}
	f.log = t.o.Logger.With("resource", def.String(), "scope", scope)
	f.place, f.fields = placeOf(def, scope)
	return f
}

// placeOf is where the objects in a scope are. A namespace goes into the path
// and the rest stays a selector: node agents may read single objects, and those
// are told by their namespace and name alone.
func placeOf(def *resource.Def, scope string) (p place, fields string) {
	p.def = def
	var rest []string
	for part := range strings.SplitSeq(scope, ",") {
		if ns, ok := strings.CutPrefix(part, "metadata.namespace="); ok && def.Namespaced {
			p.namespace = ns
		} else if part != "" {
			rest = append(rest, part)
		}
	}
	return p, strings.Join(rest, ",")
}

// errExpired says that the server has forgotten what happened after the
// revision asked for.
var errExpired = errors.New("the revision is too old")

// errReleased is why a feed ended that nobody needs any more.
var errReleased = errors.New("nobody follows it any more")

// run feeds the cache until ctx ends, or nobody needs it any more.
func (f *feed) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.t.mu.Lock()
	f.use.end = cancel
	released := f.use.released
	f.t.mu.Unlock()
	if released {
		return nil
	}
	f.resume = 0
	if f.t.memory != nil {
		f.before = f.t.memory.recall(f)
	}
	backoff := task.Backoff{Initial: f.t.o.Backoff, Max: most * f.t.o.Backoff, Jitter: 1}
	for ctx.Err() == nil {
		began := time.Now()
		seen := f.cache.Rev()
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if f.cache.Rev() > seen || time.Since(began) > f.t.o.WatchTimeout/2 {
			backoff.Reset()
		}
		if err != nil || time.Since(began) < f.t.o.WatchTimeout/2 {
			f.broke = time.Now()
		}
		wait := backoff.Next()
		if f.before != nil { // that counts soon
			wait = min(wait, max(time.Until(f.before.until), 0))
		}
		if errors.Is(err, errLeft) { // it goes on at the next server
			continue
		}
		if errors.Is(err, errExpired) {
			f.resume = 0
			f.log.Debug("too far behind, reading everything again")
			if time.Since(f.filled) > expiredSoon {
				continue
			}
			err = nil // it is not a failure, but must not happen all the time
		}
		f.note(err)
		if asked, ok := retryAfter(err); ok {
			wait = max(wait, asked)
		}
		if task.Sleep(ctx, wait) != nil {
			return nil
		}
	}
	return nil
}

// note logs the first of a row of failures.
func (f *feed) note(err error) {
	switch {
	case err == nil:
		f.failed = false
	case f.failed:
		f.log.Debug("read from the API server", "err", err)
	default:
		f.failed = true
		f.log.Warn("read from the API server, which is tried again and again", "err", err)
	}
}

// follow takes in what happens until the watch ends.
func (f *feed) follow(ctx context.Context) error {
	if f.resume == 0 {
		if err := f.begin(ctx); err != nil {
			return err
		}
		f.note(nil)
	} else if !f.broke.IsZero() { // who answers now may be another one
		if err := f.t.verify(ctx, f.broke); err != nil {
			return err
		}
		f.broke = time.Time{}
	}
	return f.watch(ctx)
}

// fill lists what is there, and sets the cache to it (H1): its followers are
// told of the difference.
func (f *feed) fill(ctx context.Context) error {
	if err := f.t.verify(ctx, time.Now().Add(-sameAnswer)); err != nil {
		return err
	}
	objs, text, err := f.list(ctx, f.t.o.PageSize)
	if apierrors.IsResourceExpired(err) { // in the middle of the pages
		objs, text, err = f.list(ctx, 0)
	}
	if err != nil {
		return err
	}
	rev, err := revision(text)
	if shown := f.shown(); err == nil && rev < shown {
		err = fmt.Errorf("the server is at revision %d, after one that was at %d", rev, shown)
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", f.def, err)
	}
	items := make([]*cache.Item, 0, len(objs))
	for _, obj := range objs {
		it, err := f.item(obj)
		if err != nil {
			return fmt.Errorf("list %s: %w", f.def, err)
		}
		items = append(items, it)
	}
	differs := f.differs(items)
	f.before = nil
	f.cache.Replace(items, rev)
	f.advance(rev, differs)
	f.resume, f.last, f.filled = rev, rev, time.Now()
	return nil
}

// shown is the revision that the cache shows, or was known to show earlier.
func (f *feed) shown() int64 {
	if f.before != nil {
		return max(f.before.rev, f.cache.Rev())
	}
	return f.cache.Rev()
}

// advance says that the cache shows a revision now, and whether it is to be remembered.
func (f *feed) advance(rev int64, changed bool) {
	f.cache.Progress.Advance(rev)
	f.t.memory.saw(rev)
	if changed {
		f.t.memory.changed(f)
	}
}

// list reads all pages of one revision.
func (f *feed) list(ctx context.Context, limit int64) (objs []resource.Object, rev string, err error) {
	o := metav1.ListOptions{FieldSelector: f.fields, Limit: limit}
	shown := f.shown()
	if shown > 0 { // the server may be another one, which is behind (H1)
		o.ResourceVersion, o.ResourceVersionMatch = fmt.Sprint(shown), metav1.ResourceVersionMatchNotOlderThan
	}
	for {
		c, err := f.t.listCall(f.place, &o)
		if err != nil {
			return nil, "", err
		}
		c.known = shown > 0
		a, err := f.t.ask(ctx, c)
		if err != nil {
			return nil, "", err
		}
		var page client.List
		if page, err = a.list(f.def); err != nil {
			return nil, "", err
		}
		objs = append(objs, page.Items...)
		if page.Continue == "" {
			return objs, page.ResourceVersion, nil
		}
		o.Continue, o.ResourceVersion, o.ResourceVersionMatch = page.Continue, "", ""
	}
}

// item is an object as the cache shows it.
func (f *feed) item(obj resource.Object) (*cache.Item, error) {
	f.t.o.Trim(obj)
	rev, err := revision(obj.GetResourceVersion())
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", obj.GetName(), err)
	}
	return &cache.Item{Key: cache.Key(obj.GetNamespace(), obj.GetName()), Rev: rev, Object: obj}, nil
}

// watchGrace is how much longer than asked a watch may last.
const watchGrace = 30 * time.Second

// watch takes in changes until the server ends the watch or the connection
// breaks. An error says that it was not the former.
func (f *feed) watch(ctx context.Context) error {
	lasts := f.t.o.WatchTimeout + rand.N(f.t.o.WatchTimeout)
	seconds := max(int64(lasts/time.Second), 1)
	c, err := f.t.listCall(f.place, &metav1.ListOptions{
		FieldSelector: f.fields, Watch: true, AllowWatchBookmarks: true, TimeoutSeconds: &seconds, ResourceVersion: fmt.Sprint(f.resume),
	})
	if err != nil {
		return err
	}
	c.verb = "watch"
	if c.accept == mediaProto {
		c.accept = mediaProto + ";stream=watch"
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lasts+watchGrace, errTime)
	defer cancel()
	r, err := f.t.send(ctx, c)
	if err != nil {
		if apierrors.IsResourceExpired(plain(err)) || apierrors.IsGone(plain(err)) {
			return errExpired
		}
		return err
	}
	defer r.close()
	r.lasts()
	f.note(nil)
	in := newStream(mediaType(r.Header), r.Body)
	for {
		events, err := in.next()
		if applyErr := f.apply(events); applyErr != nil {
			return applyErr
		}
		if errors.Is(err, errEnd) {
			return nil
		}
		if err != nil {
			return &linkError{what: c.String(), err: causeOf(r.ctx, err)}
		}
	}
}

// apply takes in what has come in together.
func (f *feed) apply(events []event) error {
	changes := make([]cache.Change, 0, len(events))
	marks, last := f.resume, f.last
	var ended error
	for i := range events {
		e := &events[i]
		if e.kind == "ERROR" {
			ended = e.failure()
			break
		}
		obj, err := read(f.def, &e.object)
		if err != nil {
			return err
		}
		it, err := f.item(obj)
		if err != nil {
			return err
		}
		if e.kind == "BOOKMARK" {
			marks, last = max(marks, it.Rev), max(last, it.Rev)
			continue
		}
		if it.Rev > last { // what came before is complete (H3)
			marks, last = max(marks, last), it.Rev
		}
		if f.shows(changes, it, e.kind) {
			continue
		}
		changes = append(changes, cache.Change{Item: it, Delete: e.kind == string(cache.Deleted)})
	}
	worth := f.changes(changes)
	f.cache.Apply(changes)
	f.resume, f.last = marks, last
	f.advance(last, worth)
	return ended
}

// shows reports that the cache, with the changes that are about to be taken in,
// shows a change already: a resumed watch repeats the last revision (H2).
func (f *feed) shows(pending []cache.Change, it *cache.Item, kind string) bool {
	if it.Rev > f.last {
		return false
	}
	for i := range pending {
		if pending[i].Item.Key == it.Key && pending[i].Item.Rev >= it.Rev {
			return true
		}
	}
	has := f.cache.Get(it.Key)
	if kind == string(cache.Deleted) {
		return has == nil || has.Rev >= it.Rev
	}
	return has != nil && has.Rev >= it.Rev
}
