package apiserver

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/apiserver/encoded"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/wire"
)

// listOptions reads the parameters of lists and watches.
func (p *reply) listOptions() (*metav1.ListOptions, error) {
	o := &metav1.ListOptions{}
	if p.r.URL.RawQuery == "" {
		return o, nil
	}
	query := p.r.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, o, nil); err != nil {
		return nil, badRequest("%v", err)
	}
	o.Watch = p.c.verb == "watch"
	errs := validation.ValidateListOptions(&internalversion.ListOptions{
		Watch: o.Watch, AllowWatchBookmarks: o.AllowWatchBookmarks, ResourceVersion: o.ResourceVersion,
		ResourceVersionMatch: o.ResourceVersionMatch, Limit: o.Limit, Continue: o.Continue, SendInitialEvents: o.SendInitialEvents,
	}, true)
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", errs)
	}
	return o, nil
}

// selection narrows the call by the options; a name in the path counts as a
// field selector, as in the old form of watches.
func (p *reply) selection(o *metav1.ListOptions) (*selection, error) {
	sel, err := newSelection(p.c, o.LabelSelector, o.FieldSelector)
	if err != nil || p.c.name == "" || sel.name == p.c.name {
		return sel, err
	}
	sel.name = p.c.name
	sel.fields = append(sel.fields, requirement{get: nameOf, value: p.c.name})
	return sel, nil
}

func (p *reply) listQuery() (*listQuery, error) {
	o, err := p.listOptions()
	if err != nil {
		return nil, err
	}
	sel, err := p.selection(o)
	if err != nil {
		return nil, err
	}
	return &listQuery{sel: sel, rev: o.ResourceVersion, match: o.ResourceVersionMatch, limit: o.Limit, token: o.Continue}, nil
}

func (p *reply) list() {
	if !p.negotiate(request.Allowed{Table: true, Metadata: true, List: true}) {
		return
	}
	query, err := p.listQuery()
	if err != nil {
		p.fail(err)
		return
	}
	page, err := p.s.list(p.r.Context(), p.c, query)
	if err != nil {
		p.fail(err)
		return
	}
	p.collection(page)
}

// collection answers with a list, in the form agreed on.
func (p *reply) collection(page *page) {
	if p.a.Shape == request.Metadata || p.a.Media == request.MediaYAML || p.a.Pretty {
		give, ok := p.s.memory.Take(p.memoryOfWhole(page))
		if !ok {
			p.s.tooMany(p.w, p.r)
			return
		}
		defer give()
	}
	p.warnings()
	switch {
	case p.a.Shape == request.Table:
		p.table(http.StatusOK, page)
	case p.a.Shape == request.Metadata:
		p.metadataList(page)
	case p.a.Media == request.MediaProto:
		p.protoList(page)
	case p.a.Media == request.MediaYAML || p.a.Pretty:
		p.wholeList(page)
	default:
		p.jsonList(page)
	}
}

func (p *reply) jsonList(page *page) {
	p.w.Header().Set("Content-Type", request.JSON)
	l := &listWriter{w: p.w, buf: make([]byte, 0, flushSize+64<<10)}
	l.buf = p.appendJSONList(l, page)
	l.buf = append(l.buf, '\n')
	l.flush()
}

// appendJSONList returns what of the list is not written yet.
func (p *reply) appendJSONList(l *listWriter, page *page) []byte {
	l.buf = append(l.buf, p.c.res.listHead...)
	l.buf = append(l.buf, `,"metadata":`...)
	l.buf, _ = wire.AppendJSON(l.buf, &page.meta)
	l.buf = append(l.buf, `,"items":[`...)
	bytes := p.bulk(page, p.c.res.forms.json)
	p.items(l, page, func(dst []byte, i int) ([]byte, error) {
		if i > 0 {
			dst = append(dst, ',')
		}
		return bytes(dst, page.items[i])
	})
	return append(l.buf, "]}"...)
}

// items writes the items of a list, each as item appends it.
func (p *reply) items(l *listWriter, page *page, item func(dst []byte, i int) ([]byte, error)) {
	if err := l.items(len(page.items), item); err != nil {
		p.s.log.WarnContext(p.r.Context(), "encode list item", "err", err)
		panic(http.ErrAbortHandler) // the answer has begun: cut it off
	}
}

// memoryOfWhole is about what it takes to make a list that is not sent piece by
// piece: its objects as they are, and again in the form asked for, while buffers double.
func (p *reply) memoryOfWhole(page *page) int64 {
	const samples = 8
	times := int64(6)
	switch {
	case p.a.Shape == request.Metadata:
		times = 2
	case p.a.Media == request.MediaYAML:
		times = 15 // by way of maps
	}
	n, sum := len(page.items), 0
	for i := range min(n, samples) {
		size, err := p.s.encoded.Size(page.items[i*n/min(n, samples)], p.c.res.forms.json)
		if err != nil {
			return 0 // that the list cannot be made is found out below
		}
		sum += size
	}
	return times * int64(n) * int64(sum) / int64(max(min(n, samples), 1))
}

// wholeList sends a list that is to be reformatted.
func (p *reply) wholeList(page *page) {
	p.send(http.StatusOK, p.appendJSONList(&listWriter{}, page))
}

// few is up to how many items of a list are kept as they were sent. With more
// they would push everything else out.
const few = 500

// bulk returns what appends the bytes of a page's items.
func (p *reply) bulk(page *page, f *encoded.Form) func(dst []byte, it *cache.Item) ([]byte, error) {
	if len(page.items) > few {
		return func(dst []byte, it *cache.Item) ([]byte, error) { return p.s.encoded.Append(dst, it, f) }
	}
	return func(dst []byte, it *cache.Item) ([]byte, error) {
		b, err := p.s.encoded.Bytes(it, f)
		return append(dst, b...), err
	}
}

// protoList sends the list's length first, so sizes are summed up before.
func (p *reply) protoList(page *page) {
	f := p.c.res.forms.proto
	head, err := wire.AppendListHead(nil, &page.meta)
	if err != nil {
		p.fail(err)
		return
	}
	size := len(head)
	sizes := make([]int, len(page.items))
	for i, it := range page.items {
		if sizes[i], err = p.s.encoded.Size(it, f); err != nil {
			p.fail(err)
			return
		}
		size += wire.ListItemSize(sizes[i])
	}
	p.w.Header().Set("Content-Type", request.Proto)
	l := &listWriter{w: p.w, buf: make([]byte, 0, flushSize+64<<10)}
	l.buf = append(p.c.res.listProto.AppendHead(l.buf, size), head...)
	bytes := p.bulk(page, f)
	p.items(l, page, func(dst []byte, i int) ([]byte, error) {
		return bytes(wire.AppendListItemHead(dst, sizes[i]), page.items[i])
	})
	l.buf = p.c.res.listProto.AppendTail(l.buf)
	l.flush()
}

func (p *reply) metadataList(page *page) {
	list := &metav1.PartialObjectMetadataList{ListMeta: page.meta, Items: make([]metav1.PartialObjectMetadata, len(page.items))}
	gvk := metadataGVK(p.a, "PartialObjectMetadata")
	for i, it := range page.items {
		list.Items[i] = *partial(it.Object)
		list.Items[i].SetGroupVersionKind(gvk)
	}
	p.object(http.StatusOK, metadataGVK(p.a, "PartialObjectMetadataList"), list)
}

// watch streams events until the client or its time is gone.
func (p *reply) watch() {
	if !p.negotiate(request.Allowed{Table: true, Metadata: true, Stream: true}) {
		return
	}
	o, err := p.listOptions()
	if err != nil {
		p.fail(err)
		return
	}
	q := &watchQuery{rev: o.ResourceVersion, bookmarks: o.AllowWatchBookmarks, sendInitial: o.SendInitialEvents}
	if o.TimeoutSeconds != nil {
		q.timeout = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	if q.sel, err = p.selection(o); err != nil {
		p.fail(err)
		return
	}
	wt, err := p.s.startWatch(p.r.Context(), p.c, q)
	if apierrors.IsResourceExpired(err) {
		p.newSink().fail(err) // an event, as if the watch had begun
		return
	}
	if err != nil {
		p.fail(err)
		return
	}
	p.warnings()
	sink := p.newSink()
	wt.sink = sink
	done := p.s.metrics.watcher(p.c)
	defer done()
	if err := wt.run(p.r.Context()); err != nil {
		sink.fail(err)
	}
}
