package edge

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// answer is the way back to a client.
type answer struct {
	http.ResponseWriter
	control  *http.ResponseController
	began    time.Time
	extended time.Time // when the client was last given time to read
	status   int
	bytes    int64
	hijacked bool
	streamed bool        // it goes by a stream of HTTP/2
	unread   atomic.Bool // not all of the request's body has been read
	slow     *time.Timer // ends a stream whose client takes nothing; nil: nothing has been sent yet

	mu struct {
		sync.Mutex
		sending time.Time // since when something is being sent by the stream; zero: nothing is
	}
}

// sendTimeout is how long a client may read nothing of what is sent to it (E5), and bodyTimeout
// how long it may send nothing of what it has announced.
const (
	sendTimeout = 60 * time.Second
	bodyTimeout = 60 * time.Second
	// lingerTimeout is how long a client may take for the rest of a body that nobody wants.
	lingerTimeout = 5 * time.Second
	// extendAfter is how old the time that a client has may be before it is given more.
	extendAfter = 5 * time.Second
	// held is how much of an answer the server keeps for itself at least, until there is more or it is to be sent.
	held = 2 << 10
)

// newAnswer takes away what the request before on the same connection has left, if the server may have something to say
// before there is an answer: that gets its own time.
func newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w), began: time.Now(), streamed: r.ProtoMajor > 1}
	if !a.streamed && r.Body != nil && r.Body != http.NoBody {
		_ = a.control.SetWriteDeadline(time.Time{})
		a.unread.Store(true) // by HTTP/2 nobody waits for the rest
	}
	return a
}

func (a *answer) extend(now time.Time) {
	if now.Sub(a.extended) > extendAfter {
		a.extended = now
		_ = a.control.SetWriteDeadline(now.Add(sendTimeout))
	}
}

// send sends something, for which the client has its time (E5). The deadline of a stream would end it even while there is
// nothing to send, so that streams have none before their last words.
func (a *answer) send(what func() error) error {
	now := time.Now()
	if !a.streamed {
		a.extend(now)
		return what()
	}
	a.since(now)
	defer a.since(time.Time{})
	if a.slow == nil {
		a.slow = time.AfterFunc(sendTimeout, a.tooSlow)
	} else {
		a.slow.Reset(sendTimeout)
	}
	defer a.slow.Stop()
	return what()
}

func (a *answer) since(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.sending = t
}

// tooSlow ends a stream whose client takes nothing of it. The answer is not over before it returns.
func (a *answer) tooSlow() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.sending.IsZero() && time.Since(a.mu.sending) >= sendTimeout {
		_ = a.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

// WriteHeader sends the status. Of several, the last counts: those before inform only.
func (a *answer) WriteHeader(status int) {
	a.status = status
	if status >= http.StatusOK { // it waits for the body
		a.ResponseWriter.WriteHeader(status)
		return
	}
	_ = a.send(func() error {
		a.ResponseWriter.WriteHeader(status)
		return nil
	})
}

func (a *answer) Write(data []byte) (n int, err error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.bytes+int64(len(data)) <= held {
		n, err = a.ResponseWriter.Write(data)
	} else {
		err = a.send(func() error {
			n, err = a.ResponseWriter.Write(data)
			return err
		})
	}
	a.bytes += int64(n)
	return n, err
}

// FlushError sends what there is. Response controllers call it.
func (a *answer) FlushError() error {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.send(a.control.Flush)
}

// Unwrap lets a response controller take the connection over.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
