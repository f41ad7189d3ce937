package apiserver

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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
	c := &call{verb: in.Verb, res: res, namespace: in.Namespace, name: in.Name, user: stateOf(r).user, agent: r.UserAgent()}
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
	case p.c.verb == "watch" && apierrors.IsResourceExpired(err):
		p.newSink().fail(err) // an event, as if the watch had begun
	case err != nil:
		p.fail(err)
	case a.watch != nil:
		p.stream(a.watch)
	case a.page != nil:
		p.collection(a.page)
	case a.gone && !p.c.res.Def.AnswersDeleted:
		p.w.Header().Set(client.RevisionHeader, a.item.Object.GetResourceVersion())
		p.object(http.StatusOK, statusGVK, deletedStatus(p.c, a.item))
	case a.item != nil:
		p.item(cmp.Or(a.code, http.StatusOK), a.item)
	default:
		p.part(cmp.Or(a.code, http.StatusOK), a.body)
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
func (c *call) allowed() string {
	var list []string
	for _, m := range methods {
		verb := m.object
		switch {
		case c.sub != nil && m.method == http.MethodPost:
			verb = "create"
		case c.sub != nil:
		case c.name == "":
			verb = m.collection
			if c.res.Def.Namespaced && c.namespace == "" && verb != "list" {
				continue
			}
		}
		if c.has(verb) {
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
func (p *reply) document() document { return document{request.ContentType(p.r), stateOf(p.r).body} }

func (p *reply) sent(c *call) (runtime.Object, error) {
	d := p.document()
	if c.sub != nil && c.sub.Body != nil {
		body := c.sub.Body.New()
		return body, d.decode(c, body, d.accepted(c.sub.Body))
	}
	obj := c.res.New()
	if err := d.decode(c, obj, c.res.GVK); err != nil || c.handler() != resource.Generic {
		return obj, err
	}
	stored, err := c.res.ToStorage(obj)
	if err != nil {
		return nil, refusal.BadRequest("%v", err)
	}
	return stored, nil
}

func (p *reply) listOptions() (*metav1.ListOptions, error) { return request.ListOptions(p.r.URL) }

func (p *reply) writeOptions() (metav1.PatchOptions, error) {
	return request.WriteOptions(p.r.URL, p.c.verb == "patch")
}

// deleteOptions reads them from the body, or from the parameters if it is empty.
func (p *reply) deleteOptions() (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	if d := p.document(); len(d.body) > 0 {
		return o, decodeDeleteOptions(d, o)
	}
	return o, request.DeleteOptions(p.r.URL, o)
}
