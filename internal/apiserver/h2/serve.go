package h2

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"

	"golang.org/x/net/http2"
)

// Configure makes srv, which must have its TLSConfig and HTTP2 settings and not
// serve yet, send HTTP/2 in bursts on the connections of a [Listener]. A burst may
// take as long as an answer, by srv's WriteTimeout; those of lanes keep pace.
func Configure(srv *http.Server, pace *Pace) error {
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
		conn := newConn(c, s, hs.WriteTimeout, pace)
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
