package watch

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/kemudi/kemudi/internal/apiserver/answer"
	"github.com/kemudi/kemudi/internal/apiserver/request"
)

// WantsMessages reports that the client of a watch wants each event as a message of a WebSocket, as pages in
// browsers do: they cannot read an answer that goes on.
func WantsMessages(r *http.Request) bool { return wsstream.IsWebSocketRequest(r) }

// ByMessages has run answer by the messages of a WebSocket, which ends with run, or the other way round. It reports
// false if there was none.
func ByMessages(p *answer.Reply, run func(p *answer.Reply)) (ran bool) {
	server := websocket.Server{
		Handshake: func(c *websocket.Config, _ *http.Request) error {
			if len(c.Protocol) > 1 { // none means anything here
				c.Protocol = c.Protocol[:1]
			}
			return nil
		},
		Handler: func(conn *websocket.Conn) {
			ran = true
			ctx, cancel := context.WithCancel(p.R.Context())
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() {
				defer cancel()
				ignore(conn)
			})
			own := *p
			out := &messages{conn: conn, header: http.Header{}, framed: p.Accept.Media == request.MediaProto}
			conn.PayloadType = websocket.TextFrame
			if out.framed {
				conn.PayloadType = websocket.BinaryFrame
			}
			own.W, own.R = out, p.R.WithContext(ctx)
			run(&own)
			_ = conn.Close() // the client may have done so
			wg.Wait()
		},
	}
	server.ServeHTTP(p.W, p.R)
	return ran
}

// ignore reads what a client says that has nothing to say, until it goes.
func ignore(conn *websocket.Conn) {
	var any [512]byte
	for {
		if _, err := conn.Read(any[:]); err != nil {
			return
		}
	}
}

// messages is an answer whose events are messages.
type messages struct {
	conn   *websocket.Conn
	header http.Header
	framed bool   // before each event there is its length; otherwise a line ends it
	rest   []byte // the begin of an event
}

var _ http.ResponseWriter = (*messages)(nil)

// Header is for what nobody sends: the answer has begun.
func (m *messages) Header() http.Header { return m.header }

// WriteHeader does nothing, for the same reason.
func (m *messages) WriteHeader(int) {}

// Write sends the events of which this is the end.
func (m *messages) Write(p []byte) (int, error) {
	m.rest = append(m.rest, p...)
	sent := 0
	for {
		event, size := m.first(m.rest[sent:])
		if size == 0 {
			break
		}
		if _, err := m.conn.Write(event); err != nil {
			return 0, err
		}
		sent += size
	}
	if m.rest = m.rest[sent:]; len(m.rest) == 0 {
		m.rest = nil // at rest it costs nothing
	}
	return len(p), nil
}

// first is the first event of data, and how long it is there; 0: it is not whole.
func (m *messages) first(data []byte) (event []byte, size int) {
	const head = 4
	if !m.framed {
		end := bytes.IndexByte(data, '\n') + 1
		return data[:end], end
	}
	if len(data) < head {
		return nil, 0
	}
	size = head + int(binary.BigEndian.Uint32(data))
	if len(data) < size {
		return nil, 0
	}
	return data[head:size], size
}

// Flush does nothing: each message is sent at once.
func (*messages) Flush() {}

// SetWriteDeadline bounds how long the client may take to receive a message.
func (m *messages) SetWriteDeadline(t time.Time) error { return m.conn.SetWriteDeadline(t) }
