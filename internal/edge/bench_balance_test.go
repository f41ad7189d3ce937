package edge

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/test/serve"
)

// fountain serves a byte, and, to who answers, bytes without an end.
func fountain(b *testing.B) string {
	data := make([]byte, 256<<10)
	return serve.TCP(b, func(c net.Conn) {
		_, err := c.Write(data[:1])
		for asked := make([]byte, 256); err == nil && !bytes.HasSuffix(asked, []byte("go")); {
			var n int
			n, err = c.Read(asked[:254])
			copy(asked[254:], asked[max(0, n-2):n])
		}
		for err == nil {
			_, err = c.Write(data)
		}
	})
}

// BenchmarkBalancers takes 64 MiB of an endpoint, and makes connections to it, directly and through the balancer of a
// Service; client, edge and endpoint are in one process.
func BenchmarkBalancers(b *testing.B) {
	const much = 64 << 20
	at := fountain(b)
	through := func(b *testing.B, mode route.Mode, relay route.Relay) string {
		cert := pair(b, "web.com")
		relay.Service = "team/web"
		return edgeTold(b, Order{Generation: 1, Change: route.Change{
			Upstreams: map[string]*route.Upstream{"pods": {Endpoints: []string{at}}}, Certificates: map[string]*route.Certificate{"cert": cert},
			Doors: map[string]*route.Door{"web": {Port: doorPort, Public: 443, Relay: &relay, Listeners: []route.Listener{{Mode: mode, Certificates: []string{"cert"}, Sites: []*route.Site{{
				Key: "team/web", Rules: []route.Rule{{Type: route.Prefix, Do: 1}}, Actions: []route.Action{{Backends: []route.Backend{{Upstream: "pods", Weight: 1}}}},
			}}}}}},
		}})
	}
	for _, tc := range []struct {
		name  string
		mode  route.Mode
		relay *route.Relay // nil: directly
	}{
		{"direct", route.Bytes, nil},
		{"bytes", route.Bytes, &route.Relay{Header: 1}},
		{"bytes with times", route.Bytes, &route.Relay{Header: 1, Idle: 60_000, Drain: 60_000}},
		{"TLS", route.Terminate, &route.Relay{}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			to := at
			if tc.relay != nil {
				to = through(b, tc.mode, *tc.relay)
			}
			dial := func() net.Conn {
				c, err := net.Dial("tcp", to)
				if err != nil {
					b.Fatal(err)
				}
				if tc.mode == route.Terminate {
					return tls.Client(c, &tls.Config{InsecureSkipVerify: true})
				}
				return c
			}
			var took, connecting time.Duration
			const connections = 200
			b.ReportAllocs()
			for b.Loop() {
				c, began := dial(), time.Now()
				if _, err := c.Write([]byte("go")); err != nil {
					b.Fatal(err)
				}
				if _, err := io.CopyN(io.Discard, c, much); err != nil {
					b.Fatal(err)
				}
				took += time.Since(began)
				c.Close()
				began = time.Now()
				for range connections {
					c := dial()
					if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
						b.Fatal(err)
					}
					c.Close()
				}
				connecting += time.Since(began)
			}
			b.ReportMetric(float64(b.N)*much/took.Seconds()/1e6, "MB/s")
			b.ReportMetric(float64(connecting.Microseconds())/float64(b.N)/connections, "us/connection")
		})
	}
}
