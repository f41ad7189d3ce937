package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/task"
)

// Order is what an edge is told, by one line of JSON.
type Order struct {
	// Generation numbers the orders of who gives them; it comes back when the order is in force.
	Generation int64        `json:"generation"`
	Ports      *Ports       `json:"ports,omitempty"` // nil: as before
	Change     route.Change `json:"change,omitzero"`
	// Leave has the process close its ports, finish what it does and end.
	Leave bool `json:"leave,omitempty"`
}

// Ports are those of the machine on which an edge serves; 0: it does not.
type Ports struct {
	HTTP   uint16 `json:"http,omitempty"`
	HTTPS  uint16 `json:"https,omitempty"`
	Status uint16 `json:"status,omitempty"` // of 127.0.0.1: metrics and health
}

// DefaultPorts are those that people expect.
func DefaultPorts() Ports { return Ports{HTTP: 80, HTTPS: 443, Status: 10254} }

// Report is what an edge answers. Each has one of these.
type Report struct {
	Hello   *Hello     `json:"hello,omitempty"`   // first of all
	Applied int64      `json:"applied,omitempty"` // the generation that is in force
	Port    *PortState `json:"port,omitempty"`    // whenever it changes
}

// Hello says who answers.
type Hello struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
}

// PortState says whether a port is served.
type PortState struct {
	Name  string `json:"name"` // http, https or status
	Port  uint16 `json:"port"`
	Error string `json:"error,omitempty"` // why it is not
	Taken bool   `json:"taken,omitempty"` // because another program has it
}

// Control is one end of the connection between an edge and who feeds it.
type Control struct {
	conn net.Conn
	in   *json.Decoder
	mu   struct {
		sync.Mutex
		out *json.Encoder
	}
}

// NewControl makes the end of a connection. The caller must Close it.
func NewControl(conn net.Conn) *Control {
	c := &Control{conn: conn, in: json.NewDecoder(conn)}
	c.mu.out = json.NewEncoder(conn)
	return c
}

// Close closes the connection.
func (c *Control) Close() error { return c.conn.Close() }

// Send sends an Order or a Report.
func (c *Control) Send(message any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.mu.out.Encode(message); err != nil {
		return fmt.Errorf("send to the other end of the control socket: %w", err)
	}
	return nil
}

// Receive reads the next message into one.
func (c *Control) Receive(message any) error { return c.in.Decode(message) }

// errReplaced ends a connection when there is a newer one.
var errReplaced = errors.New("somebody else feeds the edge now")

// errLeave ends an edge that was told to.
var errLeave = errors.New("told to leave")

// obey takes the orders of one connection after the other; only the newest counts.
func (e *Edge) obey(ctx context.Context, l net.Listener) error {
	g := task.NewGroup(ctx)
	stop := context.AfterFunc(g.Context(), func() { l.Close() })
	defer stop()
	end := func(error) {}
	for {
		conn, err := l.Accept()
		if err != nil {
			err = ended(g.Context(), err)
			g.Cancel(err)
			return errors.Join(err, g.Wait())
		}
		end(errReplaced)
		var one context.Context
		one, cancel := context.WithCancelCause(g.Context())
		end = cancel
		g.Go("orders", func(context.Context) error {
			err := e.listen(one, NewControl(conn))
			cancel(err)
			if errors.Is(err, errLeave) {
				return err
			}
			return nil
		})
	}
}

// listen takes the orders of one connection until it ends.
func (e *Edge) listen(ctx context.Context, c *Control) error {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	defer c.Close()
	if err := c.Send(Report{Hello: &Hello{Version: e.o.Version, PID: os.Getpid()}}); err != nil {
		return err
	}
	e.feeder.Store(c)
	defer e.feeder.CompareAndSwap(c, nil)
	e.ports.tell(c)
	for {
		var o Order
		if err := c.Receive(&o); err != nil {
			return err
		}
		if o.Leave {
			return errLeave
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e.apply(&o.Change)
		if o.Ports != nil {
			e.ports.want(*o.Ports)
		}
		if err := c.Send(Report{Applied: o.Generation}); err != nil {
			return err
		}
	}
}

// ended ignores the error of what was closed on purpose.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
