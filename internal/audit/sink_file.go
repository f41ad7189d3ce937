package audit

import (
	"sync"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// fileSink writes events to a file, a line each.
type fileSink struct {
	out    *file
	legacy bool
	told   *telling
}

var _ backend = (*fileSink)(nil)

// lines lends buffers for them.
var lines = sync.Pool{New: func() any { return new([]byte) }}

func (s *fileSink) process(events []*auditv1.Event) bool {
	ok := true
	for _, e := range events {
		if err := s.write(e); err != nil {
			s.told.dropped("log", 1, err)
			ok = false
		}
	}
	return ok
}

func (s *fileSink) write(e *auditv1.Event) error {
	buf := lines.Get().(*[]byte)
	defer lines.Put(buf)
	line := (*buf)[:0]
	if s.legacy {
		line = appendLegacy(line, e)
	} else {
		var err error
		if line, err = appendJSON(line, e); err != nil {
			return err
		}
	}
	if cap(line) <= keptLine {
		*buf = line
	}
	return s.out.write(line)
}

// keptLine is up to which size a line's buffer is lent again: the answer to a list may
// have been in it.
const keptLine = 64 << 10
