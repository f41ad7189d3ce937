package apiserver

import (
	"context"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// verb is one thing that can be done with resources, whoever asks for it (A4).
type verb struct {
	// forms are those in which HTTP answers, beside objects as they are.
	forms request.Allowed
	// options reads what the call says but for an object, and refuses what is wrong
	// with it; nil: it says nothing.
	options func(c *call, in input) error
	// body: an object is sent.
	body bool
	// run does it.
	run func(s *Server, ctx context.Context, c *call) (answer, error)
}

// verbs are what can be done with objects and with their parts.
var verbs = map[string]*verb{
	"get":    {request.Allowed{Table: true, Metadata: true}, readRevision, false, (*Server).runGet},
	"list":   {request.Allowed{Table: true, Metadata: true, List: true}, readList, false, (*Server).runList},
	"watch":  {request.Allowed{Table: true, Metadata: true, Stream: true}, readList, false, (*Server).runWatch},
	"create": {request.Allowed{Table: true, Metadata: true}, readWrite("CreateOptions"), true, (*Server).create},
	"update": {request.Allowed{Table: true, Metadata: true}, readWrite("UpdateOptions"), true, (*Server).update},
	"patch":  {request.Allowed{Table: true, Metadata: true}, readPatch, false, (*Server).patch},
	"delete": {request.Allowed{Table: true, Metadata: true}, readDelete, false, (*Server).runDelete},

	"deletecollection": {request.Allowed{Table: true, Metadata: true, List: true}, readDeleteCollection, false, (*Server).deleteCollection},
}

// What takes the place of a verb where code is declared that answers: an action,
// which is asked a question or sent an object, and a tunnel, which HTTP alone has.
var (
	asks     = &verb{run: (*Server).runAction}
	acts     = &verb{options: readWrite("CreateOptions"), body: true, run: (*Server).runAction}
	connects = &verb{run: func(*Server, context.Context, *call) (answer, error) { return answer{}, refusal.NotFound() }}
)

// input is where a call gets what it says from: the bytes of an HTTP request, or
// the values that a caller in the process hands over. It checks nothing.
type input interface {
	revision() string
	listOptions() (*metav1.ListOptions, error)
	deleteOptions() (*metav1.DeleteOptions, error)
	writeOptions() (metav1.PatchOptions, error) // those of all writes
	document() document                         // a patch
	// sent is an object: one object at its storage version, defaulted, or the body of a
	// subresource or an action.
	sent(c *call) (runtime.Object, error)
}

// answer is what comes of a call: one of item, page, body and watch.
type answer struct {
	item  *cache.Item
	page  *page
	body  runtime.Object // what stands for an object, or is none
	watch *watcher
	gone  bool // item is the last state of an object that has been deleted
	code  int  // of HTTP; 0: 200
}

// gate finds out what a call is to do, or why it may not be made at all. sub is the
// name of the subresource, empty for the object itself.
func (s *Server) gate(c *call, sub string) (*verb, error) {
	if err := c.fit(); err != nil {
		return nil, err
	}
	if sub != "" {
		if c.sub = c.res.Subresource(sub); c.sub == nil {
			return nil, refusal.NotFound()
		}
	}
	switch h := c.handler(); {
	case s.handlers.tunnels[h] != nil:
		return connects, nil // by whatever method
	case !c.has(c.verb), sub == "" && c.misplaced():
		return nil, refusal.MethodNotAllowed()
	case h != resource.Generic && c.verb == "get":
		return asks, nil
	case h != resource.Generic:
		return acts, nil
	default:
		return verbs[c.verb], nil
	}
}

// fit holds the namespace and name of the call against the resource's scope.
func (c *call) fit() error {
	d := c.res.Def
	if d.IsNamespace && c.namespace == c.name { // as paths and authorizers have it
		c.namespace = ""
	}
	if !d.Namespaced && c.namespace != "" ||
		d.Namespaced && c.namespace == "" && c.name != "" && c.verb != "list" && c.verb != "watch" {
		return refusal.NotFound()
	}
	return nil
}

// misplaced reports whether the verb is not one for a single object, or for a
// collection, which the call is about.
func (c *call) misplaced() bool {
	everywhere := c.res.Def.Namespaced && c.namespace == ""
	switch c.verb {
	case "create":
		return everywhere || c.name != ""
	case "deletecollection":
		return everywhere
	case "update", "patch":
		return c.name == ""
	}
	return false
}

// perform carries out a call that has passed the gate.
func (s *Server) perform(ctx context.Context, c *call, v *verb, in input) (a answer, err error) {
	if v.options != nil {
		if err := v.options(c, in); err != nil {
			return a, err
		}
	}
	if v.body {
		if c.body, err = in.sent(c); err != nil {
			return a, err
		}
	}
	return v.run(s, ctx, c)
}

func readRevision(c *call, in input) error {
	c.rev = in.revision()
	return nil
}

func readList(c *call, in input) (err error) {
	if c.list, err = in.listOptions(); err != nil {
		return err
	}
	c.list.Watch = c.verb == "watch"
	return request.CheckList(c.list)
}

// readWrite reads the options of creates and updates, which are of the kind.
func readWrite(kind string) func(c *call, in input) error {
	return func(c *call, in input) error {
		o, err := in.writeOptions()
		if err != nil {
			return err
		}
		c.take(&o)
		return request.CheckWrite(kind, &o)
	}
}

func readPatch(c *call, in input) error {
	c.patch = in.document()
	kind := types.PatchType(c.patch.kind)
	switch kind {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType:
	default:
		return refusal.UnsupportedMedia(patchTypes)
	}
	o, err := in.writeOptions()
	if err != nil {
		return err
	}
	c.take(&o)
	return request.CheckPatch(&o, kind)
}

// take sets what a write's options say.
func (c *call) take(o *metav1.PatchOptions) {
	c.manager, c.validation, c.force, c.dryRun = o.FieldManager, o.FieldValidation, o.Force, isDryRun(o.DryRun)
}

func readDelete(c *call, in input) (err error) {
	if c.delete, err = in.deleteOptions(); err != nil {
		return err
	}
	c.dryRun = isDryRun(c.delete.DryRun)
	return request.CheckDelete(c.delete)
}

func readDeleteCollection(c *call, in input) error {
	if err := readList(c, in); err != nil {
		return err
	}
	return readDelete(c, in)
}

func (s *Server) runGet(ctx context.Context, c *call) (answer, error) {
	it, err := s.get(ctx, c, c.rev)
	if err != nil {
		return answer{}, err
	}
	return c.shown(it), nil
}

// shown is an object as the call's subresource has it.
func (c *call) shown(it *cache.Item) answer {
	if c.sub != nil && c.sub.Body != nil {
		return answer{body: c.sub.Get(it.Object)}
	}
	return answer{item: it}
}

func (s *Server) runList(ctx context.Context, c *call) (answer, error) {
	sel, err := c.selection()
	if err != nil {
		return answer{}, err
	}
	o := c.list
	p, err := s.list(ctx, c, &listQuery{sel: sel, rev: o.ResourceVersion, match: o.ResourceVersionMatch, limit: o.Limit, token: o.Continue})
	return answer{page: p}, err
}

// selection narrows the call by its options; a name in the path counts as a
// field selector, as in the old form of watches.
func (c *call) selection() (*selection, error) {
	sel, err := newSelection(c, c.list.LabelSelector, c.list.FieldSelector)
	if err != nil || c.name == "" || sel.name == c.name {
		return sel, err
	}
	sel.name = c.name
	sel.fields = append(sel.fields, requirement{get: nameOf, value: c.name})
	return sel, nil
}

func (s *Server) runWatch(ctx context.Context, c *call) (answer, error) {
	o := c.list
	q := &watchQuery{rev: o.ResourceVersion, bookmarks: o.AllowWatchBookmarks, sendInitial: o.SendInitialEvents}
	if o.TimeoutSeconds != nil {
		q.timeout = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	var err error
	if q.sel, err = c.selection(); err != nil {
		return answer{}, err
	}
	w, err := s.startWatch(ctx, c, q)
	return answer{watch: w}, err
}

func okOrCreated(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

func (s *Server) runDelete(ctx context.Context, c *call) (answer, error) {
	it, gone, err := s.delete(ctx, c, c.delete)
	a := answer{item: it, gone: gone}
	if o := c.delete.OrphanDependents; !gone && o != nil && !*o { //nolint:staticcheck // the old form of the policy
		a.code = http.StatusAccepted
	}
	return a, err
}

func (s *Server) runAction(ctx context.Context, c *call) (answer, error) {
	body, err := s.handlers.actions[c.handler()](ctx, s.actionRequest(c, c.body))
	a := answer{body: body}
	if c.verb == "create" {
		a.code = http.StatusCreated
	}
	return a, err
}
