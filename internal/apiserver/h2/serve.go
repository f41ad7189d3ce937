package h2

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// Options say how bursts are sent. The zero value sends them at once, and waits for ever.
type Options struct {
	// Timeout is how long a client may take to receive a burst; zero: for ever.
	Timeout time.Duration
	// Pace is that of lanes; nil: they do not rest.
	Pace *Pace
}

// Configure makes srv, which must have its TLSConfig and HTTP2 settings and not
// serve yet, send HTTP/2 in bursts on the connections of a [Listener].
func Configure(srv *http.Server, opts Options) error {
	widen()
	server := &http2.Server{}
	if err := http2.ConfigureServer(srv, server); err != nil {
		return fmt.Errorf("configure HTTP/2: %w", err)
	}
	srv.TLSConfig.DynamicRecordSizingDisabled = true // a burst is sent as a whole
	plain := srv.TLSNextProto[http2.NextProtoTLS]
	srv.TLSNextProto[http2.NextProtoTLS] = func(hs *http.Server, c *tls.Conn, h http.Handler) {
		s, ok := c.NetConn().(*socket)
		if !ok {
			plain(hs, c, h)
			return
		}
		o := &http2.ServeConnOpts{BaseConfig: hs, Handler: h}
		conn := newConn(c, s, opts.Timeout, opts.Pace)
		// So net/http hands over the context of the connection.
		if b, ok := h.(interface{ BaseContext() context.Context }); ok {
			o.Context = context.WithValue(b.BaseContext(), connKey{}, conn)
		}
		var wg sync.WaitGroup
		wg.Go(conn.run)
		server.ServeConn(conn, o)
		conn.Close()
		wg.Wait()
	}
	return nil
}
