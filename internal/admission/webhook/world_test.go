package webhook_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// world is a control plane, and a server of webhooks that it reaches as a pod behind the
// service shop/hooks, and at its URL.
type world struct {
	*plane.Plane
	t     *testing.T
	ca    string // of the webhooks, as configurations have it
	url   string
	serve map[string]func(r *admissionv1.AdmissionReview) any // answers, by path
	mu    struct {
		sync.Mutex
		asked []admissionv1.AdmissionReview // in order
		told  []string                      // of which traces, in order
	}
}

// podIP is where the service's endpoint is said to be.
const podIP = "10.9.8.7"

// ways reaches the pod of the webhooks, wherever it really is.
type ways struct{ at string }

func (w ways) DialNode(context.Context, string) (net.Conn, error) {
	return nil, fmt.Errorf("there are no nodes")
}

func (w ways) DialAddress(ctx context.Context, _, address string) (net.Conn, error) {
	if address != podIP+":8443" {
		return nil, fmt.Errorf("connect to %s: no route to host", address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", w.at)
}

// maxBody is more than any review of a test.
const maxBody = 8 << 20

// newWorld starts one; change may alter the options of its server.
func newWorld(t *testing.T, change ...func(o *apiserver.Options)) *world {
	t.Helper()
	return newWorldOf(t, plane.Options{}, change...)
}

// newWorldOf starts one that has more of its own.
func newWorldOf(t *testing.T, o plane.Options, change ...func(o *apiserver.Options)) *world {
	t.Helper()
	authority, err := pki.NewAuthority("webhooks")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Subject{Name: "hooks", Hosts: []string{"hooks.shop.svc", "127.0.0.1"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, serve: map[string]func(*admissionv1.AdmissionReview) any{}}
	ca, err := json.Marshal(authority.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	w.ca = string(ca)
	server := httptest.NewUnstartedServer(http.HandlerFunc(w.answer))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair.TLS()}}
	server.StartTLS()
	t.Cleanup(server.Close)
	w.url = server.URL
	// No controller writes anything that the test does not ask for.
	o.Alone, o.Serving = true, func(o *apiserver.Options, _ *watchcache.Set) error {
		o.Nodes = ways{server.Listener.Addr().String()}
		o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{
				Name: "admin", UID: "7", Groups: []string{user.SystemPrivilegedGroup}, Extra: map[string][]string{"team": {"a", "b"}},
			}}, true, nil
		})
		for _, f := range change {
			f(o)
		}
		return nil
	}
	w.Plane = sim.Plane(t, o)
	w.must(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop","labels":{"hooks":"on"}}}`)
	w.must(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"exempt"}}`)
	w.must(201, "POST", "/api/v1/namespaces/shop/serviceaccounts", `{"metadata":{"name":"default"}}`)
	w.must(201, "POST", "/api/v1/namespaces/shop/services", `{"metadata":{"name":"hooks"},"spec":{"ports":[{"port":443,"targetPort":8443}]}}`)
	w.must(201, "POST", "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", `{"metadata":{"name":"hooks","labels":{"kubernetes.io/service-name":"hooks"}},
		"addressType":"IPv4","ports":[{"name":"","port":8443}],"endpoints":[{"addresses":["`+podIP+`"],"conditions":{"ready":true}}]}`)
	return w
}

// answer answers as the test says for the path.
func (w *world) answer(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxBody))
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	w.mu.asked, w.mu.told = append(w.mu.asked, review), append(w.mu.told, r.Header.Get("Traceparent"))
	serve := w.serve[r.URL.Path]
	w.mu.Unlock()
	if serve == nil {
		http.NotFound(rw, r)
		return
	}
	switch out := serve(&review).(type) {
	case nil: // it hangs
		<-r.Context().Done()
	case string:
		_, _ = io.WriteString(rw, out)
	case *admissionv1.AdmissionResponse:
		if out.UID == "" {
			out.UID = review.Request.UID
		}
		review.Request, review.Response = nil, out
		_ = json.NewEncoder(rw).Encode(review)
	}
}

// on has a path answer so.
func (w *world) on(path string, serve func(r *admissionv1.AdmissionReview) any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serve[path] = serve
}

// asked are the reviews since the last call.
func (w *world) asked() []admissionv1.AdmissionReview {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.mu.asked
	w.mu.asked = nil
	return all
}

// told is which traces webhooks were told of since the last call.
func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.mu.told
	w.mu.told = nil
	return all
}

// ask sends a request; headers are "Name: value".
func (w *world) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(body))
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	rec := httptest.NewRecorder()
	w.Server().Handler().ServeHTTP(rec, r)
	return rec
}

// must is ask for a request that is answered with the code.
func (w *world) must(code int, method, path, body string, headers ...string) string {
	w.t.Helper()
	if strings.HasPrefix(body, "{") && len(headers) == 0 {
		headers = []string{"Content-Type: application/json"}
	}
	rec := w.ask(method, path, body, headers...)
	if rec.Code != code {
		w.t.Fatalf("%s %s: got %d %s, want %d", method, path, rec.Code, rec.Body, code)
	}
	return rec.Body.String()
}

// replace updates a configuration, whatever its revision is.
func (w *world) replace(path, body string) {
	w.t.Helper()
	var now struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(w.must(200, "GET", path, "")), &now); err != nil {
		w.t.Fatal(err)
	}
	w.must(200, "PUT", path, strings.Replace(body, `"metadata":{`, `"metadata":{"resourceVersion":"`+now.Metadata.ResourceVersion+`",`, 1))
}

// refused is must for a request whose answer has a text.
func (w *world) refused(code int, text, method, path, body string, headers ...string) {
	w.t.Helper()
	var said struct{ Message string }
	if err := json.Unmarshal([]byte(w.must(code, method, path, body, headers...)), &said); err != nil || !strings.Contains(said.Message, text) {
		w.t.Fatalf("%s %s: got %q, %v, want %q in it", method, path, said.Message, err, text)
	}
}

const (
	mutatingPath   = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	validatingPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	mapsPath       = "/api/v1/namespaces/shop/configmaps"
	patchMerge     = "Content-Type: application/merge-patch+json"
)

// hook is a webhook of a configuration: at a path of the service, for the rest as said, of
// which later fields replace earlier ones.
func (w *world) hook(path, more string) string {
	first := `"name":"a.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"namespaceSelector":{"matchLabels":{"hooks":"on"}}`
	return w.merge(`{`+first+`,"clientConfig":{"service":{"namespace":"shop","name":"hooks","path":"`+path+`"},"caBundle":`+w.ca+`},
		"rules":[{"operations":["CREATE","UPDATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}`, more)
}

// merge replaces the fields of one object by those of another.
func (w *world) merge(object, more string) string {
	w.t.Helper()
	all := map[string]any{}
	for _, doc := range []string{object, "{" + more + "}"} {
		if err := json.Unmarshal([]byte(doc), &all); err != nil {
			w.t.Fatalf("%v in %s", err, doc)
		}
	}
	out, err := json.Marshal(all)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(out)
}

// config is a configuration of webhooks.
func config(name string, hooks ...string) string {
	return `{"metadata":{"name":"` + name + `","labels":{"set":"` + name[:1] + `"}},"webhooks":[` + strings.Join(hooks, ",") + `]}`
}

// data are the entries of the config map in an answer.
func data(t *testing.T, object string) map[string]string {
	t.Helper()
	var m struct{ Data map[string]string }
	if err := json.Unmarshal([]byte(object), &m); err != nil {
		t.Fatal(err)
	}
	return m.Data
}

// allow lets everything pass.
func allow(*admissionv1.AdmissionReview) any { return &admissionv1.AdmissionResponse{Allowed: true} }

// patching applies a JSON patch.
func patching(operations string) func(*admissionv1.AdmissionReview) any {
	return func(*admissionv1.AdmissionReview) any {
		kind := admissionv1.PatchTypeJSONPatch
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: &kind}
	}
}
