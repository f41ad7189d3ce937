package audit

import (
	"errors"
	"maps"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kemudi/kemudi/internal/wire"
)

// truncating bounds the events, and how many at a time, that a backend is told.
type truncating struct {
	next backend
	o    TruncateOptions
	told *telling
}

var _ backend = (*truncating)(nil)

// truncated is a backend behind the bounds that are asked for, if any are.
func truncated(b backend, o TruncateOptions, t *telling) backend {
	if !o.Enabled {
		return b
	}
	return &truncating{next: b, o: o, told: t}
}

var errTooLarge = errors.New("event is too large even after truncating")

func (t *truncating) process(events []*auditv1.Event) bool {
	ok, from, sum := true, 0, int64(0)
	var batch []*auditv1.Event
	for _, e := range events {
		e, size, err := t.fit(e)
		if err != nil {
			t.told.dropped("truncate", 1, err)
			continue
		}
		if from < len(batch) && sum+size > t.o.MaxBatchSize {
			ok = t.next.process(batch[from:]) && ok
			from, sum = len(batch), 0
		}
		batch, sum = append(batch, e), sum+size
	}
	if from < len(batch) {
		ok = t.next.process(batch[from:]) && ok
	}
	return ok
}

// fit is an event that is not too large, without what was sent and answered if need be.
func (t *truncating) fit(e *auditv1.Event) (*auditv1.Event, int64, error) {
	size, err := sizeOf(e)
	if err == nil && size > t.o.MaxEventSize && (e.RequestObject != nil || e.ResponseObject != nil) {
		small := *e
		small.RequestObject, small.ResponseObject = nil, nil
		small.Annotations = maps.Clone(e.Annotations)
		if small.Annotations == nil {
			small.Annotations = map[string]string{}
		}
		small.Annotations["audit.k8s.io/truncated"] = "true"
		e = &small
		size, err = sizeOf(e)
	}
	if err == nil && size > t.o.MaxEventSize {
		err = errTooLarge
	}
	return e, size, err
}

func sizeOf(e *auditv1.Event) (int64, error) {
	doc, err := wire.AppendJSON(nil, e)
	return int64(len(doc)), err
}
