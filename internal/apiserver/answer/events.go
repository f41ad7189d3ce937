package answer

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/apiserver/pieces"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/apiserver/timeouts"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/wire"
)

// Events answers a watch: it writes events as frames. The bytes of an object are
// made once for all watches of its form; only the few bytes around them are
// written for each watch. It is for one goroutine at a time.
type Events struct {
	p   *Reply
	out *timeouts.Stream
	buf []byte // of frameBuffers while it is not empty
	err error
	// lent: buf is what a lane sends, which is not written here.
	lent    bool
	whole   int // bytes of buf that are whole events
	written int64

	// columnsSent: a table watch describes the columns in its first event only.
	columnsSent bool
}

// frameBuffers has the buffers of watches that have nothing to send: few are
// needed at a time, and those are in the processor's cache.
var frameBuffers = sync.Pool{New: func() any { return &[]byte{} }}

// Events sends the headers of a watch. Its client may take limit to receive what is
// sent at a time.
func (p *Reply) Events(limit time.Duration) *Events {
	p.Warnings()
	kind := request.JSON
	if p.Accept.Media == request.MediaProto {
		kind = request.Proto + ";stream=watch"
	}
	p.W.Header().Set("Content-Type", kind)
	p.W.WriteHeader(http.StatusOK)
	return &Events{p: p, out: timeouts.NewStream(p.W, limit)}
}

// Add adds an event, which is one of many that begin a watch or not. [Events.Flush] sends
// all added since.
func (k *Events) Add(e *cache.Event, many bool) error {
	if k.buf == nil {
		k.buf = *frameBuffers.Get().(*[]byte)
	}
	before := k.written + int64(len(k.buf))
	if err := k.add(e, many); err != nil {
		return err
	}
	k.whole = len(k.buf)
	k.count(before)
	return nil
}

// count counts what was added since there were so many bytes.
func (k *Events) count(before int64) {
	if k.p.Sent != nil {
		k.p.Sent.add(int(k.written + int64(len(k.buf)) - before))
	}
}

func (k *Events) add(e *cache.Event, many bool) error {
	it := e.Item
	switch k.p.Accept.Shape {
	case request.Table:
		return k.tableEvent(string(e.Type), it)
	case request.Metadata:
		return k.object(string(e.Type), metadataGVK(k.p.Accept, "PartialObjectMetadata"), partial(it.Object))
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
func (k *Events) cached(e *cache.Event, many bool) error {
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
		k.buf = append(joinHead(k.buf, at), "}\n"...)
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
func (k *Events) object(event string, gvk schema.GroupVersionKind, obj runtime.Object) error {
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

// Bookmark adds a bookmark: the client has all events up to a revision, those that begin
// the watch being the last or not.
func (k *Events) Bookmark(rev int64, initialEnd bool) error {
	obj := bookmarkObject(k.p.Call.Resource, rev, initialEnd)
	defer k.count(k.written + int64(len(k.buf)))
	switch k.p.Accept.Shape {
	case request.Table:
		return k.tableEvent("BOOKMARK", read.NewItem(obj, rev))
	case request.Metadata:
		return k.object("BOOKMARK", metadataGVK(k.p.Accept, "PartialObjectMetadata"), partial(obj))
	}
	return k.object("BOOKMARK", k.p.Call.Resource.GVK, obj)
}

// Fail tells the client why the watch ends, as its last event.
func (k *Events) Fail(err error) {
	if k.err != nil {
		return // the client has gone
	}
	status := refusal.Status(err)
	if k.object("ERROR", statusGVK, status) == nil {
		_ = k.Flush() // the client may have gone
	}
}

func (k *Events) spill() error {
	if len(k.buf) >= pieces.Size && !k.lent {
		return k.write()
	}
	return nil
}

func (k *Events) write() error {
	if k.err == nil && len(k.buf) > 0 {
		var n int
		n, k.err = k.out.Write(k.buf)
		k.written += int64(n)
	}
	if empty := k.buf[:0]; empty != nil {
		k.buf = nil
		frameBuffers.Put(&empty)
	}
	return k.err
}

// Flush sends what was added, unless a lane does.
func (k *Events) Flush() error {
	if k.lent {
		return nil
	}
	if err := k.write(); err != nil {
		return err
	}
	k.err = k.out.Flush()
	return k.err
}

// Into has fill add events to dst, which a lane sends: from now on nothing is written here.
// It returns dst with what are whole events. An error other than [io.EOF] is told
// to the client, a panic of fill included.
func (k *Events) Into(dst []byte, fill func() error) ([]byte, error) {
	k.buf, k.whole, k.lent = dst, len(dst), true
	err := task.Contain(fill)
	if err != nil && !errors.Is(err, io.EOF) {
		k.buf = k.buf[:k.whole]
		k.Fail(err)
	}
	dst, k.buf = k.buf, nil
	return dst, err
}

// Len is how many bytes there are that are not sent, those before in what a lane sends included.
func (k *Events) Len() int { return len(k.buf) }

// Written is how many bytes have been sent, lanes not counted.
func (k *Events) Written() int64 { return k.written }

// CutOff ends the answer as one that is not whole.
func (k *Events) CutOff() { k.out.Reset() }

// tableEvent adds an event whose object is a table of one row. The columns are
// described in the first event only, as upstream has it.
func (k *Events) tableEvent(event string, it *cache.Item) error {
	policy, err := k.p.include()
	if err != nil {
		return err
	}
	if it.Object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "" && policy == metav1.IncludeNone {
		policy = metav1.IncludeMetadata // which alone has it
	}
	one := &read.Page{Items: []*cache.Item{it}, Meta: metav1.ListMeta{ResourceVersion: it.Object.GetResourceVersion()}}
	body := k.p.appendTable(&pieces.Writer{}, one, tableOptions{include: policy, columns: !k.columnsSent})
	k.columnsSent = true
	k.buf = appendJSONFrame(k.buf, event)
	k.buf = append(k.buf, body...)
	k.buf = append(k.buf, "}\n"...)
	return k.spill()
}

// bookmarkObject is an object of the version that says nothing but a revision.
func bookmarkObject(v *served.Resource, rev int64, initialEnd bool) resource.Object {
	obj := v.New()
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	if initialEnd {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return obj
}
