package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/encoded"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// Reply is the answer to one HTTP request on a resource.
type Reply struct {
	W      http.ResponseWriter
	R      *http.Request
	Body   []byte // of the request
	Call   *call.Call
	Accept request.Accept

	Encoded *encoded.Store
	Log     *slog.Logger
	Sent    *Sent         // counts the events of a watch; nil: nobody does
	Traced  *tracing.Span // of making and sending the answer; nil: there is none
}

// Document is the document that the request has sent.
func (p *Reply) Document() call.Document {
	return call.Document{Type: request.ContentType(p.R), Body: p.Body}
}

// Fail answers with an error.
func (p *Reply) Fail(err error) {
	p.Warnings()
	if apierrors.IsMethodNotSupported(err) {
		p.W.Header().Set("Allow", allowed(p.Call))
	}
	p.tellError(err)
	Error(p.W, p.R, err, p.Log)
}

// Item answers with one object.
func (p *Reply) Item(code int, it *cache.Item) {
	p.Warnings()
	switch p.Accept.Shape {
	case request.Table:
		p.table(code, &read.Page{Items: []*cache.Item{it}, Meta: metav1.ListMeta{ResourceVersion: it.Object.GetResourceVersion()}})
		return
	case request.Metadata:
		p.object(code, metadataGVK(p.Accept, "PartialObjectMetadata"), partial(it.Object))
		return
	}
	p.TellItem(it)
	buf := unused.Get().(*[]byte)
	defer unused.Put(buf)
	out, err := p.appendItem((*buf)[:0], it)
	*buf = out
	if err != nil {
		p.Fail(err)
		return
	}
	p.send(code, out)
}

// appendItem appends an object with what it is. Bytes that are kept packed stay so: to
// unpack them for each who asks is less than to find room for them.
func (p *Reply) appendItem(dst []byte, it *cache.Item) ([]byte, error) {
	res, proto := p.Call.Resource, p.Accept.Media == request.MediaProto
	form := res.Forms.In(p.Accept.Bytes())
	size := p.Encoded.Kept(it, form)
	if size == 0 {
		b, err := p.Encoded.Bytes(it, form)
		switch {
		case err != nil:
			return dst, err
		case proto:
			return res.Proto.Append(dst, b), nil
		}
		return served.AppendWithHead(dst, res.Head, b), nil
	}
	if proto {
		dst, err := p.Encoded.Append(res.Proto.AppendHead(dst, size), it, form)
		return res.Proto.AppendTail(dst), err
	}
	dst = append(dst, res.Head...)
	at := len(dst)
	dst, err := p.Encoded.Append(dst, it, form)
	if err != nil {
		return dst, err
	}
	return joinHead(dst, at), nil
}

// unused lends buffers to put answers together in.
var unused = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

// joinHead makes one JSON object of a head and the object that was appended after
// it, at the place given.
func joinHead(dst []byte, at int) []byte {
	if len(dst) == at+len("{}") {
		return append(dst[:at], '}')
	}
	dst[at] = ','
	return dst
}

// Part answers with what is no stored object, or may be shown without the store: what
// stands for an object in the call's subresource (a Scale), or what an action says.
func (p *Reply) Part(code int, obj runtime.Object) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	shown, ok := obj.(resource.Object)
	switch {
	case !gvk.Empty(): // a Status
	case ok && p.Accept.Shape == request.Metadata:
		p.Item(code, read.NewItem(shown, 0))
		return
	case ok && (sameType(shown, p.Call.Resource.Def) || p.Accept.Shape == request.Table && len(p.Call.Columns()) > 0):
		p.Item(code, read.NewItem(shown, 0))
		return
	case p.Call.Sub != nil && p.Call.Sub.Body != nil:
		gvk = p.Document().Accepted(p.Call.Sub.Body)
	default:
		gvk = p.Call.Resource.GVK
	}
	p.object(code, gvk, obj)
}

// object answers with an object that is no stored resource (a Scale, a Status,
// a review). Its kind and apiVersion are set on a copy.
func (p *Reply) object(code int, gvk schema.GroupVersionKind, obj runtime.Object) {
	p.Warnings()
	p.TellPart(gvk, obj)
	out, err := served.AppendAny(nil, p.Accept.Media, gvk, obj)
	if err != nil {
		p.Fail(err)
		return
	}
	p.send(code, out)
}

// send writes JSON or protobuf as the whole answer, in the media type agreed on.
func (p *Reply) send(code int, body []byte) {
	p.Traced.Event("About to start writing response")
	Send(p.W, code, p.Accept, body)
	p.Traced.Event("Write call succeeded")
}

// Send writes what is JSON or protobuf as the whole answer, in the form of a. body may be
// written to.
func Send(w http.ResponseWriter, code int, a request.Accept, body []byte) {
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

// Deleted answers a delete with a Status that names the object, and in a header the
// revision of its last state.
func (p *Reply) Deleted(it *cache.Item) {
	p.W.Header().Set(client.RevisionHeader, it.Object.GetResourceVersion())
	p.object(http.StatusOK, statusGVK, deletedStatus(p.Call, it))
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

// Error answers with the Status of an error, in the media type that the
// client accepts, and in indented JSON if it is none of an object as it is.
func Error(w http.ResponseWriter, r *http.Request, err error, log *slog.Logger) {
	status := refusal.Status(err)
	if status.Code == http.StatusInternalServerError {
		log.WarnContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	a, bad := request.Negotiate(r, request.Allowed{})
	if bad != nil { // what nobody has asked for may be read by a person
		a = request.Accept{Pretty: true}
	}
	body, encodeErr := served.AppendAny(nil, a.Media, statusGVK, status)
	if encodeErr != nil {
		http.Error(w, fmt.Sprintf("%v: %v", encodeErr, err), http.StatusInternalServerError)
		return
	}
	Send(w, int(status.Code), a, body)
}

// sameType reports whether obj is of the Go type that def stores.
func sameType(obj resource.Object, def *resource.Def) bool {
	return reflect.TypeOf(obj) == reflect.TypeOf(def.New())
}
