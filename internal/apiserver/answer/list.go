package answer

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/encoded"
	"github.com/kemudi/kemudi/internal/apiserver/pieces"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/wire"
)

// Collection answers with a list, in the form agreed on.
func (p *Reply) Collection(page *read.Page) {
	p.Warnings()
	if p.Accept.Shape == request.Object {
		p.TellCollection(page)
	}
	switch {
	case p.Accept.Shape == request.Table:
		p.table(http.StatusOK, page)
	case p.Accept.Shape == request.Metadata:
		p.metadataList(page)
	case p.Accept.Media == request.MediaProto:
		p.protoList(page)
	case p.Accept.Media == request.MediaYAML || p.Accept.Pretty:
		p.wholeList(page)
	default:
		p.jsonList(page)
	}
}

func (p *Reply) jsonList(page *read.Page) {
	p.W.Header().Set("Content-Type", request.JSON)
	p.long(p.listOfJSON(page, "]}\n"))
}

// listOfJSON is a list without its end, which is told.
func (p *Reply) listOfJSON(page *read.Page, end string) *long {
	l := &long{page: page, form: p.Call.Resource.Forms.JSON, tail: []byte(end)}
	l.head = append(l.head, p.Call.Resource.ListHead...)
	l.head = append(l.head, `,"metadata":`...)
	l.head, _ = wire.AppendJSON(l.head, &page.Meta)
	l.head = append(l.head, `,"items":[`...)
	bytes := p.bulk(page, l.form)
	if p.Call.Resource.Def.Dynamic != nil {
		bytes = p.named(bytes)
	}
	l.item = func(dst []byte, i int) ([]byte, error) {
		if i > 0 {
			dst = append(dst, ',')
		}
		return bytes(dst, page.Items[i])
	}
	return l
}

// named says of each item what it is, as lists of kinds without a Go type do: their clients read
// items as they read objects.
func (p *Reply) named(bytes func(dst []byte, it *cache.Item) ([]byte, error)) func([]byte, *cache.Item) ([]byte, error) {
	return func(dst []byte, it *cache.Item) ([]byte, error) {
		dst = append(dst, p.Call.Resource.Head...)
		at := len(dst)
		dst, err := bytes(dst, it)
		if err == nil {
			dst[at] = ',' // in place of its brace: an object has metadata at the least
		}
		return dst, err
	}
}

// items writes the items of a list, each as item appends it.
func (p *Reply) items(l *pieces.Writer, page *read.Page, item func(dst []byte, i int) ([]byte, error)) {
	if err := l.Items(len(page.Items), item); err != nil {
		p.Log.WarnContext(p.R.Context(), "encode list item", "err", err)
		panic(http.ErrAbortHandler) // the answer has begun: cut it off
	}
}

// MemoryOf is about what it takes to make a list, beside buffers. One that is not sent
// piece by piece takes its objects as they are, and again in the form asked for, while
// buffers double.
func (p *Reply) MemoryOf(page *read.Page) int64 {
	if p.Accept.Shape != request.Metadata && p.Accept.Media != request.MediaYAML && !p.Accept.Pretty {
		return 0
	}
	const samples = 8
	times := int64(6)
	switch {
	case p.Accept.Shape == request.Metadata:
		times = 2
	case p.Accept.Media == request.MediaYAML:
		times = 15 // by way of maps
	}
	n, sum := len(page.Items), 0
	for i := range min(n, samples) {
		size, err := p.Encoded.Size(page.Items[i*n/min(n, samples)], p.Call.Resource.Forms.JSON)
		if err != nil {
			return 0 // that the list cannot be made is found out below
		}
		sum += size
	}
	return times * int64(n) * int64(sum) / int64(max(min(n, samples), 1))
}

// wholeList sends a list that is to be reformatted.
func (p *Reply) wholeList(page *read.Page) {
	list, l := p.listOfJSON(page, "]}"), &pieces.Writer{}
	l.Buf = append(l.Buf, list.head...)
	p.items(l, page, list.item)
	p.send(http.StatusOK, append(l.Buf, list.tail...))
}

// Few is up to how many objects that are asked for together are kept as they were
// sent. With more, or part by part, they would push everything else out: kept
// packed, they take little and are nearly as quick.
const Few = 32

// bulk returns what appends the bytes of a page's items.
func (p *Reply) bulk(page *read.Page, f *encoded.Form) func(dst []byte, it *cache.Item) ([]byte, error) {
	if page.Part || len(page.Items) > Few {
		return func(dst []byte, it *cache.Item) ([]byte, error) { return p.Encoded.Append(dst, it, f) }
	}
	return func(dst []byte, it *cache.Item) ([]byte, error) {
		b, err := p.Encoded.Bytes(it, f)
		return append(dst, b...), err
	}
}

// protoList sends the list's length first, so sizes are summed up before.
func (p *Reply) protoList(page *read.Page) {
	f := p.Call.Resource.Forms.Proto
	head, err := wire.AppendListHead(nil, &page.Meta)
	if err != nil {
		p.Fail(err)
		return
	}
	size := len(head)
	sizes := make([]int, len(page.Items))
	for i, it := range page.Items {
		if sizes[i], err = p.Encoded.Size(it, f); err != nil {
			p.Fail(err)
			return
		}
		size += wire.ListItemSize(sizes[i])
	}
	p.W.Header().Set("Content-Type", request.Proto)
	bytes := p.bulk(page, f)
	p.long(&long{
		page: page, form: f, head: append(p.Call.Resource.ListProto.AppendHead(nil, size), head...), tail: p.Call.Resource.ListProto.AppendTail(nil),
		item: func(dst []byte, i int) ([]byte, error) {
			return bytes(wire.AppendListItemHead(dst, sizes[i]), page.Items[i])
		},
	})
}

func (p *Reply) metadataList(page *read.Page) {
	list := &metav1.PartialObjectMetadataList{ListMeta: page.Meta, Items: make([]metav1.PartialObjectMetadata, len(page.Items))}
	gvk := metadataGVK(p.Accept, "PartialObjectMetadata")
	for i, it := range page.Items {
		list.Items[i] = *partial(it.Object)
		list.Items[i].SetGroupVersionKind(gvk)
	}
	p.object(http.StatusOK, metadataGVK(p.Accept, "PartialObjectMetadataList"), list)
}
