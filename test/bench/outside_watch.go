package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

const (
	perConnection = 10 // watches
	watchedFor    = 10 * time.Second
)

// watches measures what an event costs that many watch, and when it comes.
func (o *outsider) watches(ctx context.Context) error {
	merge := call{http.MethodPatch, mediaMerge, podPath, func(int) []byte { return stamp() }}
	cpu, err := o.each(ctx, outsideWrites, merge)
	if err != nil {
		return err
	}
	o.merge = cpu
	for _, w := range []struct {
		watches, rate int
		cpu, p50, p99 measure
	}{{200, 50, outFew, outFew50, outFew99}, {1000, 10, outMany, outMany50, outMany99}} {
		f := &following{all: "/api/v1/pods", change: merge, watches: w.watches, changes: w.rate * int(watchedFor/time.Second)}
		r, err := o.spent(func() error { return o.follow(ctx, f, time.Second/time.Duration(w.rate)) })
		if err != nil {
			return err
		}
		r.cpu -= f.opening + o.merge*time.Duration(f.changes)
		slices.Sort(f.mu.late)
		o.note(w.cpu, r.cpu/time.Duration(f.watches*f.changes))
		o.note(w.p50, f.mu.late[len(f.mu.late)/2])
		o.note(w.p99, f.mu.late[len(f.mu.late)*99/100])
	}
	return nil
}

// stampName is the annotation that tells when its change was made.
const stampName = "example.com/at"

// stamp is a patch that says when it was made.
func stamp() []byte {
	return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, stampName, time.Now().UnixNano())
}

// following is a number of watches that see a number of changes.
type following struct {
	all              string // path of the objects that are watched
	change           call   // of one of them
	watches, changes int
	opening          time.Duration // the server's processor time until all were open
	open, left       atomic.Int64
	ready            chan struct{}

	mu struct {
		sync.Mutex
		late []time.Duration // of each event at each watch
	}
}

// follow opens the watches, makes changes at a pace, and waits until all have come.
func (o *outsider) follow(ctx context.Context, f *following, pace time.Duration) error {
	version, err := o.version(ctx)
	if err != nil {
		return err
	}
	f.ready = make(chan struct{})
	f.open.Store(int64(f.watches))
	f.left.Store(int64(f.watches * f.changes))
	before, err := usageOf(o.s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	g := task.NewGroup(ctx)
	for range f.watches / perConnection {
		t := o.a.transport()
		defer t.CloseIdleConnections()
		for range perConnection {
			g.Go("watch", func(ctx context.Context) error { return o.followOne(ctx, t, version, f) })
		}
	}
	g.Go("changes", func(ctx context.Context) error {
		select {
		case <-f.ready:
		case <-ctx.Done():
			return nil
		}
		now, err := usageOf(o.s.cmd.Process.Pid)
		if err != nil {
			return err
		}
		f.opening = now.cpu - before.cpu
		return o.changeAt(ctx, pace, f)
	})
	g.Go("patience", func(ctx context.Context) error {
		if task.Sleep(ctx, watchedFor+patience) != nil {
			return nil
		}
		return fmt.Errorf("%d events were not delivered within %s", f.left.Load(), patience)
	})
	if err := g.Wait(); !errors.Is(err, errSeen) {
		return err
	}
	return nil
}

// changeAt changes an object after each pace.
func (o *outsider) changeAt(ctx context.Context, pace time.Duration, f *following) error {
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	for i := range f.changes {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
		if _, err := o.send(ctx, o.conns[i%len(o.conns)], f.change, i); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// followOne reads one watch and notes how late its events are.
func (o *outsider) followOne(ctx context.Context, t http.RoundTripper, version string, f *following) error {
	res, err := o.open(ctx, t, f.all+"?watch=1&resourceVersion="+version, mediaJSON)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if f.open.Add(-1) == 0 {
		close(f.ready)
	}
	late := make([]time.Duration, 0, f.changes)
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.mu.late = append(f.mu.late, late...)
	}()
	mark := []byte(`"` + stampName + `":"`)
	const digits = len("1700000000000000000")
	buf, kept := make([]byte, 32<<10), 0
	for {
		n, err := res.Body.Read(buf[kept:])
		text, now := buf[:kept+n], time.Now()
		for {
			at := bytes.Index(text, mark)
			if at < 0 || at+len(mark)+digits > len(text) {
				break
			}
			text = text[at+len(mark):]
			made, err := strconv.ParseInt(string(text[:digits]), 10, 64)
			if err != nil {
				return fmt.Errorf("read event: %w", err)
			}
			late = append(late, now.Sub(time.Unix(0, made)))
			if f.left.Add(-1) == 0 {
				return errSeen
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil // another watch saw the last event
			}
			return fmt.Errorf("watch %s: %w", f.all, err)
		}
		kept = copy(buf, text[max(0, len(text)-len(mark)-digits):])
	}
}
