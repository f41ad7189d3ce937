package metricsserver

import (
	"context"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

const text = `# HELP container_cpu_usage_seconds_total Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="main",namespace="default",pod="web-1"} 4.5 1700000000123
container_memory_working_set_bytes{container="main",namespace="default",pod="web-1"} 3.145728e+06 1700000000123
container_start_time_seconds{container="main",namespace="default",pod="web-1"} 1.7e+09
node_cpu_usage_seconds_total 100.25 1700000000456
node_memory_working_set_bytes 1.048576e+09 1700000000456
resource_scrape_error 0
`

func TestMetricsOfAgentsAreRead(t *testing.T) {
	t.Parallel()
	got, err := parse(strings.NewReader(text))
	want := &Sample{
		Node: Use{100.25, 1 << 30 * 0.9765625, time.UnixMilli(1700000000456)},
		Pods: map[string]map[string]Use{"default/web-1": {"main": {4.5, 3 << 20, time.UnixMilli(1700000000123)}}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestWhatAreNoMetricsIsRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"x", "x y", "x 1 2 3", "x 1 y", `x{a="b} 1`, `x{a} 1`, `x{a=b} 1`, "<html>"} {
		if got, err := parse(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: got %+v, want an error", bad, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(text)
	f.Add(`x{a="\"",b="\\"} 1`)
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parse(strings.NewReader(text)); err == nil && s == nil {
			t.Error("neither a sample nor an error")
		}
	})
}

// dial reaches one listener, whatever the node.
type dial struct{ address string }

func (d dial) DialNode(ctx context.Context, node string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", d.address)
}

func TestAgentsAreAskedOverHTTP(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics/resource" || r.Host != "n1" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(text))
	})}
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	a := NewAgents(dial{l.Addr().String()})
	defer func() {
		a.Close()
		server.Close()
		<-done
	}()
	if s, err := a.Ask(t.Context(), "n1"); err != nil || s.Node.CPU != 100.25 {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := a.Ask(t.Context(), "n2"); err == nil || err.Error() != "ask node n2 what it uses: 403 Forbidden" {
		t.Errorf("who is refused: got %v", err)
	}
	if _, err := NewAgents(nil).Ask(t.Context(), "n1"); err == nil || !strings.Contains(err.Error(), "this server has no connection to node agents") {
		t.Errorf("without a way to agents: got %v", err)
	}
}
