package container

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/kubelet/probe"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/test/metric"
)

// told is what events say.
type told []string

func (t *told) Event(_ resource.Object, kind, reason, message string) {
	*t = append(*t, kind+" "+reason+": "+message)
}

func TestHooksThatDoNotSpeakTLSAreAskedWithoutCredentials(t *testing.T) {
	t.Parallel()
	var got http.Header
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer s.Close()
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var events told
	reg := prometheus.NewRegistry()
	r := New(Runner{Version: "v1.37.0", Events: &events, Registry: reg})
	h := &v1.HTTPGetAction{
		Scheme: v1.URISchemeHTTPS, Host: host, Port: intstr.FromString(port), HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "Bearer x"}, {Name: "X-A", Value: "1"}},
	}
	if err := r.httpHook(t.Context(), h, probe.Target{Pod: &v1.Pod{}, Container: &v1.Container{}}); err != nil {
		t.Fatal(err)
	}
	if got.Get("Authorization") != "" || got.Get("X-A") != "1" {
		t.Errorf("asked with %v, want no credentials", got)
	}
	if len(events) != 1 || !strings.HasPrefix(events[0], "Warning LifecycleHTTPFallback: request to HTTPS lifecycle hook "+s.Listener.Addr().String()) {
		t.Errorf("events: got %q", events)
	}
	if got := metric.Value(t, reg, "kubelet_lifecycle_handler_http_fallbacks_total"); got != 1 {
		t.Errorf("counted %v times, want once", got)
	}
}

func TestHooksThatSleepForTooLongAreCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	r := New(Runner{Registry: reg})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for seconds, want := range map[int64]float64{0: 0, 600: 1} {
		ctx := t.Context()
		if seconds > 0 {
			ctx = over // its container must end
		}
		before := metric.Value(t, reg, "kubelet_sleep_action_terminated_early_total")
		err := r.runHook(ctx, hookCall{handler: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: seconds}}})
		if got := metric.Value(t, reg, "kubelet_sleep_action_terminated_early_total") - before; got != want || (err != nil) != (want == 1) {
			t.Errorf("%d seconds: got %v, counted %v times, want %v", seconds, err, got, want)
		}
	}
}
