package apiserver

import (
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/apiserver/answer"
	"github.com/kemudi/kemudi/internal/apiserver/h2"
	"github.com/kemudi/kemudi/internal/apiserver/pieces"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/apiserver/timeouts"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/wire"
)

// httpSink writes the events of a watch as frames. The bytes of an object are
// made once for all watches of its form; only the few bytes around them are
// written for each watch.
type httpSink struct {
	p   *exchange
	out *timeouts.Stream
	buf []byte // of frameRooms while it is not empty
	err error
	// lent: buf is what a lane sends, which is not written here.
	lent    bool
	written int64

	// columnsSent: a table watch describes the columns in its first event only.
	columnsSent bool
}

var _ sink = (*httpSink)(nil)

// frameRooms has the buffers of watches that have nothing to send: few are
// needed at a time, and those are in the processor's cache.
var frameRooms = sync.Pool{New: func() any { return &[]byte{} }}

// newSink sends the headers of a watch.
func (p *exchange) newSink() *httpSink {
	kind := request.JSON
	if p.Accept.Media == request.MediaProto {
		kind = request.Proto + ";stream=watch"
	}
	p.W.Header().Set("Content-Type", kind)
	p.W.WriteHeader(http.StatusOK)
	return &httpSink{p: p, out: timeouts.NewStream(p.W, p.s.o.RequestTimeout)}
}

func (k *httpSink) event(e *cache.Event, many bool) error {
	if k.buf == nil {
		k.buf = *frameRooms.Get().(*[]byte)
	}
	it := e.Item
	switch k.p.Accept.Shape {
	case request.Table:
		return k.tableEvent(string(e.Type), it)
	case request.Metadata:
		return k.object(string(e.Type), answer.MetadataGVK(k.p.Accept, "PartialObjectMetadata"), answer.Partial(it.Object))
	}
	start := len(k.buf)
	if err := k.cached(e, many); err != nil {
		k.buf = k.buf[:start]
		return err
	}
	return k.spill()
}

// cached adds an event with the kept bytes of its object. Those of one of many are
// kept packed at most, as those of a list.
func (k *httpSink) cached(e *cache.Event, many bool) error {
	res, proto := k.p.Call.Resource, k.p.Accept.Media == request.MediaProto
	form, store := res.Forms.In(k.p.Accept.Bytes()), k.p.Encoded
	switch {
	case many && proto:
		size, err := store.Size(e.Item, form)
		if err != nil {
			return err
		}
		k.buf = res.Proto.AppendWatchHead(k.buf, string(e.Type), size)
		if k.buf, err = store.Append(k.buf, e.Item, form); err != nil {
			return err
		}
		k.buf = res.Proto.AppendTail(k.buf)
		return nil
	case many:
		k.buf = append(appendJSONFrame(k.buf, string(e.Type)), res.Head...)
		at, err := len(k.buf), error(nil)
		if k.buf, err = store.Append(k.buf, e.Item, form); err != nil {
			return err
		}
		k.buf = append(answer.JoinHead(k.buf, at), "}\n"...)
		return nil
	}
	b, err := store.Bytes(e.Item, form)
	switch {
	case err != nil:
		return err
	case proto:
		k.buf = append(res.Proto.AppendWatchHead(k.buf, string(e.Type), len(b)), b...)
		k.buf = res.Proto.AppendTail(k.buf)
	default:
		k.buf = served.AppendWithHead(appendJSONFrame(k.buf, string(e.Type)), res.Head, b)
		k.buf = append(k.buf, "}\n"...)
	}
	return nil
}

func appendJSONFrame(dst []byte, event string) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, event...)
	return append(dst, `","object":`...)
}

// object adds an event with an object that is not a cached one.
func (k *httpSink) object(event string, gvk schema.GroupVersionKind, obj runtime.Object) error {
	if k.p.Accept.Media == request.MediaProto {
		raw, err := served.AppendAny(nil, request.MediaProto, gvk, obj)
		if err != nil {
			return err
		}
		_, body, err := wire.OpenProto(raw)
		if err != nil {
			return err
		}
		t := wire.NewProtoType(gvk.GroupVersion().String(), gvk.Kind)
		k.buf = t.AppendTail(append(t.AppendWatchHead(k.buf, event, len(body)), body...))
		return k.spill()
	}
	var err error
	if k.buf, err = served.AppendAny(appendJSONFrame(k.buf, event), request.MediaJSON, gvk, obj); err != nil {
		return err
	}
	k.buf = append(k.buf, "}\n"...)
	return k.spill()
}

func (k *httpSink) bookmark(rev int64, initialEnd bool) error {
	obj := bookmarkObject(k.p.Call.Resource, rev, initialEnd)
	switch k.p.Accept.Shape {
	case request.Table:
		return k.tableEvent("BOOKMARK", read.NewItem(obj, rev))
	case request.Metadata:
		return k.object("BOOKMARK", answer.MetadataGVK(k.p.Accept, "PartialObjectMetadata"), answer.Partial(obj))
	}
	return k.object("BOOKMARK", k.p.Call.Resource.GVK, obj)
}

// fail tells the client why the watch ends, as its last event.
func (k *httpSink) fail(err error) {
	if k.err != nil {
		return // the client has gone
	}
	status := refusal.Status(err)
	if k.object("ERROR", answer.StatusGVK, status) == nil {
		_ = k.flush() // the client may have gone
	}
}

func (k *httpSink) spill() error {
	if len(k.buf) >= pieces.Size && !k.lent {
		return k.write()
	}
	return nil
}

func (k *httpSink) write() error {
	if k.err == nil && len(k.buf) > 0 {
		var n int
		n, k.err = k.out.Write(k.buf)
		k.written += int64(n)
	}
	if room := k.buf[:0]; room != nil {
		k.buf = nil
		frameRooms.Put(&room)
	}
	return k.err
}

func (k *httpSink) flush() error {
	if k.lent {
		return nil
	}
	if err := k.write(); err != nil {
		return err
	}
	k.err = k.out.Flush()
	return k.err
}

// stream sends the events of a watch until the client or its time is gone.
func (p *exchange) stream(w *watcher) {
	p.Warnings()
	sink := p.newSink()
	w.sink = sink
	if lane := h2.Open(p.R.Context(), p.W); lane != nil {
		w.source = &laneSource{w: w, sink: sink, lane: lane, limit: p.s.o.RequestTimeout}
		defer w.source.close()
	}
	done := p.s.metrics.watcher(p.Call)
	defer done()
	if err := w.run(p.R.Context()); err != nil {
		sink.fail(err)
	}
}

// tableEvent adds an event whose object is a table of one row. The columns are
// described in the first event only, as upstream has it.
func (k *httpSink) tableEvent(event string, it *cache.Item) error {
	policy, err := k.p.Include()
	if err != nil {
		return err
	}
	one := &read.Page{Items: []*cache.Item{it}, Meta: metav1.ListMeta{ResourceVersion: it.Object.GetResourceVersion()}}
	body := k.p.AppendTable(&pieces.Writer{}, one, answer.TableOptions{Include: policy, Columns: !k.columnsSent})
	k.columnsSent = true
	k.buf = appendJSONFrame(k.buf, event)
	k.buf = append(k.buf, body...)
	k.buf = append(k.buf, "}\n"...)
	return k.spill()
}
