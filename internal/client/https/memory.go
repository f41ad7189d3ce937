package https

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/known"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// Memory says how a transport remembers on disk what it has last heard, for a start at
// which no server can be asked. What the caches show is written when it has changed; what
// does not change costs nothing.
type Memory struct {
	// Dir is the directory of what is remembered, secrets included.
	Dir string
	// Worth reports whether a change of an object is worth to be written. Nil: each is.
	Worth func(was, is resource.Object) bool
	// Answers are resources of which objects that were asked for are remembered one by
	// one, as the caller may not follow them.
	Answers []*resource.Def
	// Patience is how long the servers have to answer before what is remembered
	// counts, once for all that is asked. Default 5 s.
	Patience time.Duration
	// Silent is since when they have been asked in vain before there was this transport. Zero: they
	// have not.
	Silent time.Time
	// Refused is told why servers that answer are not believed (H6). Optional.
	Refused func(error)
}

// How often a cache is written: so long after a change, and not before the disk has
// rested from the write before, by its size.
const (
	writeAfter  = time.Second
	bytesASec   = 64 << 10
	flushWithin = 2 * time.Second
	defPatience = 5 * time.Second
)

// memory is what a link remembers.
type memory struct {
	o    Memory
	dir  *known.Dir
	link *link
	wake chan struct{} // holds a token while something may be due
	cluster

	mu struct {
		sync.Mutex
		dirty   map[*feed]*unwritten
		writing *unwritten      // that is being written, of a feed that is not in dirty any more
		answers map[string]bool // that were asked for
	}
}

// unwritten is a change that is not on the disk yet.
type unwritten struct {
	of     *feed
	since  time.Time
	urgent bool          // somebody waits
	done   chan struct{} // closed when it is, or nobody needs it any more
}

func newMemory(l *link) (*memory, error) {
	m := &memory{o: *l.o.Memory, link: l, wake: make(chan struct{}, 1)}
	setDefault(&m.o.Patience, defPatience)
	if m.o.Worth == nil {
		m.o.Worth = func(_, _ resource.Object) bool { return true }
	}
	m.is.silent = m.o.Silent
	m.mu.dirty, m.mu.answers = map[*feed]*unwritten{}, map[string]bool{}
	var err error
	if m.dir, err = known.Open(m.o.Dir); err != nil {
		return nil, err
	}
	return m, m.recallCluster()
}

// name is what a feed's state is known by.
func (f *feed) name() string {
	scope := f.fields
	if f.place.namespace != "" {
		scope += " in " + f.place.namespace
	}
	return f.def.GroupResource().String() + " " + scope
}

// encoded is an object as it is written.
func encoded(def *resource.Def, obj resource.Object) ([]byte, error) {
	if p, ok := obj.(wire.Proto); ok {
		return inEnvelope(def.GVK(), p)
	}
	return wire.AppendJSON(nil, obj)
}

func decoded(def *resource.Def, data []byte) (resource.Object, error) {
	d, err := open(accepts(def), data)
	if err != nil {
		return nil, err
	}
	return read(def, &d)
}

// recollection is what was known of a feed's objects.
type recollection struct {
	rev   int64
	items []*cache.Item
	until time.Time // the servers have the word so long
}

// recall reads what was known of a feed's objects; nil, if nothing was.
func (m *memory) recall(f *feed) *recollection {
	s, ok, err := m.dir.Read(f.name())
	r := &recollection{rev: s.Rev, until: f.t.Until()}
	for _, data := range s.Objects {
		var obj resource.Object
		var it *cache.Item
		if obj, err = decoded(f.def, data); err == nil {
			it, err = f.item(obj)
		}
		if err != nil {
			ok = false
			break
		}
		r.items = append(r.items, it)
	}
	if err != nil {
		f.log.Warn("cannot make use of what was known of the cluster before", "err", err)
	}
	if !ok {
		return nil
	}
	m.saw(s.Rev)
	return r
}

// begin fills the cache from a server, or if none has let it for a while, from the memory, and
// then from a server as soon as one lets it.
func (f *feed) begin(ctx context.Context) error {
	r := f.before
	if r == nil {
		return f.fill(ctx)
	}
	if time.Now().Before(r.until) {
		limited, cancel := context.WithDeadlineCause(ctx, r.until, errTime)
		defer cancel()
		if err := f.fill(limited); err == nil || ctx.Err() != nil || time.Now().Before(r.until) || !unheard(err) {
			return err
		}
	}
	f.before = nil
	f.cache.Recall(r.items, r.rev)
	f.cache.Progress.Advance(r.rev)
	f.log.Info("what was known earlier counts until a server answers", "rev", r.rev)
	return f.fill(ctx)
}

// unheard reports whether an error leaves open what a server would say to the request.
func unheard(err error) bool {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return true
	}
	return s.Status().Code >= 500 || apierrors.IsUnauthorized(err) || apierrors.IsTooManyRequests(err)
}

// differs reports whether a state differs from the one before in what is worth a write.
func (f *feed) differs(items []*cache.Item) bool {
	m := f.t.memory
	if m == nil {
		return false
	}
	was := f.cache.Get
	n := f.cache.Len()
	select {
	case <-f.cache.Synced():
	default:
		if f.before == nil {
			return true
		}
		byKey := make(map[string]*cache.Item, len(f.before.items))
		for _, it := range f.before.items {
			byKey[it.Key] = it
		}
		was, n = func(key string) *cache.Item { return byKey[key] }, len(byKey)
	}
	return len(items) != n || slices.ContainsFunc(items, func(it *cache.Item) bool { return m.worth(was(it.Key), it) })
}

// changes reports whether any of the changes is worth a write.
func (f *feed) changes(list []cache.Change) bool {
	m := f.t.memory
	return m != nil && slices.ContainsFunc(list, func(c cache.Change) bool { return c.Delete || m.worth(f.cache.Get(c.Item.Key), c.Item) })
}

func (m *memory) worth(was, is *cache.Item) bool {
	return was == nil || was.Rev != is.Rev && m.o.Worth(was.Object, is.Object)
}

// changed has the state of a feed written.
func (m *memory) changed(f *feed) {
	m.mu.Lock()
	if m.mu.dirty[f] == nil {
		m.mu.dirty[f] = &unwritten{of: f, since: time.Now(), done: make(chan struct{})}
	}
	m.mu.Unlock()
	m.wakeUp()
}

func (m *memory) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default: // there is one already
	}
}

// forget says that nobody needs a feed any more.
func (m *memory) forget(f *feed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u := m.mu.dirty[f]; u != nil {
		delete(m.mu.dirty, f)
		close(u.done)
	}
}

// run writes what has changed until ctx ends, and then what is left.
func (m *memory) run(ctx context.Context) error {
	next := time.NewTimer(time.Hour)
	defer next.Stop()
	for {
		if u, wait := m.due(time.Now()); u != nil {
			m.write(u)
			continue
		} else if wait > 0 {
			next.Reset(wait)
		}
		select {
		case <-m.wake:
		case <-next.C:
		case <-ctx.Done():
			for u, _ := m.due(time.Time{}); u != nil; u, _ = m.due(time.Time{}) {
				m.write(u)
			}
			return nil
		}
	}
}

// due takes what is to be written now, or says how long that has time; at the zero
// time all is due.
func (m *memory) due(now time.Time) (u *unwritten, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for f, u := range m.mu.dirty {
		at := u.since.Add(writeAfter)
		if rested := f.written.Add(time.Duration(f.size) * time.Second / bytesASec); rested.After(at) {
			at = rested
		}
		if u.urgent || now.IsZero() || !at.After(now) {
			delete(m.mu.dirty, f)
			m.mu.writing = u
			return u, 0
		}
		if left := at.Sub(now); wait == 0 || left < wait {
			wait = left
		}
	}
	return nil, wait
}

// write writes the state of a feed as it is now.
func (m *memory) write(u *unwritten) {
	f := u.of
	snapshot := f.cache.Snapshot()
	s := known.State{Rev: snapshot.Rev}
	var err error
	snapshot.Scan("", "", func(it *cache.Item) bool {
		var data []byte
		data, err = encoded(f.def, it.Object)
		s.Objects = append(s.Objects, data)
		return err == nil
	})
	n := f.size
	if err == nil {
		n, err = m.dir.Write(f.name(), s)
	}
	if err != nil {
		f.log.Warn("a start without the API will know an older state", "err", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f.written, f.size = time.Now(), n
	m.mu.writing = nil
	close(u.done)
}

// flush returns when all changes of a resource that the caches show are on the disk, or
// that takes too long.
func (m *memory) flush(ctx context.Context, def *resource.Def) {
	var wait []*unwritten
	m.mu.Lock()
	for f, u := range m.mu.dirty {
		if f.def == def {
			u.urgent = true
			wait = append(wait, u)
		}
	}
	if u := m.mu.writing; u != nil && u.of.def == def {
		wait = append(wait, u)
	}
	m.mu.Unlock()
	if len(wait) == 0 {
		return
	}
	m.wakeUp()
	ctx, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	for _, u := range wait {
		select {
		case <-u.done:
		case <-ctx.Done():
			return
		}
	}
}

// tidy removes what was known of feeds that there are no more, once it is known of all
// there are what has become of them.
func (m *memory) tidy(feeds []*feed) {
	names := map[string]bool{clusterName: true}
	for _, f := range feeds {
		select {
		case <-f.cache.Heard():
		default:
			return
		}
		names[f.name()] = true
	}
	m.mu.Lock()
	for name := range m.mu.answers {
		names[name] = true
	}
	m.mu.Unlock()
	if err := m.dir.Keep(names); err != nil {
		m.link.o.Logger.Warn("tidy up what is known of the cluster", "err", err)
	}
}

// remembers reports whether answers to a request are remembered.
func (m *memory) remembers(r *client.Request) bool {
	return m != nil && r.Verb == "get" && r.Sub == "" && slices.Contains(m.o.Answers, r.Def)
}

// get asks for an object, and remembers it, or if no server answers, answers what one did
// earlier.
func (t *Transport) get(ctx context.Context, r *client.Request) (runtime.Object, error) {
	m := t.memory
	name := fmt.Sprintf("%s answer %s/%s", r.Def.GroupResource(), r.Namespace, r.Name)
	s, had, err := m.dir.Read(name)
	if err != nil {
		t.o.Logger.Warn("cannot make use of what was known of the cluster before", "err", err)
	}
	m.mu.Lock()
	m.mu.answers[name] = true
	m.mu.Unlock()
	limited := ctx
	if had = had && len(s.Objects) == 1; had {
		until := t.Until()
		if !time.Now().Before(until) {
			return decoded(r.Def, s.Objects[0])
		}
		var cancel context.CancelFunc
		limited, cancel = context.WithDeadlineCause(ctx, until, errTime)
		defer cancel()
	}
	answer, err := t.do(limited, r)
	if err != nil && had && ctx.Err() == nil && unheard(err) {
		return decoded(r.Def, s.Objects[0])
	}
	if obj, ok := answer.(resource.Object); ok && err == nil && resource.Revision(obj) != s.Rev {
		m.keep(name, r.Def, obj)
	}
	return answer, err
}

// keep remembers an answer.
func (m *memory) keep(name string, def *resource.Def, obj resource.Object) {
	data, err := encoded(def, obj)
	if err == nil {
		_, err = m.dir.Write(name, known.State{Rev: resource.Revision(obj), Objects: [][]byte{data}})
	}
	if err != nil {
		m.link.o.Logger.Warn("a start without the API will know an older state", "err", err)
	}
}
