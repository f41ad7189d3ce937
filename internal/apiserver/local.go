package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/auth"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// local is the API as called from within the process (A4).
type local struct {
	s     *Server
	user  user.Info
	agent string
}

var _ client.Transport = (*local)(nil)

// Cache returns the shared cache; local callers see all of it.
func (l *local) Cache(def *resource.Def, _ string) *cache.Cache { return l.s.o.Caches.Cache(def) }

// Hold returns the shared cache, which is there whether or not somebody holds it.
func (l *local) Hold(def *resource.Def, scope string) (*cache.Cache, func()) {
	return l.Cache(def, scope), func() {}
}

// Do performs one request by plain calls.
func (l *local) Do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	if r.Path != "" {
		return l.raw(ctx, r.Path)
	}
	if r.Verb == "list" || r.Verb == "watch" {
		return nil, refusal.MethodNotAllowed() // there are List and Cache for that
	}
	a, err := l.ask(ctx, r)
	switch {
	case err != nil || a.page != nil:
		return nil, err
	case a.Item != nil:
		return a.Item.Object, nil
	default:
		return a.Body, nil
	}
}

// List performs a list by plain calls.
func (l *local) List(ctx context.Context, r *client.Request) (client.List, error) {
	r.Verb = "list"
	a, err := l.ask(ctx, r)
	if err != nil {
		return client.List{}, err
	}
	list := client.List{
		Items: make([]resource.Object, len(a.page.Items)), ResourceVersion: a.page.Meta.ResourceVersion,
		Continue: a.page.Meta.Continue, Remaining: a.page.Meta.RemainingItemCount,
	}
	for i, it := range a.page.Items {
		list.Items[i] = it.Object
	}
	return list, nil
}

// ask carries a request out, and has it counted.
func (l *local) ask(ctx context.Context, r *client.Request) (a outcome, err error) {
	c := l.call(r)
	asks := l.attributes(c, r)
	rec, of := l.s.begin(), series{
		verb: metricVerb(r.Verb, string(r.PatchType)), group: c.Resource.GVK.Group, version: c.Resource.GVK.Version, plural: c.Resource.Def.Plural,
		scope: scopeOf(c.Namespace, c.Name),
	}
	rec.code = http.StatusInternalServerError // if it panics
	defer func() {
		of.sub = c.SubName()
		if c.DryRun {
			of.dryRun = metav1.DryRunAll
		}
		l.s.end(&rec, of)
	}()
	ctx, cancel := context.WithTimeout(auth.Within(ctx, l.user), l.s.o.RequestTimeout)
	defer cancel()
	if l.s.o.Tracing != nil {
		var end func(code *int)
		ctx, end = l.trace(ctx, c, r)
		defer end(&rec.code)
	}
	if ctx, err = l.audit(ctx, c, r, asks); err != nil {
		return outcome{}, err
	}
	defer c.Audit.End(&rec.code)
	if a, err = l.perform(ctx, c, r, asks); err != nil {
		rec.code = int(refusal.Status(err).Code)
		tellError(c.Audit, err)
		return outcome{}, err
	}
	rec.code = cmp.Or(a.Code, http.StatusOK)
	if c.Audit != nil {
		l.s.tellAnswer(c, a)
	}
	return a, nil
}

// attributes are the request as the authorizer sees it.
func (l *local) attributes(c *call.Call, r *client.Request) *authorizer.AttributesRecord {
	a := c.Attributes(r.Verb)
	a.Subresource = r.Sub
	if r.Verb == "list" || r.Verb == "deletecollection" {
		withSelectors(a, r.List.FieldSelector, r.List.LabelSelector)
	}
	return a
}

// call is a request as it would have come over HTTP: without what its path cannot have.
func (l *local) call(r *client.Request) *call.Call {
	c := &call.Call{Verb: r.Verb, Resource: l.s.storage(r.Def), Namespace: r.Namespace, Name: r.Name, User: l.user, Agent: l.agent}
	if !r.Def.Namespaced {
		c.Namespace = ""
	}
	switch {
	case r.Verb == "create" && r.Sub == "", r.Verb == "deletecollection":
		c.Name = ""
	case r.Verb == "list":
		c.Name = request.NameIn(r.List.FieldSelector)
	}
	return c
}

// perform asks who may do it, what is to be done, and does it.
func (l *local) perform(ctx context.Context, c *call.Call, r *client.Request, asks authorizer.Attributes) (outcome, error) {
	if err := l.s.decide(ctx, asks, c.Audit); err != nil {
		return outcome{}, err
	}
	switch {
	case r.Verb == "list", r.Verb == "deletecollection", r.Verb == "create" && r.Sub == "":
	case c.Name == "":
		return outcome{}, c.NotFound() // its path would be that of all objects
	}
	v, err := l.s.gate(c, r.Sub)
	if err != nil {
		return outcome{}, err
	}
	return l.s.perform(ctx, c, v, handed{r})
}

// Serves reports whether a resource is served over HTTP at its storage version.
func (s *Server) Serves(d *resource.Def) bool {
	return s.routes.Load().lookup(d.Group, d.Version, d.Plural) != nil
}

// Enabled reports whether a resource is served at one of its versions when it is among what is served; v is
// nil for the one that is stored.
func (s *Server) Enabled(d *resource.Def, v *resource.VersionDef) bool {
	gv := d.GVK().GroupVersion()
	if v != nil {
		gv = schema.GroupVersion{Group: v.Group, Version: v.Version}
	}
	return s.o.enabled(d, gv, v)
}

// storage is a resource at its storage version, whether or not that is served
// over HTTP.
func (s *Server) storage(d *resource.Def) *served.Resource {
	if v := s.routes.Load().lookup(d.Group, d.Version, d.Plural); v != nil {
		return v
	}
	var c *cache.Cache
	if d.Stored() {
		c = s.o.Caches.Cache(d)
	}
	return served.New(d, d.VersionNamed(d.Version), c) // of kinds that have a Go type, that is none
}

// handed is what a caller in the process hands over.
type handed struct{ r *client.Request }

var _ input = handed{}

// dryRun is the option of requests that change nothing.
var dryRun = []string{metav1.DryRunAll}

func (handed) revision() (string, error) { return "", nil }

func (h handed) document() call.Document {
	return call.Document{Type: string(h.r.PatchType), Body: h.r.Patch}
}

func (h handed) listOptions() (*metav1.ListOptions, error) { return &h.r.List, nil }

func (h handed) deleteOptions() (*metav1.DeleteOptions, error) {
	o := &h.r.Delete
	if h.r.DryRun {
		dry := *o
		dry.DryRun, o = dryRun, &dry
	}
	return o, nil
}

func (h handed) writeOptions() (metav1.PatchOptions, error) {
	o := metav1.PatchOptions{FieldManager: h.r.FieldManager, FieldValidation: call.IgnoreFields}
	if h.r.PatchType == types.ApplyYAMLPatchType {
		o.Force = h.r.Force
	}
	if h.r.DryRun {
		o.DryRun = dryRun
	}
	return o, nil
}

func (h handed) sent(c *call.Call) (runtime.Object, error) {
	if c.Handler() != resource.Generic || c.Sub != nil && c.Sub.Body != nil {
		return h.r.Object, nil
	}
	obj, ok := h.r.Object.(resource.Object)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("%s of %s: got a %T", c.Verb, c.Resource.Def, h.r.Object))
	}
	served.ClearType(obj)
	c.Resource.Def.Default(obj)
	return obj, nil
}
