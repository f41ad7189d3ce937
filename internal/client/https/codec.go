package https

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// Media types.
const (
	mediaJSON  = "application/json"
	mediaProto = "application/vnd.kubernetes.protobuf"
)

// accepts is the media type in which objects of a resource are asked for.
func accepts(def *resource.Def) string {
	if _, ok := def.New().(wire.Proto); ok {
		return mediaProto
	}
	return mediaJSON
}

func mediaType(h http.Header) string {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return kind
}

// magic begins every protobuf document of Kubernetes.
const magic = "k8s\x00"

// inEnvelope is an object as it is sent.
func inEnvelope(gvk schema.GroupVersionKind, obj wire.Proto) ([]byte, error) {
	return wire.NewProtoType(gvk.GroupVersion().String(), gvk.Kind).AppendProto(nil, obj)
}

// encodeObject encodes what a request creates or writes.
func encodeObject(r *client.Request) (body []byte, kind string, err error) {
	gvk := bodyGVK(r)
	if m, ok := r.Object.(wire.Proto); ok {
		body, err = inEnvelope(gvk, m)
		return body, mediaProto, err
	}
	if r.Object == nil {
		return nil, "", errors.New("there is no object")
	}
	r.Object.GetObjectKind().SetGroupVersionKind(gvk)
	body, err = wire.AppendJSON(nil, r.Object)
	return body, mediaJSON, err
}

// bodyGVK is the kind of what a request sends.
func bodyGVK(r *client.Request) schema.GroupVersionKind {
	if sub := r.Def.Subresource(r.Sub); sub != nil && sub.Body != nil {
		return schema.GroupVersionKind{Group: sub.Body.Group, Version: sub.Body.Version, Kind: sub.Body.Kind}
	}
	return r.Def.GVK()
}

// errForm says that an answer is not written as Kubernetes' protobuf.
var errForm = errors.New("the answer is not a protobuf message of Kubernetes")

// fields calls fn with each length-delimited field of a message. value shares
// the message's memory.
func fields(msg []byte, fn func(n protowire.Number, value []byte) error) error {
	for len(msg) > 0 {
		n, kind, size := protowire.ConsumeTag(msg)
		if size < 0 {
			return fmt.Errorf("read protobuf: %w", protowire.ParseError(size))
		}
		msg = msg[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(n, kind, msg); size < 0 {
				return fmt.Errorf("read protobuf: %w", protowire.ParseError(size))
			}
			msg = msg[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(msg)
		if size < 0 {
			return fmt.Errorf("read protobuf: %w", protowire.ParseError(size))
		}
		if err := fn(n, value); err != nil {
			return err
		}
		msg = msg[size:]
	}
	return nil
}

// document is an object as it was sent.
type document struct {
	proto      bool
	apiVersion string
	kind       string
	raw        []byte // the bare message, or the whole JSON
}

// open finds out what a document is.
func open(kind string, data []byte) (d document, err error) {
	switch kind {
	case mediaProto:
		d.proto = true
		rest, ok := bytes.CutPrefix(data, []byte(magic))
		if !ok {
			return d, errForm
		}
		err = fields(rest, func(n protowire.Number, value []byte) error { // runtime.Unknown
			switch n {
			case 1:
				return fields(value, func(n protowire.Number, value []byte) error { // runtime.TypeMeta
					switch n {
					case 1:
						d.apiVersion = string(value)
					case 2:
						d.kind = string(value)
					}
					return nil
				})
			case 2:
				d.raw = value
			}
			return nil
		})
		return d, err
	case mediaJSON:
		var meta metav1.TypeMeta
		err = json.Unmarshal(data, &meta)
		d.apiVersion, d.kind, d.raw = meta.APIVersion, meta.Kind, data
		return d, err
	}
	return d, fmt.Errorf("the answer is of media type %q", kind)
}

// into reads the document as an object.
func (d *document) into(obj runtime.Object) error {
	var err error
	switch m, ok := obj.(wire.Proto); {
	case d.proto && !ok:
		err = fmt.Errorf("%T has no protobuf form", obj)
	case d.proto:
		err = m.Unmarshal(d.raw)
	default:
		err = readJSON(d.raw, obj)
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", d.apiVersion, d.kind, err)
	}
	return nil
}

func readJSON(data []byte, obj runtime.Object) error {
	if d, ok := obj.(resource.Document); ok {
		return d.UnmarshalJSON(data)
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.UnmarshalJSON(data)
	}
	return wire.DecodeJSON(data, obj)
}

// read reads a document as an object of the resource.
func read(def *resource.Def, d *document) (resource.Object, error) {
	obj := def.New()
	if err := d.into(obj); err != nil {
		return nil, err
	}
	return untyped(def, obj), nil
}

// untyped takes apiVersion and kind from an object of a Go type, as objects in caches have none.
// An unstructured object is given its own: nothing else tells its kind.
func untyped(def *resource.Def, obj resource.Object) resource.Object {
	if _, ok := obj.(*unstructured.Unstructured); ok {
		obj.GetObjectKind().SetGroupVersionKind(def.GVK())
	} else {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return obj
}

func (d *document) isStatus() bool { return d.kind == "Status" && d.apiVersion == "v1" }

// status reads the answer as a Status.
func (a *answer) status() (*metav1.Status, error) {
	d, err := open(a.kind, a.body)
	if err != nil {
		return nil, err
	}
	if !d.isStatus() {
		return nil, fmt.Errorf("the answer is a %s, want a Status", d.kind)
	}
	s := &metav1.Status{}
	if err := d.into(s); err != nil {
		return nil, err
	}
	s.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	return s, nil
}

// object reads the answer to a request about one object.
func (a *answer) object(r *client.Request) (runtime.Object, error) {
	if r.Verb == "deletecollection" {
		return nil, nil
	}
	d, err := open(a.kind, a.body)
	if err != nil {
		return nil, err
	}
	if d.isStatus() {
		s, err := a.status()
		if err == nil && r.Verb == "delete" {
			return a.deleted(r, s), nil
		}
		return s, err
	}
	if sub := r.Def.Subresource(r.Sub); sub != nil && sub.Body != nil && d.kind == sub.Body.Kind {
		body := sub.Body.New()
		return body, d.into(body)
	}
	return read(r.Def, &d)
}

// deleted is what is known of an object that is gone: who it was, and the
// revision of its deletion, which the Status has no place for.
func (a *answer) deleted(r *client.Request, s *metav1.Status) resource.Object {
	obj := r.Def.New()
	if u, ok := obj.(*unstructured.Unstructured); ok {
		u.SetGroupVersionKind(r.Def.GVK())
	}
	obj.SetName(r.Name)
	if r.Def.Namespaced {
		obj.SetNamespace(r.Namespace)
	}
	if s.Details != nil {
		obj.SetUID(types.UID(s.Details.UID))
	}
	obj.SetResourceVersion(a.header.Get(client.RevisionHeader))
	return obj
}

// list reads the answer as a list of objects of the resource.
func (a *answer) list(def *resource.Def) (client.List, error) {
	d, err := open(a.kind, a.body)
	if err != nil {
		return client.List{}, err
	}
	var l client.List
	var meta metav1.ListMeta
	if d.proto {
		err = fields(d.raw, func(n protowire.Number, value []byte) error { // every kind of list
			switch n {
			case 1:
				return meta.Unmarshal(value)
			case 2:
				obj, err := read(def, &document{proto: true, apiVersion: d.apiVersion, kind: def.Kind, raw: value})
				l.Items = append(l.Items, obj)
				return err
			}
			return nil
		})
	} else {
		meta, l.Items, err = jsonItems(def, &d)
	}
	if err != nil {
		return client.List{}, fmt.Errorf("read list of %s: %w", def, err)
	}
	l.ResourceVersion, l.Continue, l.Remaining = meta.ResourceVersion, meta.Continue, meta.RemainingItemCount
	if l.Items == nil {
		l.Items = []resource.Object{}
	}
	return l, nil
}

func jsonItems(def *resource.Def, d *document) (metav1.ListMeta, []resource.Object, error) {
	var list struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(d.raw, &list); err != nil {
		return list.Metadata, nil, err
	}
	items := make([]resource.Object, len(list.Items))
	for i, raw := range list.Items {
		obj := def.New()
		var err error
		if u, ok := obj.(*unstructured.Unstructured); ok { // items of lists need not say their kind
			err = wire.DecodeJSON(raw, &u.Object)
		} else {
			err = readJSON(raw, obj)
		}
		if err != nil {
			return list.Metadata, nil, err
		}
		items[i] = untyped(def, obj)
	}
	return list.Metadata, items, nil
}

// revision is the resourceVersion of an object as a number.
func revision(text string) (int64, error) {
	rev, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resource version %q: %w", text, err)
	}
	return rev, nil
}
