package apiserver

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// serveResource answers a request whose path names a resource. Authorization
// has been done.
func (s *Server) serveResource(w http.ResponseWriter, r *http.Request, in *request.Info) {
	t := s.routes.Load()
	res := t.lookup(in.Group, in.Version, in.Plural)
	if res == nil {
		s.serveUnknown(w, r, t, in)
		return
	}
	c := &call.Call{Verb: in.Verb, Resource: res, Namespace: in.Namespace, Name: in.Name, User: stateOf(r).user, Agent: r.UserAgent()}
	p := &reply{s: s, w: w, r: r, c: c}
	v, err := s.gate(c, in.Sub)
	if err == nil && r.Method == http.MethodHead && in.Sub == "" {
		err = refusal.MethodNotAllowed()
	}
	switch {
	case err != nil:
		p.fail(err)
	case v == connects:
		p.connect()
	case p.negotiate(v.forms):
		p.perform(v)
	}
}

// perform does what the call asks for, and answers.
func (p *reply) perform(v *verb) {
	a, err := p.s.perform(p.r.Context(), p.c, v, p)
	switch {
	case p.c.Verb == "watch" && apierrors.IsResourceExpired(err):
		p.newSink().fail(err) // an event, as if the watch had begun
	case err != nil:
		p.fail(err)
	case a.watch != nil:
		p.stream(a.watch)
	case a.page != nil:
		p.collection(a.page)
	case a.Gone && !p.c.Resource.Def.AnswersDeleted:
		p.w.Header().Set(client.RevisionHeader, a.Item.Object.GetResourceVersion())
		p.object(http.StatusOK, statusGVK, deletedStatus(p.c, a.Item))
	case a.Item != nil:
		p.item(cmp.Or(a.Code, http.StatusOK), a.Item)
	default:
		p.part(cmp.Or(a.Code, http.StatusOK), a.Body)
	}
}

// serveUnknown answers for a resource that is not here: another server may
// have it, or nobody.
func (s *Server) serveUnknown(w http.ResponseWriter, r *http.Request, t *routes, in *request.Info) {
	empty := slices.IndexFunc(s.o.Empty, func(n resource.Names) bool {
		return n.Group == in.Group && n.Version == in.Version && n.Plural == in.Plural
	})
	switch {
	case empty >= 0 && in.Verb == "list":
		gvk := s.o.Empty[empty].GVK()
		writeJSON(w, map[string]any{"kind": gvk.Kind + "List", "apiVersion": gvk.GroupVersion().String(), "metadata": struct{}{}, "items": []any{}})
	case t.groups[in.Group][in.Version] != nil:
		s.writeError(w, r, refusal.NotFound())
	case s.o.Next != nil:
		s.serveNext(w, r)
	default:
		http.NotFound(w, r)
	}
}

// methods are those of HTTP, with the verbs that they mean for an object and for
// a collection.
var methods = []struct{ method, object, collection string }{
	{http.MethodGet, "get", "list"},
	{http.MethodPost, "", "create"},
	{http.MethodPut, "update", ""},
	{http.MethodPatch, "patch", ""},
	{http.MethodDelete, "delete", "deletecollection"},
}

// allowed lists the methods that the call's path has, as the header Allow wants it.
func allowed(c *call.Call) string {
	var list []string
	for _, m := range methods {
		verb := m.object
		switch {
		case c.Sub != nil && m.method == http.MethodPost:
			verb = "create"
		case c.Sub != nil:
		case c.Name == "":
			verb = m.collection
			if c.Resource.Def.Namespaced && c.Namespace == "" && verb != "list" {
				continue
			}
		}
		if c.Has(verb) {
			list = append(list, m.method)
		}
	}
	return strings.Join(list, ", ")
}

// negotiate settles the form of the answer; ok is false if none fits, which has
// been answered then.
func (p *reply) negotiate(can request.Allowed) (ok bool) {
	a, err := request.Negotiate(p.r, can)
	if err != nil && can.Stream {
		err = refusal.NotAcceptable(request.StreamTypes)
	}
	if err != nil {
		p.fail(err)
		return false
	}
	p.a = a
	return true
}

var _ input = (*reply)(nil)

func (p *reply) revision() string {
	if p.r.URL.RawQuery == "" {
		return ""
	}
	return p.r.URL.Query().Get("resourceVersion")
}

// document is the request's body, which has been read by a filter.
func (p *reply) document() call.Document {
	return call.Document{Type: request.ContentType(p.r), Body: stateOf(p.r).body}
}

func (p *reply) sent(c *call.Call) (runtime.Object, error) {
	d := p.document()
	if c.Sub != nil && c.Sub.Body != nil {
		body := c.Sub.Body.New()
		return body, d.Decode(c, body, d.Accepted(c.Sub.Body))
	}
	obj := c.Resource.New()
	if err := d.Decode(c, obj, c.Resource.GVK); err != nil || c.Handler() != resource.Generic {
		return obj, err
	}
	stored, err := c.Resource.ToStorage(obj)
	if err != nil {
		return nil, refusal.BadRequest("%v", err)
	}
	return stored, nil
}

func (p *reply) listOptions() (*metav1.ListOptions, error) { return request.ListOptions(p.r.URL) }

func (p *reply) writeOptions() (metav1.PatchOptions, error) {
	return request.WriteOptions(p.r.URL, p.c.Verb == "patch")
}

// deleteOptions reads them from the body, or from the parameters if it is empty.
func (p *reply) deleteOptions() (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	if d := p.document(); len(d.Body) > 0 {
		return o, d.DeleteOptions(o)
	}
	return o, request.DeleteOptions(p.r.URL, o)
}
