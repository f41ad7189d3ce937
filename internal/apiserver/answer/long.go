package answer

import (
	"io"
	"net/http"
	"time"

	"github.com/kemudi/kemudi/internal/apiserver/compress"
	"github.com/kemudi/kemudi/internal/apiserver/encoded"
	"github.com/kemudi/kemudi/internal/apiserver/h2"
	"github.com/kemudi/kemudi/internal/apiserver/pieces"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/task"
)

// long is a list that is sent as it is put together.
type long struct {
	page       *read.Page
	form       *encoded.Form // of the items
	head, tail []byte
	item       func(dst []byte, i int) ([]byte, error)

	// Of the lane that sends it, if one does.
	next int   // item
	size int   // of the item before
	sent int64 // bytes
	err  error // why it ends early; io.EOF: it does not
}

// long sends a list: by a lane, if it is worth one, and otherwise piece by piece.
func (p *Reply) long(list *long) {
	p.Traced.Event("About to start writing response")
	defer p.Traced.Event("Write call succeeded")
	if lane := p.lane(list); lane != nil {
		p.byLane(list, lane)
		return
	}
	l := pieces.New(p.W)
	l.Buf = append(l.Buf, list.head...)
	p.items(l, list.page, list.item)
	l.Buf = append(l.Buf, list.tail...)
	l.End()
}

// A list by a lane goes through the hands of one goroutine alone. It is worth that from
// laneFrom bytes on, where a few samples say that the items' bytes are kept: to encode
// them takes longer than to send them, and pieces are encoded by two goroutines.
const (
	laneFrom    = 128 << 10
	laneSamples = 8
)

// lane opens a lane for a list; nil: there is none, or the list is not for one.
func (p *Reply) lane(list *long) *h2.Lane {
	n := len(list.page.Items)
	if n <= Few || compress.Compresses(p.W) {
		return nil
	}
	sum := 0
	for i := range laneSamples {
		size := p.Encoded.Kept(list.page.Items[i*n/laneSamples], list.form)
		if size == 0 {
			return nil
		}
		sum += size
	}
	if sum/laneSamples*n < laneFrom {
		return nil
	}
	lane := h2.Open(p.R.Context(), p.W)
	if lane == nil || lane.Wide() {
		return lane
	}
	_ = lane.Close() // nothing was sent by it
	return nil
}

// byLane sends a list by a lane. One that cannot be sent to its end is cut off.
func (p *Reply) byLane(list *long, lane *h2.Lane) {
	p.W.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(p.W).Flush() // an error means that the client has gone, as the lane learns
	limit := time.Minute
	if until, ok := p.R.Context().Deadline(); ok {
		limit = time.Until(until)
	}
	lane.Follow(list.more, 0, limit)
	<-lane.Done()
	err := lane.Close()
	countSent(p.W, list.sent)
	if list.err != nil && list.err != io.EOF {
		p.Log.WarnContext(p.R.Context(), "encode list item", "err", list.err)
	}
	if err != nil || list.err != io.EOF {
		panic(http.ErrAbortHandler) // the answer has begun: cut it off
	}
}

// turnMost is how much of a list is appended at a time, if that is more than an item:
// what fits into a frame.
const turnMost = 16 << 10

// more appends what is to be sent next: the lane's source.
func (l *long) more(dst []byte) ([]byte, error) {
	from := len(dst)
	l.err = task.Contain(func() (err error) {
		dst = append(dst, l.head...)
		l.head = nil
		for ; l.next < len(l.page.Items); l.next++ {
			if at := len(dst); at > from && at-from+l.size > turnMost {
				return nil
			}
			at := len(dst)
			if dst, err = l.item(dst, l.next); err != nil {
				return err
			}
			l.size = len(dst) - at
		}
		dst = append(dst, l.tail...)
		return io.EOF
	})
	l.sent += int64(len(dst) - from)
	return dst, l.err
}

// countSent tells a writer that counts of what was sent beside it.
func countSent(w http.ResponseWriter, n int64) {
	for w != nil {
		if c, ok := w.(interface{ Sent(n int64) }); ok {
			c.Sent(n)
			return
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = u.Unwrap()
	}
}
