package aggregate_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
)

const flundersPath = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders"

func TestRequestsAreHandedOnInTheNameOfTheirUser(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	seen := make(chan *http.Request, 1)
	b.sample(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/openapi/") { // which the control plane asks for by itself
			http.NotFound(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		r.Header.Set("Body", string(body))
		seen <- r
		w.Header().Set("Audit-Id", "mine")
		w.Header().Set("Warning", `299 - "careful"`)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "made")
	})
	grant(b, "jane")
	got := b.ask("POST "+flundersPath+"?fieldManager=x&a=%20b", "{flunder}", "From: jane", "Content-Type: application/yaml", "X-Remote-User: root",
		"X-Remote-Group: system:masters", "X-Remote-Extra-Evil: 1", "X-Remote-Uid: 0", "Authorization: Bearer secret", "Accept: application/yaml")
	if got.code != 201 || got.body != "made" || got.header.Get("Warning") != `299 - "careful"` {
		t.Fatalf("got %+v", got)
	}
	if ids := got.header.Values("Audit-Id"); len(ids) != 1 || ids[0] == "mine" {
		t.Errorf("Audit-Id: got %q, want the one of the first server", ids)
	}
	r := <-seen
	for name, want := range map[string][]string{
		"X-Remote-User": {"jane"}, "X-Remote-Uid": {"uid-jane"}, "X-Remote-Group": {"people", "system:authenticated"}, "X-Remote-Extra-Scopes%2fof": {"a b"},
		"X-Remote-Extra-Evil": nil, "Authorization": nil, "Content-Type": {"application/yaml"}, "Accept": {"application/yaml"}, "Body": {"{flunder}"},
		"Audit-Id": got.header.Values("Audit-Id"),
	} {
		if has := r.Header.Values(name); !slices.Equal(has, want) {
			t.Errorf("%s: got %q, want %q", name, has, want)
		}
	}
	if r.URL.RequestURI() != flundersPath+"?fieldManager=x&a=%20b" || r.Host != "api.default.svc:443" {
		t.Errorf("got %s of %s", r.URL.RequestURI(), r.Host)
	}
	if len(r.TLS.VerifiedChains) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != "front-proxy-client" {
		t.Errorf("the other server is not shown the certificate of the front proxy: %v", r.TLS.PeerCertificates)
	}
	b.must(403, "DELETE "+flundersPath+"/x", "", "From: jane") // and nothing is handed on that is not allowed
}

func TestAnswersComeAsTheyAreSent(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	more, gone := make(chan struct{}), make(chan struct{})
	b.sample(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.Copy(w, r.Body) // as much as the client sends, while it sends
			return
		}
		for {
			fmt.Fprintln(w, "event")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-more:
			case <-r.Context().Done():
				close(gone)
				return
			}
		}
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+flundersPath+"?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	for range 3 {
		if line, err := lines.ReadString('\n'); err != nil || line != "event\n" {
			t.Fatalf("got %q, %v", line, err)
		}
		more <- struct{}{}
	}
	_ = resp.Body.Close()
	<-gone // the other server learns that the client has
	large := strings.Repeat("x", 5<<20)
	if got := b.must(200, "POST "+flundersPath, large); got != large {
		t.Errorf("got %d bytes, want as many as were sent", len(got))
	}
}

func TestConnectionsAreHandedThrough(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.sample(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{Subprotocols: []string{"echo"}}
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.WriteMessage(websocket.TextMessage, []byte(r.Header.Get("X-Remote-User")))
		kind, data, err := conn.ReadMessage()
		if err == nil {
			_ = conn.WriteMessage(kind, data)
		}
	})
	dialer := websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}, Subprotocols: []string{"echo"}}
	conn, resp, err := dialer.DialContext(t.Context(), "wss"+strings.TrimPrefix(b.url, "https")+flundersPath+"/x/exec", http.Header{"X-Remote-User": {"root"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if resp.Header.Get("Sec-Websocket-Protocol") != "echo" {
		t.Errorf("got protocol %q", resp.Header.Get("Sec-Websocket-Protocol"))
	}
	if _, data, err := conn.ReadMessage(); err != nil || string(data) != "admin" {
		t.Errorf("user: got %q, %v", data, err)
	}
	if err := conn.WriteMessage(websocket.BinaryMessage, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, data, err := conn.ReadMessage(); err != nil || string(data) != "hello" {
		t.Errorf("echo: got %q, %v", data, err)
	}
}

func TestRedirectsAndLoopsEnd(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.sample(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/loop") { // an API server of this cluster is behind the service
			req, err := http.NewRequestWithContext(r.Context(), r.Method, b.url+r.URL.RequestURI(), r.Body)
			if err != nil {
				http.Error(w, err.Error(), 500)
				return
			}
			req.Header = r.Header.Clone()
			resp, err := b.client().Do(req)
			if err != nil {
				http.Error(w, err.Error(), 500)
				return
			}
			defer resp.Body.Close()
			w.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(w, resp.Body)
			return
		}
		http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
	})
	if got := b.must(502, "GET "+flundersPath+"/x", ""); got != "the backend attempted to redirect this request, which is not permitted" {
		t.Errorf("got %q", got)
	}
	if got := b.must(508, "GET "+flundersPath+"/loop", ""); !strings.Contains(got, "has come back to the server that handed it on") {
		t.Errorf("got %q", got)
	}
}
