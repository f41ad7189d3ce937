package dialback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/kemudi/kemudi/internal/carry"
	"github.com/kemudi/kemudi/internal/rawconn"
	"github.com/kemudi/kemudi/internal/task"
)

// AgentOptions say whose tunnels an agent keeps. All but Dial and Logger are required.
type AgentOptions struct {
	NodeName string
	// CA are the authorities that servers prove themselves by.
	CA *x509.CertPool
	// Certificate is the node's, and is asked for with each connection.
	Certificate func() (*tls.Certificate, error)
	// Scope is what servers may reach.
	Scope Scope
	// Dial opens connections to servers, and for them; nil: as net.Dialer does.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Logger *slog.Logger // default: nothing is logged
}

// Agent keeps a tunnel to each server while it runs. Its methods may be called
// concurrently.
type Agent struct {
	o    AgentOptions
	http *http2.Server
	base *http.Server // what http does not say
	log  *slog.Logger

	mu struct {
		sync.Mutex
		servers []string
		open    map[string]chan struct{} // closed when the tunnel to the server of that ID has ended
	}
	changed chan struct{} // holds a token while servers may be others
}

// NewAgent returns an agent that knows no server yet.
func NewAgent(o AgentOptions) (*Agent, error) {
	if o.NodeName == "" || o.CA == nil || o.Certificate == nil || o.Scope.NodeAgent == "" || o.Scope.Pods == nil {
		return nil, errors.New("options of tunnels: node name, CA, certificate and scope must be given")
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Agent{o: o, log: o.Logger, changed: make(chan struct{}, 1), http: &http2.Server{
		MaxConcurrentStreams: maxStreams, MaxUploadBufferPerStream: streamBuffer, MaxUploadBufferPerConnection: tunnelBuffer,
		ReadIdleTimeout: agentPing, PingTimeout: pingTimeout, WriteByteTimeout: writeTimeout,
	}}
	a.mu.open = map[string]chan struct{}{}
	a.base = &http.Server{ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)}
	if err := http2.ConfigureServer(a.base, a.http); err != nil {
		return nil, fmt.Errorf("configure HTTP/2 of tunnels: %w", err)
	}
	return a, nil
}

// SetServers says where the servers are, by their URLs. Tunnels to those that are
// not named end.
func (a *Agent) SetServers(urls []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.servers = slices.Clone(urls); len(a.changed) == 0 {
		a.changed <- struct{}{}
	}
}

func (a *Agent) servers() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.servers
}

// Run keeps the tunnels until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	kept := map[string]context.CancelFunc{}
	g.Go("servers", func(ctx context.Context) error {
		for {
			now := a.servers()
			for server, end := range kept {
				if !slices.Contains(now, server) {
					end()
					delete(kept, server)
				}
			}
			for _, server := range now {
				if kept[server] == nil {
					var known context.Context
					known, kept[server] = context.WithCancel(ctx)
					g.Go("tunnel to "+server, func(context.Context) error {
						a.keep(known, server)
						return nil
					})
				}
			}
			select {
			case <-a.changed:
			case <-ctx.Done():
				for _, end := range kept {
					end()
				}
				return nil
			}
		}
	})
	return g.Wait()
}

// Waits between two attempts. The longest is as long as people wait who have asked
// a server that has just come up.
const (
	firstWait   = 200 * time.Millisecond
	longestWait = 5 * time.Second
)

// keep keeps a tunnel to a server until ctx ends.
func (a *Agent) keep(ctx context.Context, server string) {
	wait := task.Backoff{Initial: firstWait, Max: longestWait, Jitter: 1}
	said := false // that the server cannot be reached: once is enough
	for {
		conn, id, err := a.open(ctx, server)
		if another := a.tunnel(id); errors.Is(err, errAnother) && another != nil { // it has several names
			select {
			case <-another:
				continue
			case <-ctx.Done():
				return
			}
		}
		if err == nil {
			a.log.InfoContext(ctx, "tunnel to server is open", "server", server)
			since := time.Now()
			ended := a.note(id)
			a.serve(ctx, conn)
			ended()
			if said = false; time.Since(since) > longestWait {
				wait.Reset()
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && !said {
			said = true
			a.log.WarnContext(ctx, "no tunnel to server: it is tried again", "server", server, "err", err)
		}
		if task.Sleep(ctx, wait.Next()) != nil {
			return
		}
	}
}

// note remembers that there is a tunnel to a server until the returned function is called.
func (a *Agent) note(id string) (ended func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	done := make(chan struct{})
	a.mu.open[id] = done
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if close(done); a.mu.open[id] == done {
			delete(a.mu.open, id)
		}
	}
}

// tunnel is closed when the tunnel to a server has ended; nil: there is none.
func (a *Agent) tunnel(id string) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.open[id]
}

// others are the servers to which there are tunnels.
func (a *Agent) others() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.mu.open))
}

// errAnother says that there is a tunnel to the same server already.
var errAnother = errors.New("there is a tunnel to this server under another of its names")

// open asks a server for a tunnel, and returns the server's ID too.
func (a *Agent) open(ctx context.Context, server string) (_ net.Conn, id string, err error) {
	at, err := url.Parse(server)
	if err != nil {
		return nil, "", fmt.Errorf("server: %w", err)
	}
	at.Path = strings.TrimSuffix(at.Path, "/") + Path(a.o.NodeName)
	call := rawconn.Caller{
		CA: a.o.CA, Dial: a.o.Dial,
		Certificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return a.o.Certificate() },
	}
	conn, answer, err := call.Call(ctx, at, http.Header{"Upgrade": {protocol}, othersHeader: a.others()})
	id = answer.Get(serverHeader)
	if no, ok := errors.AsType[*rawconn.Refusal](err); ok {
		if no.Code == http.StatusConflict {
			return nil, id, errAnother
		}
		err = fmt.Errorf("the server gives no tunnel: %w", err)
	}
	return conn, id, err
}

// serve connects servers through a tunnel until it breaks or ctx ends.
func (a *Agent) serve(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var streams sync.WaitGroup
	a.http.ServeConn(conn, &http2.ServeConnOpts{
		Context: ctx, BaseConfig: a.base,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			streams.Add(1)
			defer streams.Done()
			a.connect(w, r)
		}),
	})
	_ = conn.Close() // so that no stream waits for it
	streams.Wait()
}

// connect answers one stream of a server.
func (a *Agent) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "a tunnel takes the method CONNECT alone", http.StatusMethodNotAllowed)
		return
	}
	address, err := a.o.Scope.resolve(r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), dialTimeout)
	defer cancel()
	to, err := a.o.Dial(ctx, "tcp", address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if !splice(w, r, to) {
		panic(http.ErrAbortHandler) // the server resets the stream: what came may not be all
	}
}

// splice carries what comes from the server to a connection and back, until one of
// them has ended. It reports whether the connection ended in order. It closes it.
func splice(w http.ResponseWriter, r *http.Request, to net.Conn) bool {
	defer to.Close()
	out := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	_ = out.Flush() // who has gone since may have sent something before
	// When the server ends the stream nothing is sent to it any more, but what it has
	// sent before still goes to the target.
	stop := context.AfterFunc(r.Context(), func() {
		now := time.Now()
		_ = to.SetWriteDeadline(now.Add(lastWords))
		_ = to.SetReadDeadline(now)
	})
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = carry.Way(to, r.Body) }) // it may be gone
	err := copyFlushing(w, out, to)
	if r.Context().Err() == nil {
		_ = to.Close()
		_ = r.Body.Close() // wakes who waits for it
	}
	wg.Wait()
	return err == nil
}

// copyFlushing sends on what comes, at once.
func copyFlushing(w io.Writer, out *http.ResponseController, from io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if err := out.Flush(); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
