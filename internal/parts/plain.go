package parts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// Limits of the connections.
const (
	headerTimeout = 32 * time.Second
	idleTimeout   = 90 * time.Second
)

// Plain is a port without TLS. What it serves anybody may read who can connect.
type Plain struct {
	Flag    string         // that says where it is
	At      netip.AddrPort // port 0: nothing is served
	Handler http.Handler
}

// Serve serves until g ends.
func (p Plain) Serve(g *task.Group) error {
	if p.At.Port() == 0 {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(g.Context(), "tcp", p.At.String())
	if err != nil {
		return fmt.Errorf("%s %s: %w; is another one running?", p.Flag, p.At, err)
	}
	srv := &http.Server{
		Handler: p.Handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 1 << 20,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(g.Context()) },
	}
	serve(g, srv, func() error { return srv.Serve(l) })
	return nil
}

// serve runs a server until g ends.
func serve(g *task.Group, srv *http.Server, run func() error) {
	g.Go("port", func(context.Context) error {
		if err := run(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go("end port", func(ctx context.Context) error {
		<-ctx.Done()
		return srv.Close()
	})
}
