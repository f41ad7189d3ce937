package apiserver

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/kemudi/kemudi/internal/apiserver/h2"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/task"
)

// laneSource is a watch whose connection sends it: it is woken by the cursor and asks
// for events when it has room, together with those of its other watches. The
// watch's own goroutine minds the time only.
type laneSource struct {
	w    *watcher
	sink *httpSink
	lane *h2.Lane
	// limit is how long the client may take to receive what is sent at a time.
	limit time.Duration

	// Of who sends.
	events []cache.Event // that the cursor has given, and are not sent
	asked  bool          // the cursor has been asked in this turn
	whole  int           // bytes of the sink that are whole events

	bookmarkDue, timeUp atomic.Bool
}

// turnMost is how much is appended at a time: what fits into a frame, if that is
// more than one event.
const turnMost = 8 << 10

// run has the lane send what follows what was sent, until the watch ends.
func (f *laneSource) run(ctx context.Context, due, end <-chan time.Time) {
	f.sink.lent = true
	f.w.cursor.Notify(f.lane.Wake)
	f.lane.Follow(f.next, f.sink.written, f.limit)
	for {
		select {
		case <-due:
			f.bookmarkDue.Store(true)
			f.lane.Wake()
		case <-end:
			f.timeUp.Store(true)
			f.lane.Wake()
		case <-f.lane.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// close ends the lane, and the answer with it if it ends within an event.
func (f *laneSource) close() {
	if f.lane.Close() != nil {
		f.sink.out.Reset()
	}
}

// next appends what is to be sent next: the lane's source.
func (f *laneSource) next(dst []byte) ([]byte, error) {
	k := f.sink
	k.buf, f.whole = dst, len(dst)
	err := task.Contain(func() error { return f.fill(len(dst) + turnMost) })
	if err != nil && !errors.Is(err, io.EOF) {
		k.buf = k.buf[:f.whole]
		k.fail(err)
	}
	dst, k.buf = k.buf, nil
	return dst, err
}

// fill adds events until there are so many bytes, and what is due when there are
// no more events.
func (f *laneSource) fill(most int) error {
	for len(f.sink.buf) < most {
		if len(f.events) == 0 {
			if more, err := f.fetch(); err != nil {
				return err
			} else if !more {
				return f.atRest()
			}
		}
		e := f.events[0]
		if f.events = f.events[1:]; len(f.events) == 0 {
			f.events = nil
		}
		if _, err := f.w.event(e, false); err != nil {
			return err
		}
		f.whole = len(f.sink.buf)
	}
	return nil
}

// fetch asks the cursor, once in a turn: what happens during it is for the next.
func (f *laneSource) fetch() (more bool, err error) {
	f.w.told = f.w.cursor.Rev()
	if f.asked {
		f.asked = false
		return false, nil
	}
	f.events, err = f.w.cursor.Next()
	if errors.Is(err, cache.ErrTooOld) {
		return false, tooOld(f.w.told)
	}
	f.asked = len(f.events) > 0
	return f.asked, err
}

// atRest adds the bookmark that is due when all events were added: it says that they were.
func (f *laneSource) atRest() error {
	up := f.timeUp.Load()
	if due := f.bookmarkDue.Swap(false); due || up && f.w.q.bookmarks {
		if rev := f.w.cursor.Rev(); rev > 0 {
			if err := f.w.sink.bookmark(rev, false); err != nil { // after the last the next watch can go on
				return err
			}
		}
	}
	if up {
		return io.EOF
	}
	return nil
}
