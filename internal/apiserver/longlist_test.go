package apiserver

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/test/wait"
)

// TestLongListsOverHTTP2AreThoseOfHTTP1, the first time they are asked for and when their
// items' bytes are kept; what begins a watch has the same objects. All are counted.
func TestLongListsOverHTTP2AreThoseOfHTTP1(t *testing.T) {
	const n = 90
	reg := prometheus.NewRegistry()
	f := newFixture(t, func(o *Options) { o.Registry = reg })
	for i := range n {
		f.must(201, "POST", mapsPath, fmt.Sprintf(`{"metadata":{"name":"map-%02d"},"data":{"text":%q}}`, i, strings.Repeat(fmt.Sprint(i, " "), 1500)))
	}
	base := "https://" + f.serveTLS() + mapsPath
	get := func(version int, query, accept string) []byte {
		t.Helper()
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: version == 2, DisableCompression: true}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || res.ProtoMajor != version {
			t.Fatalf("GET %s by %s: %s, %v, %d bytes", query, res.Proto, res.Status, err, len(text))
		}
		return text
	}
	asked, sum := 0, 0
	for _, query := range []string{"", "?limit=80"} {
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
			var want []byte
			for round := range 3 {
				got := get(2, query, accept)
				if asked, sum = asked+1, sum+len(got); round == 0 {
					want = get(1, query, accept)
					asked, sum = asked+1, sum+len(want)
				}
				if !bytes.Equal(got, want) || len(got) < n*1000 {
					t.Errorf("GET %s as %s, round %d: got %d bytes, want the %d of HTTP/1.1", query, accept, round, len(got), len(want))
				}
			}
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families {
		if m.GetName() != "apiserver_response_sizes" {
			continue
		}
		if h := m.Metric[0].GetHistogram(); len(m.Metric) != 1 || h.GetSampleCount() != uint64(asked) || h.GetSampleSum() != float64(sum) {
			t.Errorf("counted: got %v, want %d answers of %d bytes", m.Metric, asked, sum)
		}
	}

	const initial = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
	lines := strings.Split(strings.TrimSpace(string(get(2, initial, "application/json"))), "\n")
	for i, line := range lines[:min(n, len(lines))] {
		if e := decoded[watched](t, line); e.Type != "ADDED" || e.Object.Metadata.Name != fmt.Sprintf("map-%02d", i) {
			t.Errorf("event %d: got %s %s", i, e.Type, e.Object.Metadata.Name)
		}
	}
	if len(lines) <= n || !strings.Contains(lines[n], "k8s.io/initial-events-end") || decoded[watched](t, lines[n]).Type != "BOOKMARK" {
		t.Errorf("got %d events, want %d and the bookmark that ends them", len(lines), n)
	}
}

// TestLongListThatIsNotReadEnds when its client goes away, whatever of it is still to be sent.
func TestLongListThatIsNotReadEnds(t *testing.T) {
	f := newFixture(t)
	for i := range 60 {
		f.must(201, "POST", mapsPath, fmt.Sprintf(`{"metadata":{"name":"map-%02d"},"data":{"text":%q}}`, i, strings.Repeat("x", 200_000)))
	}
	f.must(200, "GET", mapsPath, "")
	ended := make(chan struct{}, 1)
	inner := f.handler
	f.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		inner.ServeHTTP(w, r)
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+f.serveTLS()+mapsPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(res.Body, make([]byte, 1000)); err != nil {
		t.Error(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(wait.Patience):
		t.Error("the list goes on although nobody reads it")
	}
}
