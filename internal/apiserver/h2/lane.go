package h2

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// ErrSlow says that a client has not taken what it was sent in time.
var ErrSlow = errors.New("the client does not take what it is sent")

// Source appends to dst what is to be sent next, some 16 KiB at a time. To append
// nothing ends its turn, until [Lane.Wake] is called; an error ends the answer
// with what was appended.
type Source func(dst []byte) ([]byte, error)

// Lane is the rest of an answer over HTTP/2 that goes on: the connection's own
// goroutine takes it from a [Source] and sends it together with what its other
// lanes have, without the HTTP/2 server, which has sent the beginning.
type Lane struct {
	of     *lanes
	id     uint32
	buffer *bufio.Writer // what the HTTP/2 server writes the answer to; nil: it is not known

	// busy is held while the source is called.
	busy      sync.Mutex
	source    Source
	remainder []byte // what the source has given and the client has no room for
	ended     bool   // the source has given all

	done     chan struct{}
	reminded atomic.Bool // since the source was told

	// All below is guarded by the lock of lanes.
	window  int64 // how much the client takes of the stream
	begun   bool  // the server has written the headers
	written int64 // bytes that the server has written after them
	after   int64 // the lane begins after so many
	given   bool  // there is a source
	started bool  // the source's turn has come
	queued  bool  // in ready
	blocked bool  // there is a remainder, and no window
	closed  bool
	err     error // why it was closed
	reminds bool  // wants to be reminded
	limit   time.Duration
	until   time.Time // when the remainder must have been sent; zero: there is none
	late    *time.Timer
}

type connKey struct{}

// Open returns a lane of the answer w to a request whose context is ctx, nil if
// it can have none: it is not sent over HTTP/2 by a [Conn], or the client has
// little room. No byte of the answer may have been sent. The lane must be closed
// before the handler returns.
func Open(ctx context.Context, w http.ResponseWriter) *Lane {
	c, ok := ctx.Value(connKey{}).(*Conn)
	if !ok {
		return nil
	}
	of := stateOf(w)
	id := streamOf(of)
	if id == 0 {
		return nil
	}
	l := c.lanes.add(id)
	if l != nil {
		l.buffer = bufferOf(of)
	}
	return l
}

// stateOf is what the HTTP/2 server knows of an answer. It does not tell of it: what is
// needed is read from its own fields.
func stateOf(w http.ResponseWriter) reflect.Value {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = u.Unwrap()
	}
	return fieldOf(reflect.ValueOf(w), "rws")
}

// streamOf is the number of the stream that an answer is sent on, 0 if it is
// not known.
func streamOf(state reflect.Value) uint32 {
	v := fieldOf(fieldOf(state, "stream"), "id")
	if v.Kind() != reflect.Uint32 {
		return 0
	}
	return uint32(v.Uint())
}

// bufferOf is what an answer is written to before it becomes frames, nil if it is
// not known.
func bufferOf(state reflect.Value) *bufio.Writer {
	v := fieldOf(state, "bw")
	if !v.IsValid() || v.Type() != reflect.TypeFor[*bufio.Writer]() {
		return nil
	}
	return (*bufio.Writer)(v.UnsafePointer())
}

// fieldOf is a field of what v points to, invalid if there is none.
func fieldOf(v reflect.Value, name string) reflect.Value {
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.Elem().FieldByName(name)
}

// wideFrom is how much a client must take of a stream at a time to be sent by a lane what is
// long from the first byte on: the pace lets one that takes less wait again and again.
const wideFrom = 1 << 20

// Wide reports whether the client takes much of the stream at a time.
func (l *Lane) Wide() bool { return l.of.windowOf(l) >= wideFrom }

// Follow has the connection send what source gives, when the headers and so many
// bytes have been sent that the handler has written and flushed. A client that does
// not take within limit what is sent at a time is given up. The handler writes no more.
func (l *Lane) Follow(source Source, written int64, limit time.Duration) {
	l.busy.Lock()
	l.source = source
	l.busy.Unlock()
	if l.buffer != nil {
		*l.buffer = bufio.Writer{} // 4 KiB; who is next to use it resets it, which makes another
		l.buffer = nil
	}
	l.of.follow(l, written, limit)
}

// Wake says that the source may have something. It does not block, and may be
// called under any lock.
func (l *Lane) Wake() { l.of.woken(l) }

// Remind has the source be asked every so often, which is the same for all lanes: with those of the connection's other lanes
// that want it, so that what they have to say then is sent at once.
func (l *Lane) Remind(every time.Duration) { l.of.remind(l, every) }

// Reminded reports whether the time of [Lane.Remind] has come since the last call.
func (l *Lane) Reminded() bool { return l.reminded.Swap(false) }

// Done is closed when the source has ended and all of it is on its way, or when
// nothing more can be sent.
func (l *Lane) Done() <-chan struct{} { return l.done }

// End closes Done: the source is soon not called any more. Close is still to be called.
func (l *Lane) End() { l.of.finish(l, nil) }

// Close ends the lane: the source is not called any more. It fails if what the
// source has given cannot be sent to its end; then the stream must be reset.
func (l *Lane) Close() error {
	l.of.finish(l, nil)
	l.busy.Lock() // until it has been called
	defer l.busy.Unlock()
	part := len(l.remainder) > 0
	l.remainder = nil
	return l.of.why(l, part)
}

var errPart = errors.New("the last part was not sent")

// turn appends frames with what is next, as far as the client has room. again says
// that there may be more.
func (l *Lane) turn(dst []byte) (_ []byte, again bool) {
	l.busy.Lock()
	defer l.busy.Unlock()
	allowed, ok := l.of.allowed(l)
	if !ok {
		return dst, false
	}
	at := len(dst) + headSize
	dst = append(dst, make([]byte, headSize)...)
	switch {
	case len(l.remainder) > 0:
		n := min(len(l.remainder), allowed, turnMost)
		dst = append(dst, l.remainder[:n]...)
		l.remainder = l.remainder[n:]
	case !l.ended:
		var err error
		dst, err = l.source(dst)
		l.ended = err != nil
		if len(dst)-at > allowed {
			l.remainder = bytes.Clone(dst[at+allowed:])
			dst = dst[:at+allowed]
		}
	}
	n := len(dst) - at
	if len(l.remainder) == 0 {
		l.remainder = nil
	}
	return framed(dst, at, l.id), l.of.spent(l, n)
}

// turnMost is how much of a remainder is sent at a time.
const turnMost = 64 << 10

// framed makes what dst has from at on the content of frames; there is room for
// a head before it.
func framed(dst []byte, at int, stream uint32) []byte {
	n := len(dst) - at
	if n == 0 {
		return dst[:at-headSize]
	}
	more := (n - 1) / frameMost // frames after the first
	dst = append(dst, make([]byte, more*headSize)...)
	for i := more; i >= 0; i-- { // from the end: each moves to where nothing is any more
		from, size := at+i*frameMost, min(frameMost, n-i*frameMost)
		to := from + i*headSize
		copy(dst[to:to+size], dst[from:from+size])
		appendHead(dst[to-headSize:to-headSize], head{size: size, kind: dataFrame, stream: stream})
	}
	return dst
}

func appendHead(dst []byte, h head) []byte {
	dst = append(dst, byte(h.size>>16), byte(h.size>>8), byte(h.size), h.kind, h.flags)
	return binary.BigEndian.AppendUint32(dst, h.stream)
}
