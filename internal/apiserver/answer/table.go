package answer

import (
	"encoding/json"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/pieces"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// include is which part of the object goes with each row of a table.
func (p *Reply) include() (metav1.IncludeObjectPolicy, error) {
	if p.R.URL.RawQuery == "" {
		return metav1.IncludeMetadata, nil
	}
	switch policy := metav1.IncludeObjectPolicy(p.R.URL.Query().Get("includeObject")); policy {
	case "":
		return metav1.IncludeMetadata, nil
	case metav1.IncludeMetadata, metav1.IncludeNone, metav1.IncludeObject:
		return policy, nil
	default:
		return "", refusal.BadRequest("Unable to convert to Table as requested: includeObject: Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty", policy)
	}
}

// CheckTable refuses what a request asks of tables and cannot have, before a watch begins to send them.
func (p *Reply) CheckTable() error {
	if p.Accept.Shape != request.Table {
		return nil
	}
	_, err := p.include()
	return err
}

// table answers with the columns that the kind declares, one row an object.
func (p *Reply) table(code int, page *read.Page) {
	policy, err := p.include()
	if err != nil {
		p.Fail(err)
		return
	}
	if p.Call.Audit.TellsAnswer() {
		p.tell(p.appendTable(&pieces.Writer{}, page, tableOptions{policy, true}), nil)
	}
	if code == http.StatusOK && p.Accept.Media == request.MediaJSON && !p.Accept.Pretty {
		p.W.Header().Set("Content-Type", request.JSON)
		l := &pieces.Writer{To: p.W, Buf: make([]byte, 0, 16<<10)}
		l.Buf = append(p.appendTable(l, page, tableOptions{policy, true}), '\n')
		l.Flush()
		return
	}
	p.send(code, p.appendTable(&pieces.Writer{}, page, tableOptions{policy, true}))
}

// tableOptions say what of a table is sent.
type tableOptions struct {
	include metav1.IncludeObjectPolicy
	columns bool
}

// appendTable returns what of the table is not written yet.
func (p *Reply) appendTable(l *pieces.Writer, page *read.Page, o tableOptions) []byte {
	gvk := metadataGVK(p.Accept, "Table")
	l.Buf = append(l.Buf, served.JSONHead(gvk.GroupVersion().String(), gvk.Kind)...)
	l.Buf = append(l.Buf, `,"metadata":`...)
	l.Buf, _ = wire.AppendJSON(l.Buf, &page.Meta)
	l.Buf = append(l.Buf, `,"columnDefinitions":`...)
	l.Buf = appendColumns(l.Buf, p.Call.Columns(), o.columns)
	l.Buf = append(l.Buf, `,"rows":[`...)
	for i, it := range inOrder(page.Items, p.Call.Rows().Order) {
		if i > 0 {
			l.Buf = append(l.Buf, ',')
		}
		l.Buf = p.appendRow(l.Buf, it, o.include)
		if l.To != nil {
			l.Spill()
		}
	}
	return append(l.Buf, "]}"...)
}

// inOrder are the items of a list in the order of its table.
func inOrder(items []*cache.Item, order func(a, b resource.Object) int) []*cache.Item {
	if order == nil {
		return items
	}
	return slices.SortedStableFunc(slices.Values(items), func(a, b *cache.Item) int { return order(a.Object, b.Object) })
}

func appendColumns(dst []byte, columns []resource.Column[resource.Object], all bool) []byte {
	if !all {
		return append(dst, "null"...)
	}
	dst = append(dst, '[')
	var def metav1.TableColumnDefinition
	for i := range columns {
		if i > 0 {
			dst = append(dst, ',')
		}
		def = columns[i].Definition()
		dst, _ = wire.AppendJSON(dst, &def)
	}
	return append(dst, ']')
}

// appendRow shows one object; one that cannot be shown gets empty cells.
func (p *Reply) appendRow(dst []byte, it *cache.Item, include metav1.IncludeObjectPolicy) []byte {
	dst = append(dst, `{"cells":[`...)
	for i, column := range p.Call.Columns() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendCell(dst, column.Value(it.Object))
	}
	dst = append(dst, ']')
	if rows := p.Call.Rows(); rows.Conditions != nil {
		dst = appendConditions(dst, rows.Conditions(it.Object))
	}
	dst = append(dst, `,"object":`...)
	switch include {
	case metav1.IncludeObject:
		whole, err := p.appendWhole(dst, it)
		if err != nil {
			return append(dst, "null}"...)
		}
		dst = whole
	case metav1.IncludeMetadata:
		part := partial(it.Object)
		part.SetGroupVersionKind(metadataGVK(p.Accept, "PartialObjectMetadata"))
		dst, _ = wire.AppendJSON(dst, part)
	default:
		dst = append(dst, "null"...)
	}
	return append(dst, '}')
}

func appendConditions(dst []byte, conditions []metav1.TableRowCondition) []byte {
	if len(conditions) == 0 {
		return dst
	}
	return appendCell(append(dst, `,"conditions":`...), conditions)
}

// appendWhole appends a table's object as it would have been answered.
func (p *Reply) appendWhole(dst []byte, it *cache.Item) ([]byte, error) {
	if p.Call.Sub != nil && p.Call.Sub.Body != nil {
		return served.AppendAny(dst, request.MediaJSON, served.BodyGVK(p.Call.Sub.Body), it.Object)
	}
	b, err := p.Encoded.Bytes(it, p.Call.Resource.Forms.JSON)
	if err != nil {
		return dst, err
	}
	return served.AppendWithHead(dst, p.Call.Resource.Head, b), nil
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
