package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/encoded"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// reply is the answer to one HTTP request on a resource.
type reply struct {
	w    http.ResponseWriter
	r    *http.Request
	body []byte // of the request
	c    *call.Call
	a    request.Accept

	encoded *encoded.Store
	log     *slog.Logger
}

// doc is the document that the request has sent.
func (p *reply) doc() call.Document {
	return call.Document{Type: request.ContentType(p.r), Body: p.body}
}

// fail answers with an error.
func (p *reply) fail(err error) {
	p.warnings()
	if apierrors.IsMethodNotSupported(err) {
		p.w.Header().Set("Allow", allowed(p.c))
	}
	writeError(p.w, p.r, err, p.log)
}

// warnings sends what the client should know: once each, before the answer.
func (p *reply) warnings() {
	if v := p.c.Resource.Version; v != nil && v.Deprecated != "" {
		addWarning(p.w, v.Deprecated)
	}
	for _, text := range p.c.Warnings {
		addWarning(p.w, text)
	}
	p.c.Warnings = nil
}

func addWarning(w http.ResponseWriter, text string) {
	if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
		w.Header().Add("Warning", header)
	}
}

// item answers with one object.
func (p *reply) item(code int, it *cache.Item) {
	p.warnings()
	switch p.a.Shape {
	case request.Table:
		p.table(code, &read.Page{Items: []*cache.Item{it}, Meta: metav1.ListMeta{ResourceVersion: it.Object.GetResourceVersion()}})
		return
	case request.Metadata:
		p.object(code, metadataGVK(p.a, "PartialObjectMetadata"), partial(it.Object))
		return
	}
	b, err := p.encoded.Bytes(it, p.c.Resource.Forms.In(p.a.Bytes()))
	if err != nil {
		p.fail(err)
		return
	}
	room := rooms.Get().(*[]byte)
	defer rooms.Put(room)
	out := (*room)[:0]
	if p.a.Media == request.MediaProto {
		out = p.c.Resource.Proto.Append(out, b)
	} else {
		out = served.AppendWithHead(out, p.c.Resource.Head, b)
	}
	*room = out
	p.send(code, out)
}

// rooms lends room to put answers together in.
var rooms = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

// joinHead makes one JSON object of a head and the object that was appended after
// it, at the place given.
func joinHead(dst []byte, at int) []byte {
	if len(dst) == at+len("{}") {
		return append(dst[:at], '}')
	}
	dst[at] = ','
	return dst
}

// part answers with what is no stored object, or may be shown without the store: what
// stands for an object in the call's subresource (a Scale), or what an action says.
func (p *reply) part(code int, obj runtime.Object) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	shown, ok := obj.(resource.Object)
	switch {
	case !gvk.Empty(): // a Status
	case ok && (sameType(shown, p.c.Resource.Def) || p.a.Shape == request.Table && len(p.c.Columns()) > 0):
		p.item(code, read.NewItem(shown, 0))
		return
	case p.c.Sub != nil && p.c.Sub.Body != nil:
		gvk = p.doc().Accepted(p.c.Sub.Body)
	default:
		gvk = p.c.Resource.GVK
	}
	p.object(code, gvk, obj)
}

// object answers with an object that is no stored resource (a Scale, a Status,
// a review). Its kind and apiVersion are set on a copy.
func (p *reply) object(code int, gvk schema.GroupVersionKind, obj runtime.Object) {
	p.warnings()
	out, err := served.AppendAny(nil, p.a.Media, gvk, obj)
	if err != nil {
		p.fail(err)
		return
	}
	p.send(code, out)
}

// send writes JSON or protobuf as the whole answer, in the media type agreed on.
func (p *reply) send(code int, body []byte) {
	send(p.w, code, p.a, body)
}

func send(w http.ResponseWriter, code int, a request.Accept, body []byte) {
	h := w.Header()
	switch {
	case a.Media == request.MediaProto:
		h.Set("Content-Type", request.Proto)
	case a.Media == request.MediaYAML:
		h.Set("Content-Type", request.YAML)
		if doc, err := wire.JSONToYAML(body); err == nil {
			body = doc
		}
	default:
		h.Set("Content-Type", request.JSON)
		if a.Pretty {
			var out bytes.Buffer
			if json.Indent(&out, body, "", "  ") == nil {
				body = out.Bytes()
			}
		} else {
			body = append(body, '\n')
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // an error means that the client has gone
}

// statusGVK is the kind of every error and of plain successes.
var statusGVK = schema.GroupVersionKind{Version: "v1", Kind: "Status"}

// partial is an object's metadata alone.
func partial(obj resource.Object) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: objectMeta(obj)}
}

// objectMeta is the metadata of an object; what it refers to is shared.
func objectMeta(obj resource.Object) metav1.ObjectMeta {
	if a, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if m, ok := a.GetObjectMeta().(*metav1.ObjectMeta); ok {
			return *m
		}
	}
	return copyMeta(obj)
}

// copyMeta reads the metadata of an object that keeps it in its own way.
func copyMeta(obj resource.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: obj.GetName(), GenerateName: obj.GetGenerateName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(), Generation: obj.GetGeneration(), CreationTimestamp: obj.GetCreationTimestamp(),
		DeletionTimestamp: obj.GetDeletionTimestamp(), DeletionGracePeriodSeconds: obj.GetDeletionGracePeriodSeconds(),
		Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(), OwnerReferences: obj.GetOwnerReferences(),
		Finalizers: obj.GetFinalizers(), ManagedFields: obj.GetManagedFields(),
	}
}

// metadataGVK is a kind of the meta group at the version that was asked for.
func metadataGVK(a request.Accept, kind string) schema.GroupVersionKind {
	gvk := schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: kind}
	if a.Beta {
		gvk.Version = "v1beta1"
	}
	return gvk
}

// deleted answers a delete with a Status that names the object, and in a header the
// revision of its last state.
func (p *reply) deleted(it *cache.Item) {
	p.w.Header().Set(client.RevisionHeader, it.Object.GetResourceVersion())
	p.object(http.StatusOK, statusGVK, deletedStatus(p.c, it))
}

// deletedStatus is the Status that answers a delete.
func deletedStatus(c *call.Call, item *cache.Item) *metav1.Status {
	return &metav1.Status{
		Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: item.Object.GetName(), Group: c.Resource.GVK.Group, Kind: c.Resource.Def.Plural, UID: item.Object.GetUID(),
		},
	}
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

// methods are those of HTTP, with the verbs that they mean for an object and for
// a collection.
var methods = []struct{ method, object, collection string }{
	{http.MethodGet, "get", "list"},
	{http.MethodPost, "", "create"},
	{http.MethodPut, "update", ""},
	{http.MethodPatch, "patch", ""},
	{http.MethodDelete, "delete", "deletecollection"},
}

// writeError answers with the Status of an error, in the media type that the
// client accepts.
func writeError(w http.ResponseWriter, r *http.Request, err error, log *slog.Logger) {
	status := refusal.Status(err)
	if status.Code == http.StatusInternalServerError {
		log.WarnContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	a, bad := request.Negotiate(r, request.Allowed{Stream: true})
	if bad != nil {
		a = request.Accept{Pretty: request.WantsPretty(r)}
	}
	body, encodeErr := served.AppendAny(nil, a.Media, statusGVK, status)
	if encodeErr != nil {
		http.Error(w, fmt.Sprintf("%v: %v", encodeErr, err), http.StatusInternalServerError)
		return
	}
	send(w, int(status.Code), a, body)
}
