package watch

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/kemudi/kemudi/internal/apiserver/h2"
	"github.com/kemudi/kemudi/internal/cache"
)

// lane is a watch whose connection sends it: it is woken by the cursor and asks
// for events when it has room, together with those of its other watches. Timers
// mind the time, and nothing is left for the watch's own goroutine to do.
type lane struct {
	w    *Watch
	lane *h2.Lane
	// limit is how long the client may take to receive what is sent at a time.
	limit time.Duration

	// Of who sends.
	events []cache.Event // that the cursor has given, and are not sent
	news   func() ([]cache.Event, error)
	many   bool // they are the initial ones

	timeUp atomic.Bool
	end    *time.Timer // sets it
	left   func() bool // ends the wait for the client to go
	served func()      // ends the wait for the end of the resource, if it may have one

	// later wakes the lane after minor changes, if nothing else has; waits says that it will.
	later *time.Timer
	waits atomic.Bool
}

// Minor changes are told so long after the first of them at most, and not by all watches at
// the same time.
const (
	minorLeast = 5 * time.Second
	minorMost  = 15 * time.Second
)

// turnMost is how much is appended at a time: what fits into a frame, if that is
// more than one event.
const turnMost = 8 << 10

// run has the lane send what follows what was sent, until the client goes, which ends ctx, the
// time of the watch is up, or the resource is served no longer as it was.
func (f *lane) run(ctx context.Context, lasts time.Duration) {
	f.news = func() ([]cache.Event, error) { return f.w.next(ctx) }
	f.later = stopped(f.lane.Wake)
	f.end = stopped(func() {
		f.timeUp.Store(true)
		f.lane.Wake()
	})
	f.end.Reset(lasts)
	if f.w.c.List.AllowWatchBookmarks {
		f.lane.Remind(bookmarkEvery)
	}
	f.left = context.AfterFunc(ctx, f.lane.End)
	if e := f.w.c.Resource.End; e != nil {
		f.served = e.Await(f.lane.Wake)
	}
	f.w.cursor.Notify(f.lane.Wake, f.wakeLater)
	f.lane.Follow(f.next, f.w.events.Written(), f.limit)
}

// stopped is a timer that will call f when it is reset.
func stopped(f func()) *time.Timer {
	t := time.AfterFunc(forever, f)
	t.Stop()
	return t
}

// wakeLater says that there is something that nobody waits for.
func (f *lane) wakeLater() {
	if f.waits.CompareAndSwap(false, true) {
		f.later.Reset(minorLeast + rand.N(minorMost-minorLeast))
	}
}

// begin has the lane send the initial events, and that they end if that is to be told.
// It comes before run.
func (f *lane) begin(events []cache.Event) { f.events, f.many = events, true }

// close ends the lane, and the answer with it if it ends within an event.
func (f *lane) close() {
	if f.lane.Close() != nil {
		f.w.events.CutOff()
	}
	for _, t := range []*time.Timer{f.later, f.end} {
		if t != nil { // nil: it has not run
			t.Stop()
		}
	}
	if f.left != nil {
		f.left()
	}
	if f.served != nil {
		f.served()
	}
}

// next appends what is to be sent next: the lane's source.
func (f *lane) next(dst []byte) ([]byte, error) {
	return f.w.events.Into(dst, func() error { return f.fill(len(dst) + turnMost) })
}

// fill adds events until there are so many bytes, and what is due when there are
// no more events. It asks the cursor once: what happens meanwhile is for the next call. A
// call that adds nothing has asked, so that a wake-up before it is not lost.
func (f *lane) fill(most int) error {
	for asked := false; f.w.events.Len() < most; {
		if len(f.events) == 0 {
			if asked {
				break
			}
			if err := f.begun(); err != nil {
				return err
			}
			asked = true
			if err := f.fetch(); err != nil {
				return err
			}
			if len(f.events) == 0 {
				return f.atRest()
			}
		}
		e := f.events[0]
		if f.events = f.events[1:]; len(f.events) == 0 {
			f.events = nil
		}
		if _, err := f.w.event(e, f.many); err != nil {
			return err
		}
	}
	return nil
}

// begun adds that the initial events have ended, if they just have and it is to be told.
func (f *lane) begun() error {
	if !f.many {
		return nil
	}
	f.many = false
	f.w.told = f.w.cursor.Rev()
	if !f.w.announce {
		return nil
	}
	return f.w.announceEnd()
}

func (f *lane) fetch() (err error) {
	if f.waits.CompareAndSwap(true, false) {
		f.later.Stop()
	}
	f.w.told = f.w.cursor.Rev()
	if f.w.over() {
		f.timeUp.Store(true)
		return nil
	}
	f.events, err = f.news()
	if errors.Is(err, cache.ErrTooOld) {
		return f.w.tooOld(f.w.told)
	}
	return err
}

// atRest adds the bookmark that is due when all events were added: it says that they were.
func (f *lane) atRest() error {
	up := f.timeUp.Load()
	if due := f.lane.Reminded(); due || up && f.w.c.List.AllowWatchBookmarks {
		if rev := f.w.cursor.Rev(); rev > 0 {
			if err := f.w.events.Bookmark(rev, false); err != nil { // after the last the next watch can go on
				return err
			}
		}
	}
	if up {
		return io.EOF
	}
	return nil
}
