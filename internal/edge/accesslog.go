package edge

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"
)

// mostLogged is how large a file of the access log becomes; there is one more, of before.
const mostLogged = 64 << 20

// journal is the file of the access log, which is opened by the first line.
type journal struct {
	path string

	mu struct {
		sync.Mutex
		file io.WriteCloser // nil: it is to be opened
		size int64
	}
}

// Write appends a line. One that has become large is put aside, in the place of the one that was.
func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.file != nil && j.mu.size+int64(len(line)) > mostLogged {
		_ = j.mu.file.Close() // what was written is in the file
		j.mu.file = nil
		if err := os.Rename(j.path, j.path+".1"); err != nil {
			return 0, fmt.Errorf("put the access log aside: %w", err)
		}
	}
	if j.mu.file == nil {
		f, err := os.OpenFile(j.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return 0, fmt.Errorf("open the access log: %w", err)
		}
		j.mu.file = f
		if at, err := f.Stat(); err == nil {
			j.mu.size = at.Size()
		}
	}
	n, err := j.mu.file.Write(line)
	j.mu.size += int64(n)
	return n, err
}

// Close closes the file.
func (j *journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.file == nil {
		return nil
	}
	err := j.mu.file.Close()
	j.mu.file = nil
	return err
}

// accessLog is where connections to balancers are logged.
func accessLog(o *Options) (*slog.Logger, *journal) {
	if o.AccessLog == "" {
		return o.Log, &journal{}
	}
	j := &journal{path: o.AccessLog}
	return slog.New(slog.NewTextHandler(j, nil)), j
}

// passage is a stream as the access log has it.
type passage struct {
	x        *exchange
	s        stream
	began    time.Time
	received int64 // bytes of the client
	sent     int64 // bytes to it
	err      error // why there was none
}

// log logs a stream that has ended, if that is wanted.
func (p *passage) log() {
	r := p.s.d.Relay
	if r == nil || !r.Log {
		return
	}
	to, why := "", ""
	if p.x.took != nil {
		to = p.x.took.address
	}
	if p.err != nil {
		why = p.err.Error()
	}
	p.x.e.access.Info("connection", "service", r.Service, "client", p.s.met.conn.RemoteAddr(), "at", p.s.met.at, "name", p.s.name, "endpoint", to,
		"received", p.received, "sent", p.sent, "took", time.Since(p.began), "err", why)
}

// logged logs a request that has been answered, if that is wanted.
func (x *exchange) logged(a *answer, r *http.Request) {
	if x.door == nil || x.door.Relay == nil || !x.door.Relay.Log {
		return
	}
	to := ""
	if x.took != nil {
		to = x.took.address
	}
	x.e.access.Info("request", "service", x.door.Relay.Service, "client", r.RemoteAddr, "method", r.Method, "host", x.host, "path", x.path, "endpoint", to,
		"status", a.status, "sent", a.bytes, "took", time.Since(a.began))
}
