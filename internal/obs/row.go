package obs

import (
	"log/slog"
	"time"
)

// How soon after a warning of a row the next one comes: each interval is twice the last one.
const (
	firstInterval   = time.Minute
	longestInterval = time.Hour
)

// Row is a row of failures of one thing that is tried again and again. Of such a row people
// are told at its beginning, and then at growing intervals that it goes on. The zero value is
// a row that has not begun. It is used by one goroutine.
type Row struct {
	next  time.Time     // when people are told again; zero: no row has begun
	after time.Duration // how long it is from then to the time after
}

// Failed notes a failure, and returns the level to log it at: a warning, or, if people have
// been told lately, debug.
func (r *Row) Failed() slog.Level {
	now := time.Now()
	switch {
	case r.next.IsZero():
		r.after = firstInterval
	case now.Before(r.next):
		return slog.LevelDebug
	}
	r.next, r.after = now.Add(r.after), min(2*r.after, longestInterval)
	return slog.LevelWarn
}

// Over ends the row: the thing has worked.
func (r *Row) Over() { *r = Row{} }
