package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/kemudi/kemudi/internal/apiserver/h2"
	"github.com/kemudi/kemudi/internal/task"
)

// Limits of connections and of ending them.
const (
	maxStreams    = 1000      // requests at a time on one HTTP/2 connection: agents keep many watches
	streamBuffer  = 256 << 10 // what a client may send ahead for one request, in one frame if it likes
	headerTimeout = 32 * time.Second
	idleTimeout   = 90 * time.Second
	pingTimeout   = 30 * time.Second
	drainTimeout  = 10 * time.Second // for the requests that run when the server stops
	// wordsShare is the part of a request's time that an answer may be late by: so
	// who was too slow can still be told, 5 s by default.
	wordsShare = 12
)

// Serve answers on l, which it closes, until ctx ends, and for as long after that as [Serving.Delay] says; then
// watches and streams end at once and other requests get a short while to complete. config
// brings the certificates; client certificates are asked for.
func (s *Server) Serve(ctx context.Context, l net.Listener, config *tls.Config) error {
	config = config.Clone()
	if config.NextProtos = []string{"h2", "http/1.1"}; s.o.Serving.NoHTTP2 {
		config.NextProtos = config.NextProtos[1:]
	}
	if config.ClientAuth == tls.NoClientCert {
		config.ClientAuth = tls.RequestClientCert
	}
	serving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	srv := &http.Server{
		Handler: s.Handler(), TLSConfig: config,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 1 << 20,
		WriteTimeout: s.o.RequestTimeout + s.o.RequestTimeout/wordsShare,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: s.o.Serving.Streams, MaxReadFrameSize: streamBuffer, MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: 16 << 20,
			SendPingTimeout: pingTimeout, PingTimeout: pingTimeout / 2,
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.WithoutCancel(ctx), servingKey{}, serving)
		},
		ConnContext: s.door.Context,
	}
	srv.ErrorLog.SetOutput(serverLog{srv.ErrorLog.Writer(), s.metrics.strangers})
	l = s.door.Listener(l)
	if s.o.Serving.NoHTTP2 {
		srv.Protocols = &http.Protocols{}
		srv.Protocols.SetHTTP1(true)
	} else if !s.o.FrameByFrame {
		if err := h2.Configure(srv, h2.Options{Timeout: srv.WriteTimeout, Pace: s.pace}); err != nil {
			return err
		}
		l = h2.Listener{Listener: l}
	}
	g := task.NewGroup(ctx)
	g.Go("accept", func(context.Context) error {
		if err := srv.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
		return nil
	})
	g.Go("drain", func(ctx context.Context) error {
		<-ctx.Done()
		s.stopping.Store(true)
		lasting := context.WithoutCancel(ctx)
		if err := task.Sleep(lasting, s.o.Serving.Delay); err != nil {
			return err
		}
		stop(context.Cause(ctx))
		ctx, cancel := context.WithTimeout(lasting, drainTimeout)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			return srv.Close()
		}
		return nil
	})
	return g.Wait()
}

// servingKey finds the context that ends when the server is told to stop.
type servingKey struct{}

// untilStop returns a context that also ends when the server stops: for
// requests that would not end by themselves.
func untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	serving, ok := ctx.Value(servingKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(serving, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
