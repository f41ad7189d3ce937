package answer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/cache"
)

// What is answered is told the audit in JSON, in whichever media type it is sent. Answers
// are told as they are made; those of callers within the process, by these methods.

// TellItem tells the audit an object of the call's resource.
func (p *Reply) TellItem(it *cache.Item) {
	if !p.Call.Audit.TellsAnswer() {
		return
	}
	res := p.Call.Resource
	doc, err := res.Forms.JSON.Append(nil, it.Object)
	p.tell(served.AppendWithHead(nil, res.Head, doc), err)
}

// TellPart tells the audit an object of the kind, or a Status.
func (p *Reply) TellPart(gvk schema.GroupVersionKind, obj runtime.Object) {
	if status, ok := obj.(*metav1.Status); ok {
		p.Call.Audit.AnsweredStatus(status)
		gvk = statusGVK
	}
	if !p.Call.Audit.TellsAnswer() {
		return
	}
	doc, err := served.AppendAny(nil, request.MediaJSON, gvk, obj)
	p.tell(doc, err)
}

// TellDeleted tells the audit the Status of a delete.
func (p *Reply) TellDeleted(it *cache.Item) {
	if p.Call.Audit != nil {
		p.TellPart(statusGVK, deletedStatus(p.Call, it))
	}
}

// TellCollection tells the audit a list.
func (p *Reply) TellCollection(page *read.Page) {
	if !p.Call.Audit.TellsAnswer() {
		return
	}
	q := Reply{Call: p.Call, Encoded: p.Encoded, Log: p.Log}
	list := q.listOfJSON(page, "]}")
	doc := list.head
	for i, it := range page.Items {
		if i > 0 {
			doc = append(doc, ',')
		}
		var err error
		if doc, err = list.form.Append(doc, it.Object); err != nil { // kept nowhere: nobody will ask for it in this form
			p.tell(nil, err)
			return
		}
	}
	p.tell(append(doc, list.tail...), nil)
}

// tellError tells the audit why the call fails.
func (p *Reply) tellError(err error) {
	if p.Call.Audit != nil {
		p.TellPart(statusGVK, refusal.Status(err))
	}
}

// tell tells the audit a document, which may be sent to the client as well.
func (p *Reply) tell(doc []byte, err error) {
	if err != nil {
		p.Log.Debug("what was answered cannot be audited", "err", err)
		return
	}
	p.Call.Audit.Answered(doc)
}
