package edge

import (
	"net/http"
	"testing"

	"github.com/kemudi/kemudi/internal/trace"
)

// TestWhatAnIngressOffers is what people have it for: names on one address, TLS that ends here, and requests
// that are shared out, for all sites alike.
func TestWhatAnIngressOffers(t *testing.T) {
	b := newBed(t)
	secure := make(chan bool, 1)
	plain := func(name string) string {
		return b.backend(func(w http.ResponseWriter, r *http.Request) {
			select {
			case secure <- r.TLS != nil:
			default:
			}
			_, _ = w.Write([]byte(name))
		})
	}
	b.serve("a.com", nil, plain("a1"), plain("a2"))
	b.serve("b.com", nil, plain("b1"), plain("b2"))
	for host, names := range map[string][2]string{"a.com": {"a1", "a2"}, "b.com": {"b1", "b2"}} {
		seen := map[string]int{}
		for range 10 {
			_, text := b.get("https://" + host + "/")
			seen[text]++
		}
		trace.Proves(t, "ING-002", "ING-040")
		if seen[names[0]] != 5 || seen[names[1]] != 5 {
			t.Errorf("%s: got %v, want each of %v five times", host, seen, names)
		}
	}
	trace.Proves(t, "ING-002")
	if <-secure {
		t.Error("the endpoint was asked by TLS, want it to end at the edge")
	}
}
