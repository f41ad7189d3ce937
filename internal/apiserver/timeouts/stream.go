package timeouts

import (
	"net/http"
	"sync"
	"time"
)

// Stream is an answer that goes on for as long as its client likes, if only the
// client takes what is sent. One goroutine at a time may use it.
type Stream struct {
	w     http.ResponseWriter
	out   *http.ResponseController
	limit time.Duration
	late  *time.Timer

	mu struct {
		sync.Mutex
		until time.Time // when the client must have taken what is being sent; zero: nothing is
	}
}

// NewStream makes an answer of w that may go on, but must not wait longer than
// limit for its client at a time.
func NewStream(w http.ResponseWriter, limit time.Duration) *Stream {
	s := &Stream{w: w, out: http.NewResponseController(w), limit: limit}
	Exempt(w)
	s.late = time.AfterFunc(limit, s.cut)
	s.late.Stop()
	return s
}

// Exempt lifts the deadline of an answer.
func Exempt(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // who cannot has none
}

// Write sends p, or lets it gather until Flush is called.
func (s *Stream) Write(p []byte) (int, error) {
	s.begin()
	defer s.end()
	return s.w.Write(p)
}

// Flush sends what has gathered.
func (s *Stream) Flush() error {
	s.begin()
	defer s.end()
	return s.out.Flush()
}

// Reset ends the answer where it is: the client learns that it is not whole.
func (s *Stream) Reset() {
	_ = s.out.SetWriteDeadline(past) // who cannot has none
}

func (s *Stream) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.until = time.Now().Add(s.limit)
	s.late.Reset(s.limit)
}

func (s *Stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.until = time.Time{}
	s.late.Stop()
}

// cut ends the sending that takes too long. It does nothing if that has ended:
// the answer may be done, and its connection be used for another.
func (s *Stream) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.until.IsZero() && !time.Now().Before(s.mu.until) {
		_ = s.out.SetWriteDeadline(past) // who cannot does not wait either
	}
}
