package write

import (
	"context"
	"errors"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/apiserver/alloc"
	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/patch"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
)

// Options are what a pipeline writes with. All but Settings, Count, Unmended, Serves, Encrypted and Kept are required.
type Options struct {
	Store     store.Store
	Caches    Caches
	Reads     *read.Reader
	Admission Admission
	// Authorize refuses what a user may not do.
	Authorize func(ctx context.Context, a authorizer.Attributes) error
	// Settings are flags that allocations depend on, such as service-cluster-ip-range.
	Settings map[string]string
	// Count is told what has come of each value that a write, or [Pipeline.Repair], was to give. Nil: nobody counts.
	Count func(alloc.Outcome)
	// Unmended is called for each object of which Repair could not even find out what is wrong with its values. Nil: nobody counts.
	Unmended func()
	// Defs are all resources.
	Defs []*resource.Def
	// Serves reports whether clients can reach a resource. Nil: they can all.
	Serves func(d *resource.Def) bool
	// Encrypted says whether the value of a key may lie in the store encrypted. Nil: none does.
	Encrypted func(key string) bool
	// Kept is how long objects are kept that are not kept for ever. 0: as their kinds say.
	Kept   time.Duration
	Logger *slog.Logger
}

// ttl is how long an object is kept; 0: for ever.
func (p *Pipeline) ttl(d *resource.Def, obj resource.Object) time.Duration {
	ttl := d.TTL(obj)
	if ttl > 0 && p.o.Kept > 0 {
		return p.o.Kept
	}
	return ttl
}

// Pipeline carries writes to the store. Its methods may be called concurrently.
type Pipeline struct {
	o      Options
	fields *patch.Fields
	alloc  *alloc.Allocator
}

// New returns a pipeline that knows of no allocations yet.
func New(o Options) *Pipeline {
	return &Pipeline{o: o, fields: patch.NewFields(), alloc: alloc.New(alloc.Options{Store: o.Store, Settings: o.Settings, Defs: o.Defs, Caches: o.Caches, Count: o.Count})}
}

// Offered is what there is to be had of a class of values; ok is false if nothing offers any.
func (p *Pipeline) Offered(class string) (values []string, ok bool) { return p.alloc.Offered(class) }

// Know reads which values of a class are taken, unless that is known.
func (p *Pipeline) Know(ctx context.Context, class string) error { return p.alloc.Know(ctx, class) }

// Taken is how many values of a class are taken, if that is known.
func (p *Pipeline) Taken(class string) (n int, known bool) { return p.alloc.Taken(class) }

// Told takes in changes of keys that are of no resource, up to a revision, and Missed that there
// were some up to a revision of which nobody will tell.
func (p *Pipeline) Told(changes []store.Change, rev int64) { p.alloc.Told(changes, rev) }

// Missed is explained at Told.
func (p *Pipeline) Missed(rev int64) { p.alloc.Missed(rev) }

// Change is what a write wants: from what is stored (nil: nothing is) to what
// shall be stored.
type Change struct {
	// Make returns a new object of the storage version, defaulted; it belongs to
	// the pipeline then. It may be called again when somebody else was faster.
	Make func(ctx context.Context, old resource.Object) (resource.Object, error)

	Only    *metav1.Preconditions // what must be true of what is stored; nil: nothing
	Leaving bool                  // the object is about to be deleted: what is not as Only has it is told as of a deletion
	Tracked bool                  // managedFields are done already (apply)
	Trusted bool                  // the server's own change of an object: it is neither admitted nor validated (bind)

	create  bool      // the object must not exist
	missing bool      // update or apply: create the object if it does not exist
	uid     types.UID // update: that of the object that is meant; empty: whichever has the name
}

// Write carries one create, update, patch or apply from the request to a
// committed revision. Nothing else happens to a write; a new step is added here.
// Who may make the request, and what its body says, has been looked at before.
func (p *Pipeline) Write(ctx context.Context, c *call.Call, ch Change) (*cache.Item, error) {
	var w *attempt
	defer func() { w.end() }()
	for try := 0; ; try++ {
		w.end()
		old, err := p.o.Reads.Latest(ctx, c, try > 0) // what is stored now
		if err != nil {
			return nil, err
		}
		if err := p.mayApply(ctx, c, ch, old); err != nil { // it does not exist, or may not be made
			return nil, err
		}
		if ch.Only != nil {
			if err := ch.unmet(c, old.Object); err != nil {
				if try == 0 {
					continue // the cache may be behind: look again in the store
				}
				return nil, err
			}
		}
		w = &attempt{p: p, c: c, item: old, trusted: ch.Trusted}
		if w.was, err = c.Resource.ViewOne(ctx, old); err != nil {
			return nil, err
		}
		if ch.create {
			w.item, w.was = nil, nil // what is wrong with a new object comes before that its name is taken
		}
		if w.obj, err = ch.Make(ctx, w.old()); err != nil { // create, replace, patch or apply
			return nil, err
		}
		if err := w.checkPreconditions(); err != nil { // resourceVersion and UID the client gave (A2)
			if errors.Is(err, errStale) && try == 0 {
				continue // the cache may be behind: look again in the store
			}
			return nil, err
		}
		if c.Verb != "patch" {
			w.eachOwnerOnce(ownersTwice)
		}
		if !ch.Tracked {
			w.trackFields(ctx) // who set what
		}
		if c.Verb == "patch" {
			c.Trace.Event("About to check admission control")
		}
		if err := w.mutate(ctx); err != nil { // webhooks, policies, defaults of the cluster
			return nil, err
		}
		w.eachOwnerOnce(ownersStillTwice)
		if ch.create && w.name() {
			old = nil // of another name
		}
		c.Resource.Normalize(w.obj) // what admission has added
		w.prepare()                 // what clients may not set, and what the server owns
		if err := w.validate(ctx); err != nil {
			return nil, err
		}
		var taken *cache.Item
		if ch.create {
			taken = old
		}
		item, err := w.settle(ctx, taken) // allocations, webhooks, policies, quota; one transaction
		if errors.Is(err, errRaced) && w.mayRetry(ch, try) {
			continue
		}
		return item, w.answer(err)
	}
}

// attempt is one round of write.
type attempt struct {
	p    *Pipeline
	c    *call.Call
	item *cache.Item     // what is stored; nil: nothing
	was  *cache.Item     // the same, as the version of the request has it if its kind is known at run time only
	obj  resource.Object // what shall be

	working resource.Object // see old
	final   resource.Object // what shall be, with what was allocated for it; nil: nothing was yet
	tx      *alloc.Tx

	relied  []store.Cond        // what admission has looked at must not have changed
	first   int                 // how much of relied the first half of admission has looked at
	carried []admission.Carried // what admission changes besides
	after   []func()            // see end

	givenRV string // the resourceVersion in what the client sent
	trusted bool   // as in change
}

// maxTries bounds how often a write starts again because others were faster.
const maxTries = 100

// errRelied says that something that admission relied on was changed, at the
// latest at the revision.
type errRelied struct{ rev int64 }

// Error names no object: nobody gets to see it.
func (*errRelied) Error() string { return "what admission relied on was changed by somebody else" }

var (
	// errRaced says that the object was written between reading and committing.
	errRaced = errors.New("object was written by somebody else")
	// errStale says that the client's resourceVersion is not the one that was read.
	errStale = errors.New("resource version is not the latest")
)

// old is the stored object, nil if there is none.
func (w *attempt) old() resource.Object {
	switch {
	case w.item == nil:
		return nil
	case w.was == nil:
		return w.item.Object
	case w.working == nil:
		w.working = served.Working(w.was.Object)
	}
	return w.working
}

// mayApply refuses a change of an object that is not there. Who makes a new
// object by another verb must be allowed to create it.
func (p *Pipeline) mayApply(ctx context.Context, c *call.Call, ch Change, old *cache.Item) error {
	switch {
	case !ch.create && !ch.missing && old == nil && ch.uid != "":
		return c.Conflict(uidMismatch(c.Key(), ch.uid, ""))
	case !ch.create && !ch.missing && old == nil:
		return c.NotFound()
	case !ch.create && old == nil:
		if err := p.o.Authorize(ctx, c.Attributes("create")); err != nil {
			return err
		}
		return c.Ending()
	}
	return nil
}

// mayRetry: whoever named a revision must hear of the conflict, and so must who
// creates; others start over on top of the newer state.
func (w *attempt) mayRetry(ch Change, try int) bool {
	return !ch.create && w.givenRV == "" && try < maxTries
}

// answer turns the pipeline's own errors into what clients are told.
func (w *attempt) answer(err error) error {
	switch {
	case errors.Is(err, errRaced) && w.item == nil:
		return w.c.AlreadyExists(false)
	case errors.Is(err, errRaced):
		return w.c.Conflict(call.ErrModified)
	}
	return err
}

// checkPreconditions holds the resourceVersion and UID in the new object
// against those stored, and forgets the former: no stored object has it.
func (w *attempt) checkPreconditions() error {
	w.givenRV = w.obj.GetResourceVersion()
	w.obj.SetResourceVersion("")
	if w.item == nil {
		if w.givenRV != "" && w.givenRV != "0" && !w.triesCreate() {
			return w.refuseRevisionOnCreate()
		}
		if uid := w.obj.GetUID(); uid != "" && w.c.Verb == "update" {
			return w.c.Conflict(uidMismatch(w.c.Key(), uid, ""))
		}
		return nil
	}
	old := w.item.Object
	if uid := w.obj.GetUID(); uid != "" && uid != old.GetUID() && w.c.Verb != "patch" { // a patch would change it: see validate
		return w.c.Conflict(uidMismatch(w.c.Key(), uid, old.GetUID()))
	}
	if w.givenRV == "0" {
		w.givenRV = ""
	}
	if w.givenRV != "" && w.givenRV != old.GetResourceVersion() {
		return stale{w.c.Conflict(call.ErrModified)}
	}
	whole := w.c.Sub == nil || w.c.Sub.Body == nil // a Scale is of whatever there is
	if w.givenRV == "" && w.c.Verb == "update" && whole && !w.trusted && w.c.Resource.Def.Update.Has(resource.UpdateNeedsRevision) {
		return w.mustGiveRevision()
	}
	return nil
}

// stale is a conflict that may only be due to an old read of ours.
type stale struct{ error }

func (e stale) Is(target error) bool { return target == errStale }
func (e stale) Unwrap() error        { return e.error }
