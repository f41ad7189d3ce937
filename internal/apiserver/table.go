package apiserver

import (
	"encoding/json"
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// include is which part of the object goes with each row of a table.
func (p *reply) include() (metav1.IncludeObjectPolicy, error) {
	if p.r.URL.RawQuery == "" {
		return metav1.IncludeMetadata, nil
	}
	switch policy := metav1.IncludeObjectPolicy(p.r.URL.Query().Get("includeObject")); policy {
	case "":
		return metav1.IncludeMetadata, nil
	case metav1.IncludeMetadata, metav1.IncludeNone, metav1.IncludeObject:
		return policy, nil
	default:
		return "", badRequest("unrecognized includeObject value: %s", policy)
	}
}

// table answers with the columns that the kind declares, one row an object.
func (p *reply) table(code int, page *page) {
	policy, err := p.include()
	if err != nil {
		p.fail(err)
		return
	}
	if code == http.StatusOK && p.a.Media == request.MediaJSON && !p.a.Pretty {
		p.w.Header().Set("Content-Type", request.JSON)
		l := &listWriter{w: p.w, buf: make([]byte, 0, 16<<10)}
		l.buf = append(p.appendTable(l, page, tableOptions{policy, true}), '\n')
		l.flush()
		return
	}
	p.send(code, p.appendTable(&listWriter{}, page, tableOptions{policy, true}))
}

// tableOptions say what of a table is sent.
type tableOptions struct {
	include metav1.IncludeObjectPolicy
	columns bool
}

// appendTable returns what of the table is not written yet.
func (p *reply) appendTable(l *listWriter, page *page, o tableOptions) []byte {
	gvk := metadataGVK(p.a, "Table")
	l.buf = append(l.buf, jsonHead(gvk.GroupVersion().String(), gvk.Kind)...)
	l.buf = append(l.buf, `,"metadata":`...)
	l.buf, _ = wire.AppendJSON(l.buf, &page.meta)
	l.buf = append(l.buf, `,"columnDefinitions":`...)
	l.buf = appendColumns(l.buf, p.c.res.def.Columns, o.columns)
	l.buf = append(l.buf, `,"rows":[`...)
	for i, it := range page.items {
		if i > 0 {
			l.buf = append(l.buf, ',')
		}
		l.buf = p.appendRow(l.buf, it, o.include)
		if l.w != nil {
			l.spill()
		}
	}
	return append(l.buf, "]}"...)
}

func appendColumns(dst []byte, columns []resource.ColumnDef, all bool) []byte {
	if !all {
		return append(dst, "null"...)
	}
	dst = append(dst, '[')
	for i := range columns {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst, _ = wire.AppendJSON(dst, &columns[i].TableColumnDefinition)
	}
	return append(dst, ']')
}

// appendRow shows one object; one that cannot be shown gets empty cells.
func (p *reply) appendRow(dst []byte, it *cache.Item, include metav1.IncludeObjectPolicy) []byte {
	dst = append(dst, `{"cells":[`...)
	for i := range p.c.res.def.Columns {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendCell(dst, p.c.res.def.Columns[i].Value(it.Object))
	}
	dst = append(dst, `],"object":`...)
	switch include {
	case metav1.IncludeObject:
		b, err := p.s.encoded.Bytes(it, p.c.res.forms.json)
		if err != nil {
			return append(dst, "null}"...)
		}
		dst = appendWithHead(dst, p.c.res.jsonHead, b)
	case metav1.IncludeMetadata:
		part := partial(it.Object)
		part.SetGroupVersionKind(metadataGVK(p.a, "PartialObjectMetadata"))
		dst, _ = wire.AppendJSON(dst, part)
	default:
		dst = append(dst, "null"...)
	}
	return append(dst, '}')
}

func appendCell(dst []byte, value any) []byte {
	if s, ok := value.(string); ok {
		return wire.AppendString(dst, s)
	}
	b, err := json.Marshal(value)
	if err != nil {
		return append(dst, "null"...)
	}
	return append(dst, b...)
}

// scaleTable is how kubectl get --subresource=scale shows what it gets.
func scaleTable(s *autoscalingv1.Scale) *metav1.Table {
	spec, status := autoscalingv1.ScaleSpec{}.SwaggerDoc(), autoscalingv1.ScaleStatus{}.SwaggerDoc()
	meta := metav1.ObjectMeta{}.SwaggerDoc()
	part := &metav1.PartialObjectMetadata{ObjectMeta: s.ObjectMeta}
	part.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return &metav1.Table{
		ListMeta: metav1.ListMeta{ResourceVersion: s.ResourceVersion},
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: meta["name"]},
			{Name: "Desired", Type: "integer", Description: spec["replicas"]},
			{Name: "Available", Type: "integer", Description: status["replicas"]},
			{Name: "Age", Type: "string", Description: meta["creationTimestamp"]},
		},
		Rows: []metav1.TableRow{{
			Cells:  []any{s.Name, int64(s.Spec.Replicas), int64(s.Status.Replicas), resource.Age(s.CreationTimestamp)},
			Object: runtime.RawExtension{Object: part},
		}},
	}
}

// tableEvent adds an event whose object is a table of one row. The columns are
// described in the first event only, as upstream has it.
func (k *httpSink) tableEvent(event string, it *cache.Item) error {
	policy, err := k.p.include()
	if err != nil {
		return err
	}
	one := &page{items: []*cache.Item{it}, meta: metav1.ListMeta{ResourceVersion: it.Object.GetResourceVersion()}}
	body := k.p.appendTable(&listWriter{}, one, tableOptions{policy, !k.columnsSent})
	k.columnsSent = true
	k.buf = appendJSONFrame(k.buf, event)
	k.buf = append(k.buf, body...)
	k.buf = append(k.buf, "}\n"...)
	return k.spill()
}
