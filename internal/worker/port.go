package worker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/guard"
	"github.com/kemudi/kemudi/internal/secureport"
	"github.com/kemudi/kemudi/internal/task"
)

// Port is a node agent's API as it is served to the network. All fields are required.
type Port struct {
	NodeName  string
	Address   netip.AddrPort
	Transport client.Transport      // asks who may use it, as the node
	ClientCA  func() *x509.CertPool // signs the certificates of those who may
	Serving   func() (*tls.Certificate, error)
	Handler   http.Handler // the agent's API
	TLS       secureport.Handshake
	Logger    *slog.Logger
}

// Serve begins to serve, to those who may use it.
func (p Port) Serve(g *task.Group) error {
	guarded, err := guard.New(guard.Options{NodeName: p.NodeName, Transport: p.Transport, ClientCA: p.ClientCA, Logger: p.Logger}, p.Handler)
	if err != nil {
		return err
	}
	config, err := p.TLS.Config(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.Serving() })
	if err != nil {
		return err
	}
	config.ClientAuth = tls.RequestClientCert
	where := p.Address.String()
	l, err := (&net.ListenConfig{}).Listen(g.Context(), "tcp", where)
	if err != nil {
		return fmt.Errorf("serve the node agent's API: %w; is another node agent running, or is --port taken?", err)
	}
	srv := &http.Server{
		Handler: guarded, ReadHeaderTimeout: headerTimeout, IdleTimeout: agentIdle, MaxHeaderBytes: 1 << 20,
		TLSConfig: config, ErrorLog: slog.NewLogLogger(p.Logger.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return g.Context() },
	}
	g.Go("node agent port", func(context.Context) error {
		if err := srv.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the node agent's API on %s: %w", where, err)
		}
		return nil
	})
	g.Go("end node agent port", func(ctx context.Context) error {
		<-ctx.Done()
		return srv.Close()
	})
	return nil
}

const agentIdle = 4 * time.Minute

// servePort serves the node agent's API to those who may use it.
func (w *Worker) servePort(g *task.Group) error {
	o := &w.o
	return Port{
		NodeName: o.NodeName, Address: netip.AddrPortFrom(o.Agent.Address, o.Agent.Port), Transport: w.c.Transport,
		ClientCA: w.c.ClientCA, Serving: w.c.Serving, Handler: w.handler(), TLS: o.Agent.TLS, Logger: o.Logger.With("part", "kubelet"),
	}.Serve(g)
}
