package h2

import (
	"bytes"
	"slices"
	"sync"
	"time"
)

// lanes are those of a connection. Its window is shared between them and the
// HTTP/2 server: of what the client lets the connection send the server is told a part,
// and the rest is for the lanes (H2). A lane's window is not the server's concern at all.
type lanes struct {
	wake  func() // has fill called, by the goroutine that sends
	pace  *Pace
	timer *time.Timer
	// reminder is nil until a lane wants to be reminded.
	reminder *time.Timer
	much     func() // told each time that much was sent to clients that take much at a time

	// Of the goroutine that sends.
	round []*Lane   // whose turn it is
	sent  time.Time // when a round ended last
	most  int       // bytes that a turn gives: the most of late

	mu struct {
		sync.Mutex
		open         map[uint32]*Lane
		early        map[uint32]int64 // what streams without a lane were granted
		ready        []*Lane          // for the next round
		resting      bool             // timer will wake
		first        int64            // what a stream may be sent to begin with
		ours, theirs int64            // what lanes and server may send of the connection's window
		since        int64            // bytes that were sent since much was told
		reminds      bool             // reminder will remind the lanes that want it
		shared       bool             // the window is large enough for both
	}
}

// init makes lanes that wake who sends by wake.
func (s *lanes) init(pace *Pace, wake func()) {
	s.pace, s.wake = pace, wake
	s.timer = time.AfterFunc(restMost, s.rested)
	s.timer.Stop()
	s.mu.open = map[uint32]*Lane{}
	s.mu.first, s.mu.theirs = firstWindow, firstWindow
}

// add opens a lane, unless there is little room for it.
func (s *lanes) add(id uint32) *Lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.shared || s.mu.open[id] != nil {
		return nil
	}
	l := &Lane{of: s, id: id, window: min(s.mu.first+s.mu.early[id], most31), done: make(chan struct{})}
	delete(s.mu.early, id)
	s.mu.open[id] = l
	return l
}

func (s *lanes) windowOf(l *Lane) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.window
}

func (s *lanes) follow(l *Lane, after int64, limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.given, l.after, l.limit = true, after, limit
	s.startLocked(l)
}

// startLocked begins with the source if the server has written what comes before.
func (s *lanes) startLocked(l *Lane) {
	if l.given && l.begun && l.written == l.after && !l.started {
		l.started = true
		s.queueLocked(l)
	}
}

func (s *lanes) queueLocked(l *Lane) {
	if l.queued || l.closed {
		return
	}
	l.queued = true
	s.mu.ready = append(s.mu.ready, l)
	if len(s.mu.ready) == 1 {
		s.wake()
	}
}

func (s *lanes) woken(l *Lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.started && !l.blocked {
		s.queueLocked(l)
	}
}

// remind reminds a lane from now on, together with the others that want it.
func (s *lanes) remind(l *Lane, every time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.reminds = true
	if s.mu.reminds || !s.mu.shared {
		return
	}
	s.mu.reminds = true
	if s.reminder == nil {
		s.reminder = time.AfterFunc(every, func() { s.remindAll(every) })
	} else {
		s.reminder.Reset(every)
	}
}

// remindAll reminds all lanes that want it, and goes on while there are any.
func (s *lanes) remindAll(every time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.reminds = false
	for _, l := range s.mu.open {
		if !l.reminds {
			continue
		}
		s.mu.reminds = true
		l.reminded.Store(true)
		if l.started && !l.blocked {
			s.queueLocked(l)
		}
	}
	if s.mu.reminds {
		s.reminder.Reset(every)
	}
}

// finish closes a lane, if it is open; err says why.
func (s *lanes) finish(l *Lane, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishLocked(l, err)
}

func (s *lanes) finishLocked(l *Lane, err error) {
	if l.closed {
		return
	}
	l.closed, l.err = true, err
	if l.late != nil {
		l.late.Stop()
	}
	delete(s.mu.open, l.id)
	close(l.done)
}

// why says what a closed lane has come to; part says that its source had given more.
func (s *lanes) why(l *Lane, part bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.err == nil && part {
		return errPart
	}
	return l.err
}

// wrote takes note of a frame of the server: what a lane has to wait for, and what
// ends it (H3).
func (s *lanes) wrote(h head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.kind == dataFrame {
		s.mu.theirs -= int64(h.size)
	}
	l := s.mu.open[h.stream]
	if l == nil {
		if h.kind == resetFrame || h.flags&endStreamFlag != 0 {
			delete(s.mu.early, h.stream)
		}
		return
	}
	switch h.kind {
	case headersFrame:
		l.begun = true
	case dataFrame:
		l.window -= int64(h.size)
		l.written += int64(h.size)
	case resetFrame:
		s.finishLocked(l, nil)
		return
	default:
		return
	}
	if h.flags&endStreamFlag != 0 {
		s.finishLocked(l, nil)
		return
	}
	s.startLocked(l)
}

// reset closes the lane of a stream that the client has ended.
func (s *lanes) reset(stream uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.early, stream)
	if l := s.mu.open[stream]; l != nil {
		s.finishLocked(l, nil)
	}
}

// update takes a window update: that of a stream that is a lane, or a part of one of
// the connection. It returns what is left for the server; ok is false if the window
// would be larger than a window may be.
//
// What the client grants before its first request says how large the window is. If
// that is much the lanes get half of it, as does the server: many clients grant
// more only when half has been used, and either may be the only one to use any (H5).
func (s *lanes) update(u windowUpdate, opened bool) (left uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(u.bytes)
	if u.stream == 0 {
		if s.mu.ours+s.mu.theirs+n > most31 {
			return 0, false
		}
		mine := int64(0)
		switch {
		case !opened && n/2 >= firstWindow:
			s.mu.shared, mine = true, s.evenLocked(n)
		case s.mu.shared:
			mine = s.evenLocked(n)
		}
		s.mu.ours += mine
		s.mu.theirs += n - mine
		if s.mu.ours-mine <= 0 {
			for _, l := range s.mu.open {
				s.unblockLocked(l)
			}
		}
		return uint32(n - mine), true
	}
	l := s.mu.open[u.stream]
	if l == nil {
		s.earlyLocked(u.stream, n)
		return u.bytes, true
	}
	if l.window+n > most31 {
		return 0, false
	}
	l.window += n
	if !l.given { // the handler still sends by the server
		return u.bytes, true
	}
	s.unblockLocked(l)
	return 0, true
}

// earlyMost is how many streams early has room for: more would be of streams that
// have ended, or of a client that has more requests than it may.
const earlyMost = 256

// earlyLocked takes note of what a stream is granted that may have a lane soon. What is
// forgotten only makes a lane send less at a time.
func (s *lanes) earlyLocked(stream uint32, n int64) {
	if !s.mu.shared {
		return
	}
	if s.mu.early == nil || len(s.mu.early) >= earlyMost {
		s.mu.early = map[uint32]int64{}
	}
	s.mu.early[stream] = min(s.mu.early[stream]+n, most31)
}

// evenLocked is the part of n that lanes get, so that they and the server may
// send as much as each other afterwards, if that can be.
func (s *lanes) evenLocked(n int64) int64 {
	return min(max((s.mu.theirs+n-s.mu.ours)/2, 0), n)
}

func (s *lanes) unblockLocked(l *Lane) {
	if l.blocked && min(l.window, s.mu.ours) > 0 {
		l.blocked = false
		s.queueLocked(l)
	}
}

// resize sets what a stream may be sent to begin with, which changes the windows
// of all.
func (s *lanes) resize(first uint32) {
	if first > most31 {
		return // the server ends the connection
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.mu.open {
		l.window += int64(first) - s.mu.first
		s.unblockLocked(l)
	}
	s.mu.first = int64(first)
}

// allowed is how much a lane may send; ok is false if it is closed.
func (s *lanes) allowed(l *Lane) (n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(max(0, min(l.window, s.mu.ours))), !l.closed
}

// spent takes note that a lane, whose turn it is, sends so much. again says that
// it may have more.
func (s *lanes) spent(l *Lane, n int) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.window -= int64(n)
	s.mu.ours -= int64(n)
	if s.mu.since += int64(n); s.mu.since >= napAfter && s.mu.first >= wideFrom {
		s.mu.since = 0
		s.much()
	}
	if l.closed {
		return false
	}
	if l.remainder == nil {
		if !l.until.IsZero() {
			l.until = time.Time{}
			l.late.Stop()
		}
		if l.ended {
			s.finishLocked(l, nil)
		}
		return n > 0 && !l.ended
	}
	if l.until.IsZero() {
		l.until = time.Now().Add(l.limit)
		if l.late == nil {
			l.late = time.AfterFunc(l.limit, l.tooLate)
		} else {
			l.late.Reset(l.limit)
		}
	}
	l.blocked = min(l.window, s.mu.ours) <= 0 // (H4)
	return !l.blocked
}

// tooLate gives the client up, unless it has taken the remainder just now.
func (l *Lane) tooLate() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if !l.until.IsZero() && !time.Now().Before(l.until) {
		l.of.finishLocked(l, ErrSlow)
	}
}

// fill appends frames of the lanes that have something, by turns, until there is
// enough for one sending. What has been woken meanwhile waits for the next round,
// and that for the pace; what a round has begun it ends.
func (s *lanes) fill(buf *bytes.Buffer) *bytes.Buffer {
	if len(s.round) == 0 && !s.begin() {
		return buf
	}
	for len(s.round) > 0 {
		again := make([]*Lane, 0, len(s.round))
		for i, l := range s.round {
			if buf.Len() >= gatherMost {
				s.round = slices.Concat(s.round[i:], again)
				return buf
			}
			buf = withRoom(buf, s.most)
			before := buf.Len()
			all, more := l.turn(buf.Bytes())
			*buf = *bytes.NewBuffer(all)
			if s.most = max(buf.Len()-before, s.most-s.most/8); more {
				again = append(again, l)
			}
		}
		s.round = again
	}
	s.sent = time.Now()
	return buf
}

// begin begins a round, if any lane is ready and it is time for it.
func (s *lanes) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.ready) == 0 || s.mu.resting {
		return false
	}
	if d := s.pace.begin(s.sent); d > 0 {
		s.mu.resting = true
		s.timer.Reset(d)
		return false
	}
	s.round, s.mu.ready = s.mu.ready, nil
	for _, l := range s.round {
		l.queued = false
	}
	return true
}

// rested ends what begin waits for.
func (s *lanes) rested() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.resting {
		s.mu.resting = false
		s.pace.end()
		s.wake()
	}
}

// close ends the waiting of a connection that has ended, and its lanes.
func (s *lanes) close() {
	s.timer.Stop()
	s.rested()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.shared = false // no more are opened
	if s.reminder != nil {
		s.reminder.Stop()
	}
	for _, l := range s.mu.open {
		s.finishLocked(l, nil)
	}
}
