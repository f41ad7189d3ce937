package apiserver

import (
	"context"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/watch"
	"github.com/kemudi/kemudi/internal/apiserver/write"
	"github.com/kemudi/kemudi/internal/resource"
)

// verb is one thing that can be done with resources, whoever asks for it (A4).
type verb struct {
	// forms are those in which HTTP answers, beside objects as they are.
	forms request.Allowed
	// options reads what the call says but for an object, and refuses what is wrong
	// with it; nil: it says nothing.
	options func(c *call.Call, in input) error
	// body: an object is sent.
	body bool
	// run does it.
	run func(s *Server, ctx context.Context, c *call.Call) (outcome, error)
}

// verbs are what can be done with objects and with their parts.
var verbs = map[string]*verb{
	"get":    {request.Allowed{Table: true, Metadata: true}, readRevision, false, (*Server).runGet},
	"list":   {request.Allowed{Table: true, Metadata: true, List: true}, readList, false, (*Server).runList},
	"watch":  {request.Allowed{Table: true, Metadata: true, Stream: true}, readList, false, (*Server).runWatch},
	"create": {request.Allowed{Table: true, Metadata: true}, readWrite("CreateOptions"), true, one((*write.Pipeline).Create)},
	"update": {request.Allowed{Table: true, Metadata: true}, readWrite("UpdateOptions"), true, one((*write.Pipeline).Update)},
	"patch":  {request.Allowed{Table: true, Metadata: true}, readPatch, false, one((*write.Pipeline).Patch)},
	"delete": {request.Allowed{Table: true, Metadata: true}, readDelete, false, one((*write.Pipeline).Delete)},

	"deletecollection": {request.Allowed{Table: true, Metadata: true, List: true}, readDeleteCollection, false, (*Server).runDeleteCollection},
}

// What takes the place of a verb where code is declared that answers: an action,
// which is asked a question or sent an object, and a tunnel, which HTTP alone has.
var (
	asks     = &verb{run: (*Server).runAction}
	acts     = &verb{options: readWrite("CreateOptions"), body: true, run: (*Server).runAction}
	connects = &verb{run: func(*Server, context.Context, *call.Call) (outcome, error) { return outcome{}, refusal.NotFound() }}
)

// input is where a call gets what it says from: the bytes of an HTTP request, or
// the values that a caller in the process hands over. It checks nothing.
type input interface {
	revision() (string, error)
	listOptions() (*metav1.ListOptions, error)
	deleteOptions() (*metav1.DeleteOptions, error)
	writeOptions() (metav1.PatchOptions, error) // those of all writes
	document() call.Document                    // a patch
	// sent is an object: one object at its storage version, defaulted, or the body of a
	// subresource or an action.
	sent(c *call.Call) (runtime.Object, error)
}

// outcome is what comes of a call: one of a result, a page and a watch.
type outcome struct {
	call.Result
	page  *read.Page
	watch *watch.Watch
}

// gate finds out what a call is to do, or why it may not be made at all. sub is the
// name of the subresource, empty for the object itself.
func (s *Server) gate(c *call.Call, sub string) (*verb, error) {
	if err := fit(c); err != nil {
		return nil, err
	}
	if sub != "" {
		if c.Sub = c.Resource.Subresource(sub); c.Sub == nil && c.Resource.Def.Dynamic != nil {
			return nil, apierrors.NewNotFound(c.Resource.Def.GroupResource(), c.Name)
		} else if c.Sub == nil {
			return nil, refusal.NotFound()
		}
	}
	switch h := c.Handler(); {
	case s.handlers.tunnels[h] != nil && (c.Has(c.Verb) || c.Has("update") && c.Verb == ""):
		return connects, nil // what may be updated is reached by OPTIONS, too
	case !c.Has(c.Verb) && c.Resource.Def.Dynamic != nil:
		return nil, unsupported(c)
	case c.Name == "" && (c.Verb == "update" || c.Verb == "patch") && c.Resource.Def.Dynamic != nil:
		return nil, refusal.BadRequest("name must be provided")
	case !c.Has(c.Verb), sub == "" && misplaced(c):
		return nil, refusal.MethodNotAllowed()
	case c.Name != "" && c.Verb != "list" && c.Verb != "watch" && len(path.IsValidPathSegmentName(c.Name)) > 0:
		return nil, refusal.BadRequest("Name parameter invalid: %q: %s", c.Name, strings.Join(path.IsValidPathSegmentName(c.Name), ";"))
	case h != resource.Generic && c.Verb == "get":
		return asks, nil
	case h != resource.Generic:
		return acts, nil
	default:
		return verbs[c.Verb], nil
	}
}

// unsupported answers a verb that a kind does not have that is known at run time only. What it lacks
// of all verbs it lacks because its definition goes.
func unsupported(c *call.Call) error {
	if c.Sub == nil && c.Verb == "create" {
		return c.Ending()
	}
	return apierrors.NewMethodNotSupported(c.Resource.Def.GroupResource(), c.Verb)
}

// fit holds the namespace and name of the call against the resource's scope.
func fit(c *call.Call) error {
	d := c.Resource.Def
	if d.IsNamespace && c.Namespace == c.Name { // as paths and authorizers have it
		c.Namespace = ""
	}
	if !d.Namespaced && c.Namespace != "" ||
		d.Namespaced && c.Namespace == "" && c.Name != "" && c.Verb != "list" && c.Verb != "watch" {
		return refusal.NotFound()
	}
	return nil
}

// misplaced reports whether the verb is not one for a single object, or for a
// collection, which the call is about.
func misplaced(c *call.Call) bool {
	everywhere := c.Resource.Def.Namespaced && c.Namespace == ""
	switch c.Verb {
	case "create":
		return everywhere || c.Name != ""
	case "deletecollection":
		return everywhere
	case "update", "patch":
		return c.Name == ""
	}
	return false
}

// perform carries out a call that has passed the gate.
func (s *Server) perform(ctx context.Context, c *call.Call, v *verb, in input) (a outcome, err error) {
	if v.options != nil {
		if err := v.options(c, in); err != nil {
			return a, err
		}
	}
	if v.body {
		c.Trace.Event("About to convert to expected version")
		if c.Body, err = in.sent(c); err != nil {
			return a, err
		}
		c.Trace.Event("Conversion done")
	}
	if c.Audit != nil {
		s.tellSent(c)
	}
	if c.Trace.Span != nil {
		return s.runTraced(ctx, c, v)
	}
	return v.run(s, ctx, c)
}

func readRevision(c *call.Call, in input) (err error) {
	c.Rev, err = in.revision()
	return err
}

func readList(c *call.Call, in input) (err error) {
	if c.List, err = in.listOptions(); err != nil {
		return err
	}
	c.List.Watch = c.Verb == "watch"
	return request.CheckList(c.List)
}

// readWrite reads the options of creates and updates, which are of the kind.
func readWrite(kind string) func(c *call.Call, in input) error {
	return func(c *call.Call, in input) error {
		o, err := in.writeOptions()
		if err != nil {
			return err
		}
		takeOptions(c, &o)
		return request.CheckWrite(kind, &o)
	}
}

func readPatch(c *call.Call, in input) error {
	c.Patch = in.document()
	kind := types.PatchType(c.Patch.Type)
	if d := c.Resource.Def.Dynamic; d != nil && !slices.Contains(write.DocumentPatchTypes, c.Patch.Type) {
		return refusal.UnsupportedMedia(write.DocumentPatchTypes)
	} else if d == nil && !slices.Contains(write.PatchTypes, c.Patch.Type) {
		return refusal.NoPatch()
	}
	o, err := in.writeOptions()
	if err != nil {
		return err
	}
	takeOptions(c, &o)
	if err := request.CheckPatch(&o, kind); err != nil {
		return err
	}
	return write.CheckPatch(c.Patch)
}

// takeOptions sets what a write's options say.
func takeOptions(c *call.Call, o *metav1.PatchOptions) {
	c.Manager, c.Validation, c.Force, c.DryRun = o.FieldManager, o.FieldValidation, o.Force, isDryRun(o.DryRun)
}

func readDelete(c *call.Call, in input) (err error) {
	if c.Delete, err = in.deleteOptions(); err != nil {
		return err
	}
	c.DryRun = isDryRun(c.Delete.DryRun)
	return request.CheckDelete(c.Delete)
}

func readDeleteCollection(c *call.Call, in input) error {
	if err := readList(c, in); err != nil {
		return err
	}
	if err := readDelete(c, in); err != nil {
		return err
	}
	return request.CheckDeleteCollection(c.Delete)
}

func (s *Server) runGet(ctx context.Context, c *call.Call) (outcome, error) {
	it, err := s.reads.Get(ctx, c, c.Rev)
	if err == nil {
		it, err = c.Resource.ViewOne(ctx, it)
	}
	if err == nil && c.Sub != nil && c.Sub.Lacks != nil {
		err = c.Sub.Lacks(it.Object)
	}
	if err != nil {
		return outcome{}, err
	}
	return outcome{Result: c.Shown(it)}, nil
}

// one is a verb that writes one object.
func one(run func(p *write.Pipeline, ctx context.Context, c *call.Call) (call.Result, error)) func(s *Server, ctx context.Context, c *call.Call) (outcome, error) {
	return func(s *Server, ctx context.Context, c *call.Call) (outcome, error) {
		out, err := run(s.writes, ctx, c)
		if err == nil && out.Item != nil {
			out.Item, err = c.Resource.ViewOne(ctx, out.Item)
		}
		return outcome{Result: out}, err
	}
}

func (s *Server) runList(ctx context.Context, c *call.Call) (outcome, error) {
	p, err := s.reads.List(ctx, c)
	if err == nil {
		p.Items, err = c.Resource.View(ctx, p.Items)
	}
	return outcome{page: p}, err
}

func (s *Server) runWatch(ctx context.Context, c *call.Call) (outcome, error) {
	ctx, span := c.Step(ctx, "cacher.Watch")
	defer span.End()
	w, err := watch.Start(ctx, s.reads, c)
	return outcome{watch: w}, err
}

// runDeleteCollection deletes what a list finds, and returns it.
func (s *Server) runDeleteCollection(ctx context.Context, c *call.Call) (outcome, error) {
	found, err := s.reads.List(ctx, c)
	if err != nil {
		return outcome{}, err
	}
	if err := s.writes.DeleteAll(ctx, c, found.Items); err != nil {
		return outcome{}, err
	}
	if found.Items, err = c.Resource.View(ctx, found.Items); err != nil {
		return outcome{}, err
	}
	return outcome{page: &read.Page{Items: found.Items, Meta: found.Meta}}, nil
}

func (s *Server) runAction(ctx context.Context, c *call.Call) (outcome, error) {
	if sent, ok := c.Body.(metav1.Object); ok { // which stays as it is: a caller in the process may have it
		if err := c.FitNamespace(&metav1.ObjectMeta{Namespace: sent.GetNamespace()}); err != nil {
			return outcome{}, err
		}
	}
	body, err := s.handlers.actions[c.Handler()](ctx, s.actionRequest(c, c.Body))
	a := outcome{Result: call.Result{Body: body}}
	if c.Verb == "create" {
		a.Code = http.StatusCreated
	}
	return a, err
}

// isDryRun reads a call's dryRun parameter, whose values have been looked at.
func isDryRun(values []string) bool { return len(values) > 0 }
