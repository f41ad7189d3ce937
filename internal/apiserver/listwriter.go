package apiserver

import (
	"fmt"
	"net/http"
	"sync"
)

// flushSize is how much of a list is gathered before it is written.
const flushSize = 256 << 10

// listWriter gathers a list's bytes and writes them in large pieces.
type listWriter struct {
	w   http.ResponseWriter // nil: all is gathered
	buf []byte
	err error
}

func (l *listWriter) spill() {
	if l.w != nil && len(l.buf) >= flushSize {
		l.flush()
	}
}

func (l *listWriter) flush() {
	l.write(l.buf)
	l.buf = l.buf[:0]
}

func (l *listWriter) write(b []byte) {
	if l.err == nil {
		_, l.err = l.w.Write(b)
	}
}

// stretch is how many items are appended by one goroutine at a time.
const stretch = 32

// items writes n items, each as item appends it. item is called by two goroutines
// if there are many.
func (l *listWriter) items(n int, item func(dst []byte, i int) ([]byte, error)) (err error) {
	if l.w != nil && n > few {
		return l.inTurns(n, item)
	}
	for at := 0; at < n && err == nil; at += stretch {
		l.buf, err = appendStretch(l.buf, at, min(at+stretch, n), item)
		l.spill()
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
func (l *listWriter) inTurns(n int, item func(dst []byte, i int) ([]byte, error)) (err error) {
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
		if l.buf, err = appendStretch(l.buf, at, min(at+stretch, n), item); err != nil {
			return err
		}
		if at+stretch >= n {
			break
		}
		p := <-made
		if p.err != nil {
			return p.err
		}
		l.flush()
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
