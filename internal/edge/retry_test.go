package edge

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/kemudi/kemudi/internal/edge/route"
)

func TestRequestsAreSentAgainAsRulesSay(t *testing.T) {
	b := newBed(t)
	var mu sync.Mutex
	asked := map[string]int{}
	// Each question is answered by 503 twice before it is answered well, or not at all once.
	backend := b.backend(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.String()]++
		n := asked[r.URL.String()]
		mu.Unlock()
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil:
			t.Error(err)
		case strings.HasPrefix(r.URL.Path, "/silent") && n == 1:
			<-r.Context().Done()
		case !strings.HasPrefix(r.URL.Path, "/silent") && n < 3:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, "not yet")
		default:
			fmt.Fprintf(w, "%s after %d", body, n)
		}
	})
	again := func(attempts int, codes ...int) *route.Retry {
		return &route.Retry{Codes: codes, Attempts: attempts, Backoff: 1}
	}
	site := to("team/web", "", map[string]route.Action{
		"/enough": {Backends: only("web"), Retry: again(2, 500, 503)},
		"/few":    {Backends: only("web"), Retry: again(1, 503)},
		"/other":  {Backends: only("web"), Retry: again(2, 500)},
		"/never":  {Backends: only("web"), Retry: again(0, 503)},
		"/unsaid": {Backends: only("web")},
		"/late":   {Backends: only("web"), Limit: 50, Retry: &route.Retry{Codes: []int{503}, Attempts: 2, Backoff: 60_000}},
		"/silent": {Backends: only("web"), Attempt: 50, Retry: again(1)},
	})
	b.through(route.Change{Upstreams: map[string]*route.Upstream{"web": {Endpoints: []string{backend}}}}, route.Listener{Sites: []*route.Site{site}})
	large := strings.Repeat("x", copyBody+1)
	for _, c := range []struct {
		method, path, body string
		want               string
	}{
		{"GET", "/enough?a", "", "200 after 3"},
		{"POST", "/enough?b", "body", "200 body after 3"},
		{"POST", "/enough?c", large, "503 not yet"}, // what cannot be kept is sent once
		{"GET", "/few", "", "503 not yet"},
		{"GET", "/other", "", "503 not yet"},
		{"GET", "/never", "", "503 not yet"},
		{"GET", "/unsaid", "", "503 not yet"},
		{"GET", "/late", "", "504 "},
		{"GET", "/silent?a", "", "200 after 2"},
		{"POST", "/silent?b", "body", "504 "}, // it may have been done
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, fmt.Sprintf("http://a.com:%d%s", doorPort, c.path), strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		res, text := b.send(b.client(), r)
		got := fmt.Sprint(res.StatusCode, " ")
		if !strings.HasPrefix(c.want, "504") {
			got += text
		}
		if got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.method, c.path, got, c.want)
		}
	}
	mu.Lock() // a request that was given up may still be at the backend
	defer mu.Unlock()
	for path, want := range map[string]int{"/enough?c": 1, "/few": 2, "/other": 1, "/never": 1, "/unsaid": 1, "/late": 1, "/silent?b": 1} {
		if asked[path] != want {
			t.Errorf("%s: the backend was asked %d times, want %d", path, asked[path], want)
		}
	}
}

// Nobody listens at one of the two endpoints.
func TestRequestsThatCannotBeSentGoToOthersAsRulesSay(t *testing.T) {
	b := newBed(t)
	b.through(route.Change{Upstreams: map[string]*route.Upstream{"dead": {Endpoints: []string{"127.0.0.1:1"}}, "half": {Endpoints: []string{"127.0.0.1:1", b.naming("alive")}}}},
		route.Listener{Sites: []*route.Site{to("team/web", "", map[string]route.Action{
			"/half": {Backends: only("half"), Retry: &route.Retry{Attempts: 1, Backoff: 1}},
			"/dead": {Backends: only("dead"), Retry: &route.Retry{Attempts: 2, Backoff: 1}},
		})}})
	for range 4 {
		if status, text := b.get(fmt.Sprintf("http://a.com:%d/half", doorPort)); status != 200 || text != "alive" {
			t.Errorf("got %d %q, want the endpoint that is alive", status, text)
		}
	}
	if status, _ := b.get(fmt.Sprintf("http://a.com:%d/dead", doorPort)); status != http.StatusBadGateway {
		t.Errorf("nobody is there: got %d, want 502", status)
	}
}
