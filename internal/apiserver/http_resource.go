package apiserver

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
	c := s.newCall(r, in, res)
	p := &reply{s: s, w: w, r: r, c: c}
	if err := c.route(in, r.Method); err != nil {
		p.fail(err)
		return
	}
	if c.handler() != "" {
		p.serveHandler()
		return
	}
	switch in.Verb {
	case "get":
		p.get()
	case "list":
		p.list()
	case "watch":
		p.watch()
	case "create":
		p.create()
	case "update":
		p.update()
	case "patch":
		p.patch()
	case "delete":
		p.delete()
	case "deletecollection":
		p.deleteCollection()
	default:
		p.fail(methodNotAllowed())
	}
}

// serveUnknown answers for a resource that is not here: another server may
// have it, or nobody.
func (s *Server) serveUnknown(w http.ResponseWriter, r *http.Request, t *routes, in *request.Info) {
	switch {
	case in.Group == "apiextensions.k8s.io" && in.Version == "v1" && in.Plural == "customresourcedefinitions" && in.Verb == "list":
		// kubectl asks before it validates a kind that cannot be patched.
		writeJSON(w, map[string]any{"kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1", "metadata": struct{}{}, "items": []any{}})
	case t.groups[in.Group][in.Version] != nil:
		s.writeError(w, r, genericNotFound())
	case s.o.Next != nil:
		s.o.Next.ServeHTTP(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) newCall(r *http.Request, in *request.Info, res *served) *call {
	return &call{
		verb: in.Verb, res: res, namespace: in.Namespace, name: in.Name,
		user: stateOf(r).user, agent: r.UserAgent(),
	}
}

// route checks that the path and method fit the resource.
func (c *call) route(in *request.Info, method string) error {
	d := c.res.def
	if d.Plural == "namespaces" && in.Name != "" && in.Namespace == in.Name {
		c.namespace = ""
	}
	switch {
	case !d.Namespaced && c.namespace != "":
		return genericNotFound()
	case d.Namespaced && c.namespace == "" && (in.Name != "" && in.Verb != "list" && in.Verb != "watch"):
		return genericNotFound()
	}
	if in.Sub != "" {
		if c.sub = c.res.sub(in.Sub); c.sub == nil {
			return genericNotFound()
		}
		if c.sub.Handler == "" && !slices.Contains(c.sub.Verbs, in.Verb) {
			return methodNotAllowed()
		}
		return nil
	}
	if in.Verb == "deletecollection" && d.Namespaced && c.namespace == "" || in.Verb == "create" && d.Namespaced && c.namespace == "" {
		return methodNotAllowed()
	}
	if (in.Verb == "update" || in.Verb == "patch") && in.Name == "" {
		return methodNotAllowed()
	}
	if in.Verb == "create" && in.Name != "" || method == http.MethodHead || !slices.Contains(c.res.verbs(), in.Verb) {
		return methodNotAllowed()
	}
	return nil
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
		verb, verbs := m.object, c.res.verbs()
		switch {
		case c.sub != nil:
			if verbs = c.sub.Verbs; m.method == http.MethodPost {
				verb = "create"
			}
		case c.name == "":
			verb = m.collection
			if c.res.def.Namespaced && c.namespace == "" && verb != "list" {
				continue
			}
		}
		if verb != "" && slices.Contains(verbs, verb) {
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
		err = notAcceptable(request.StreamTypes)
	}
	if err != nil {
		p.fail(err)
		return false
	}
	p.a = a
	return true
}

func (p *reply) get() {
	if !p.negotiate(request.Allowed{Table: true, Metadata: true}) {
		return
	}
	rev := ""
	if p.r.URL.RawQuery != "" {
		rev = p.r.URL.Query().Get("resourceVersion")
	}
	it, err := p.s.get(p.r.Context(), p.c, rev)
	if err != nil {
		p.fail(err)
		return
	}
	if p.c.sub != nil && p.c.sub.Body != nil {
		p.object(http.StatusOK, gvkOf(p.c.sub.Body), p.c.sub.Get(it.Object))
		return
	}
	p.item(http.StatusOK, it)
}

// body reads the request's body; ok is false if that failed and was answered.
func (p *reply) body() (d document, ok bool) {
	d.kind = request.ContentType(p.r)
	var err error
	if d.body, err = p.s.readBody(p.r); err != nil {
		p.fail(err)
		return d, false
	}
	return d, true
}

// object reads the body as an object of the call's version, and returns it at
// the storage version.
func (p *reply) decodeObject(d document) (resource.Object, error) {
	obj := p.c.res.newObject()
	if err := d.decode(p.c, obj, p.c.res.gvk); err != nil {
		return nil, err
	}
	stored, err := p.c.res.toStorage(obj)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	return stored, nil
}

func (p *reply) create() {
	if !p.negotiate(request.Allowed{Metadata: true, Table: !p.c.res.def.CreateOnly}) {
		return
	}
	if err := p.writeOptions("CreateOptions"); err != nil {
		p.fail(err)
		return
	}
	d, ok := p.body()
	if !ok {
		return
	}
	if p.c.sub != nil && p.c.sub.Body != nil { // a rollback, which changes its Deployment
		p.updateBody(d)
		return
	}
	obj, err := p.decodeObject(d)
	if err != nil {
		p.fail(err)
		return
	}
	it, err := p.s.create(p.r.Context(), p.c, obj)
	if err != nil {
		p.fail(err)
		return
	}
	p.item(http.StatusCreated, it)
}

func (p *reply) update() {
	if !p.negotiate(request.Allowed{Metadata: true, Table: true}) {
		return
	}
	if err := p.writeOptions("UpdateOptions"); err != nil {
		p.fail(err)
		return
	}
	d, ok := p.body()
	if !ok {
		return
	}
	if p.c.sub != nil && p.c.sub.Body != nil {
		p.updateBody(d)
		return
	}
	obj, err := p.decodeObject(d)
	if err != nil {
		p.fail(err)
		return
	}
	it, created, err := p.s.update(p.r.Context(), p.c, obj)
	if err != nil {
		p.fail(err)
		return
	}
	p.item(okOrCreated(created), it)
}

func okOrCreated(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// updateBody replaces a Scale or its like, or takes what asks for a change.
func (p *reply) updateBody(d document) {
	want := gvkOf(p.c.sub.Body)
	body := p.c.sub.Body.New()
	if err := d.decode(p.c, body, want); err != nil {
		p.fail(err)
		return
	}
	if m, ok := body.(metav1.Object); ok {
		if err := p.c.fitName(m); err != nil {
			p.fail(err)
			return
		}
	}
	answer, err := p.s.updateBody(p.r.Context(), p.c, body)
	if err != nil {
		p.fail(err)
		return
	}
	if gvk := answer.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		want = gvk // a Status
	}
	p.object(http.StatusOK, want, answer)
}

// writeOptions reads the parameters that all writes have.
func (p *reply) writeOptions(kind string) error {
	if p.r.URL.RawQuery == "" {
		return nil
	}
	query := p.r.URL.Query()
	dryRun := query["dryRun"]
	p.c.manager, p.c.validation = query.Get("fieldManager"), query.Get("fieldValidation")
	errs := metav1validation.ValidateDryRun(field.NewPath("dryRun"), dryRun)
	errs = append(errs, metav1validation.ValidateFieldManager(p.c.manager, field.NewPath("fieldManager"))...)
	errs = append(errs, metav1validation.ValidateFieldValidation(field.NewPath("fieldValidation"), p.c.validation)...)
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: kind}, "", errs)
	}
	p.c.dryRun = isDryRun(dryRun)
	return nil
}

func (p *reply) delete() {
	if !p.negotiate(request.Allowed{Metadata: true, Table: true}) {
		return
	}
	o, err := p.deleteOptions()
	if err != nil {
		p.fail(err)
		return
	}
	it, gone, err := p.s.delete(p.r.Context(), p.c, o)
	if err != nil {
		p.fail(err)
		return
	}
	if gone && !answersDeleted[p.c.res.def.String()] {
		p.w.Header().Set(client.RevisionHeader, it.Object.GetResourceVersion())
		p.object(http.StatusOK, statusGVK, deletedStatus(p.c, it))
		return
	}
	code := http.StatusOK
	if !gone && o.OrphanDependents != nil && !*o.OrphanDependents { //nolint:staticcheck // the old form of the policy
		code = http.StatusAccepted
	}
	p.item(code, it)
}

// deleteOptions reads them from the body, or from the parameters if it is empty.
func (p *reply) deleteOptions() (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	body, err := p.s.readBody(p.r)
	if err != nil {
		return nil, err
	}
	if err := decodeDeleteOptions(p.c, document{request.ContentType(p.r), body}, o); err != nil {
		return nil, err
	}
	if len(body) == 0 && p.r.URL.RawQuery != "" {
		query := p.r.URL.Query()
		if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&query, o, nil); err != nil {
			return nil, badRequest("%v", err)
		}
	}
	if errs := metav1validation.ValidateDeleteOptions(o); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "DeleteOptions"}, "", errs)
	}
	p.c.dryRun = isDryRun(o.DryRun)
	return o, nil
}

func (p *reply) deleteCollection() {
	if !p.negotiate(request.Allowed{Metadata: true, Table: true, List: true}) {
		return
	}
	query, err := p.listQuery()
	if err != nil {
		p.fail(err)
		return
	}
	o, err := p.deleteOptions()
	if err != nil {
		p.fail(err)
		return
	}
	items, err := p.s.deleteCollection(p.r.Context(), p.c, o, query)
	if err != nil {
		p.fail(err)
		return
	}
	p.collection(&page{items: items, meta: metav1.ListMeta{ResourceVersion: ""}})
}
