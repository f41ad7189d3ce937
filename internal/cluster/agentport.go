package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/guard"
	"github.com/kemudi/kemudi/internal/task"
)

// agentPort is the node agent's API as it is served to the network.
type agentPort struct {
	n    *localNode
	cert atomic.Pointer[tls.Certificate]
}

// servePort serves the node agent's API to those who may use it. t is the API
// as the node agent itself sees it.
func (n *localNode) servePort(g *task.Group, t client.Transport) error {
	o := &n.s.o
	guarded, err := guard.New(guard.Options{
		NodeName: o.NodeName, Transport: t, ClientCA: n.s.pki.CA.Pool(), Logger: o.Logger.With("part", "kubelet"),
	}, n.agent.Handler())
	if err != nil {
		return err
	}
	p := &agentPort{n: n}
	if err := p.renew(); err != nil {
		return err
	}
	where := netip.AddrPortFrom(o.Agent.Address, o.Agent.Port).String()
	l, err := (&net.ListenConfig{}).Listen(g.Context(), "tcp", where)
	if err != nil {
		return fmt.Errorf("serve the node agent's API: %w; is another node agent running, or is --port taken?", err)
	}
	srv := &http.Server{
		Handler: guarded, ReadHeaderTimeout: headerTimeout, IdleTimeout: agentIdle, MaxHeaderBytes: 1 << 20,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.cert.Load(), nil },
		},
		ErrorLog: slog.NewLogLogger(o.Logger.With("part", "kubelet").Handler(), slog.LevelDebug),
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
	n.port = p
	return nil
}

const agentIdle = 4 * time.Minute

// renew makes the serving certificate, or reads the one that is still good.
func (p *agentPort) renew() error {
	o := &p.n.s.o
	pair, err := p.n.s.pki.Pair("kubelet", pki.Subject{
		Name: "system:node:" + o.NodeName, Organizations: []string{"system:nodes"}, Server: true,
		Hosts: append(p.n.s.at.Load().node(), o.NodeName, "localhost", "127.0.0.1", "::1"),
	})
	if err != nil {
		return err
	}
	cert := pair.TLS()
	p.cert.Store(&cert)
	return nil
}
