// Package pieces puts long answers together: their items are appended, by two
// goroutines if there are many, and written in large pieces. What an item is, it
// does not know.
package pieces

import (
	"fmt"
	"net/http"
	"sync"
)

// Size is how much of an answer is gathered before it is written.
const Size = 256 << 10

// Writer gathers an answer's bytes and writes them in large pieces.
type Writer struct {
	To  http.ResponseWriter // nil: all is gathered
	Buf []byte              // what is not written yet
	err error
}

// unused lends buffers to gather in: a page of 500 pods needs as much as a list of all.
// What a large object has made much larger is not kept.
var unused = sync.Pool{New: func() any { b := make([]byte, 0, 2*Size); return &b }}

const keptMost = 4 * Size

// New returns a writer to w with a buffer that End gives back. An answer that is cut
// off need not be ended.
func New(w http.ResponseWriter) *Writer {
	return &Writer{To: w, Buf: (*unused.Get().(*[]byte))[:0]}
}

// End writes what is left. The writer is of no more use.
func (l *Writer) End() {
	l.Flush()
	if buf := l.Buf; cap(buf) <= keptMost {
		unused.Put(&buf)
	}
	l.Buf = nil
}

// Spill writes what has gathered if it is much.
func (l *Writer) Spill() {
	if l.To != nil && len(l.Buf) >= Size {
		l.Flush()
	}
}

// Flush writes what has gathered.
func (l *Writer) Flush() {
	l.write(l.Buf)
	l.Buf = l.Buf[:0]
}

func (l *Writer) write(b []byte) {
	if l.err == nil {
		_, l.err = l.To.Write(b)
	}
}

// Few is up to how many items are appended by one goroutine.
const Few = 500

// stretch is how many items are appended by one goroutine at a time.
const stretch = 32

// Items writes n items, each as item appends it. item is called by two goroutines
// if there are many.
func (l *Writer) Items(n int, item func(dst []byte, i int) ([]byte, error)) (err error) {
	if l.To != nil && n > Few {
		return l.inTurns(n, item)
	}
	for at := 0; at < n && err == nil; at += stretch {
		l.Buf, err = appendStretch(l.Buf, at, min(at+stretch, n), item)
		l.Spill()
	}
	return err
}

// piece is a stretch that is appended.
type piece struct {
	bytes []byte
	err   error
}

// inTurns lets another goroutine append every other stretch, while this one
// appends those between and writes all in order. Encoding is most of the work of a
// list whose objects nobody has asked for yet.
func (l *Writer) inTurns(n int, item func(dst []byte, i int) ([]byte, error)) (err error) {
	made, free, stop := make(chan piece, 2), make(chan []byte, 2), make(chan struct{})
	free <- nil // two buffers go round, so that there is room in both channels
	free <- nil
	var other sync.WaitGroup
	defer other.Wait()
	defer close(stop)
	other.Go(func() {
		for at := stretch; at < n; at += 2 * stretch {
			select {
			case buf := <-free:
				buf, err := appendStretch(buf[:0], at, min(at+stretch, n), item)
				made <- piece{buf, err}
			case <-stop:
				return
			}
		}
	})
	for at := 0; at < n; at += 2 * stretch {
		if l.Buf, err = appendStretch(l.Buf, at, min(at+stretch, n), item); err != nil {
			return err
		}
		if at+stretch >= n {
			break
		}
		p := <-made
		if p.err != nil {
			return p.err
		}
		l.Flush()
		l.write(p.bytes)
		free <- p.bytes
	}
	return nil
}

// appendStretch appends the items from one to before another. A panic is an
// error: nobody would catch it in a goroutine of a request.
func appendStretch(dst []byte, from, to int, item func(dst []byte, i int) ([]byte, error)) (_ []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("encode items %d to %d: %v", from, to-1, r)
		}
	}()
	for i := from; i < to; i++ {
		if dst, err = item(dst, i); err != nil {
			return dst, fmt.Errorf("encode item %d: %w", i, err)
		}
	}
	return dst, nil
}
