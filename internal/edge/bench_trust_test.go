package edge

import (
	"bytes"
	"testing"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// BenchmarkTrust finds the transport of a backend that speaks TLS, as each request does.
func BenchmarkTrust(b *testing.B) {
	e := New(Options{})
	x := &exchange{e: e, s: e.state.Load(), protocol: route.HTTPS, o: &route.Options{Trust: &route.Trust{Name: "web", Authorities: bytes.Repeat([]byte("x"), 2000)}}}
	for b.Loop() {
		x.transport()
	}
}
