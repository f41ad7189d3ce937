package webhook_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/auth/webhook"
	"github.com/kemudi/kemudi/internal/hook"
)

// bed is a webhook that answers as its test says, to who shows the certificate of a kubeconfig.
type bed struct {
	*webhook.Authorizer
	registry *prometheus.Registry
	asked    atomic.Int32
	last     atomic.Value // the last question
}

// newBed has the webhook asked in a version.
func newBed(t *testing.T, o webhook.Options, patience time.Duration, answer http.HandlerFunc) *bed {
	t.Helper()
	b := &bed{registry: prometheus.NewRegistry()}
	authority, err := pki.NewAuthority("authorization")
	if err != nil {
		t.Fatal(err)
	}
	issue := func(s pki.Subject) pki.Pair {
		pair, err := authority.Issue(s)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	serving, client := issue(pki.Subject{Name: "webhook", Hosts: []string{"127.0.0.1"}, Server: true}), issue(pki.Subject{Name: "apiserver", Client: true})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.asked.Add(1)
		body, _ := io.ReadAll(r.Body)
		if len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != "apiserver" || r.URL.Path != "/authorize" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		b.last.Store(string(body))
		answer(w, r)
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{serving.TLS()}, ClientAuth: tls.RequestClientCert}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	key, err := client.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("ca.crt", authority.CertPEM())
	file("client.crt", client.CertPEM())
	file("client.key", key)
	o.Remote, err = hook.OpenRemote(hook.RemoteOptions{Timeout: patience, Backoff: time.Millisecond, Kubeconfig: file("kubeconfig", []byte(`
apiVersion: v1
kind: Config
clusters: [{name: there, cluster: {server: "`+srv.URL+`/authorize", certificate-authority: ca.crt}}]
users: [{name: us, user: {client-certificate: client.crt, client-key: client.key}}]
contexts: [{name: it, context: {cluster: there, user: us}}]
current-context: it
`))})
	if err != nil {
		t.Fatal(err)
	}
	o.Name, o.Metrics, o.Logger = "bed", webhook.NewMetrics(b.registry), slog.New(slog.DiscardHandler)
	b.Authorizer = webhook.New(o)
	t.Cleanup(b.Close)
	return b
}

// says is a webhook that always answers the same.
func says(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func review(version, status string) string {
	return `{"apiVersion":"authorization.k8s.io/` + version + `","kind":"SubjectAccessReview","status":` + status + `}`
}

// pods is the question who may list pods.
func pods(name string) *authorizer.AttributesRecord {
	return &authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name, UID: "7", Groups: []string{"team"}, Extra: map[string][]string{"scopes": {"a"}}},
		Verb: "list", Namespace: "default", APIVersion: "v1", Resource: "pods", ResourceRequest: true,
	}
}

const (
	yes  = authorizer.DecisionAllow
	no   = authorizer.DecisionDeny
	none = authorizer.DecisionNoOpinion
)

func TestWebhookIsBelievedAndWhatItCannotSayIsAFailure(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   authorizer.Decision // where failures deny
		open   authorizer.Decision // where failures are no opinion
		reason string
		err    string
		result string
		asked  int32 // of both
	}{
		"allows":                     {says(200, review("v1", `{"allowed":true,"reason":"friend"}`)), yes, yes, "friend", "", "success", 2},
		"denies":                     {says(200, review("v1", `{"allowed":false,"denied":true,"reason":"foe"}`)), no, no, "foe", "", "success", 2},
		"does not know":              {says(201, review("v1", `{"allowed":false,"reason":"who?"}`)), none, none, "who?", "", "success", 2},
		"says both":                  {says(200, review("v1", `{"allowed":true,"denied":true}`)), no, no, "", "webhook subject access review returned both allow and deny response", "success", 2},
		"answers in another version": {says(200, review("v1beta1", `{"allowed":true}`)), no, none, "", `the webhook answered with "authorization.k8s.io/v1beta1" "SubjectAccessReview"`, "error", 2},
		"answers with a pod":         {says(200, `{"apiVersion":"v1","kind":"Pod","status":{"allowed":true}}`), no, none, "", `the webhook answered with "v1" "Pod"`, "error", 2},
		"does not say what it is":    {says(200, `{"status":{"allowed":true}}`), yes, yes, "", "", "success", 2},
		"says nothing":               {says(200, `{}`), none, none, "", "", "success", 2},
		"is a page for people":       {says(200, `<html>`), no, none, "", "read the answer", "error", 2},
		"answers nothing":            {says(200, ``), no, none, "", "read the answer", "error", 2},
		"fails":                      {says(500, `out of order`), no, none, "", "has prevented the request from succeeding", "error", 10}, // five times each
		"is not for us":              {says(403, `no`), no, none, "", "unknown", "error", 2},
		"sends elsewhere":            {http.RedirectHandler("https://127.0.0.1:1/", http.StatusTemporaryRedirect).ServeHTTP, no, none, "", "307", "error", 2},
		"hangs":                      {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, no, none, "", "/authorize?timeout=1s", "timeout", 2},
		"answers without end": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 64<<10))
			}
		}, no, none, "", "longer than", "error", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := int32(0)
			patience := time.Minute
			if name == "hangs" {
				patience = time.Second
			}
			for onError, want := range map[authorizer.Decision]authorizer.Decision{no: tc.want, none: tc.open} {
				b := newBed(t, webhook.Options{Version: "v1", OnError: onError}, patience, tc.answer)
				decision, reason, err := b.Authorize(t.Context(), pods("jane"))
				if decision != want || reason != tc.reason || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
					t.Errorf("failures are %v: got %v, %q, %v; want %v, %q, %q", onError, decision, reason, err, want, tc.reason, tc.err)
				}
				asked += b.asked.Load()
				if n := counted(t, b.registry, "apiserver_authorization_webhook_evaluations_total", tc.result); n < 1 {
					t.Errorf("got %v calls with the result %s, want some", n, tc.result)
				}
				open := counted(t, b.registry, "apiserver_authorization_webhook_evaluations_fail_open_total", tc.result)
				if failed := tc.result != "success"; (open == 1) != (failed && onError == none) {
					t.Errorf("failures are %v: questions passed on are counted: %v", onError, open)
				}
			}
			if asked != tc.asked {
				t.Errorf("asked %d times, want %d", asked, tc.asked)
			}
		})
	}
}

// counted is a counter of a result; -1: there is none.
func counted(t *testing.T, reg *prometheus.Registry, name, result string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == "result" && l.GetValue() == result {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return -1
}

func TestQuestionsAreSubjectAccessReviewsOfEitherVersion(t *testing.T) {
	t.Parallel()
	a := pods("jane")
	selector, err := fields.ParseSelector("spec.nodeName=one,status.phase!=Failed")
	if err != nil {
		t.Fatal(err)
	}
	a.FieldSelectorRequirements = selector.Requirements()
	if a.LabelSelectorRequirements, err = labels.ParseToRequirements("app in (a,b),!old"); err != nil {
		t.Fatal(err)
	}
	path := &authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "jane"}, Verb: "get", Path: "/metrics"}
	const resource = `"spec":{"resourceAttributes":{"namespace":"default","verb":"list","version":"v1","resource":"pods",` +
		`"fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["one"]},{"key":"status.phase","operator":"NotIn","values":["Failed"]}]},` +
		`"labelSelector":{"requirements":[{"key":"app","operator":"In","values":["a","b"]},{"key":"old","operator":"DoesNotExist"}]}},` +
		`"user":"jane",%q:["team"],"extra":{"scopes":["a"]},"uid":"7"},"status":{"allowed":false}}`
	for version, groups := range map[string]string{"v1": "groups", "v1beta1": "group"} {
		b := newBed(t, webhook.Options{Version: version}, time.Minute, says(200, review(version, `{"allowed":true}`)))
		for _, q := range []struct {
			a    authorizer.Attributes
			want string
		}{
			{a, fmt.Sprintf(resource, groups)},
			{path, `"spec":{"nonResourceAttributes":{"path":"/metrics","verb":"get"},"user":"jane"},"status":{"allowed":false}}`},
		} {
			if decision, _, err := b.Authorize(t.Context(), q.a); decision != yes || err != nil {
				t.Fatalf("%s: got %v, %v", version, decision, err)
			}
			got := strings.Replace(b.last.Load().(string), `"metadata":{},`, "", 1)
			want := `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/` + version + `",` + q.want
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
	}
}

func TestAnswersAreRememberedForAWhileAndLongQuestionsNever(t *testing.T) {
	t.Parallel()
	b := newBed(t, webhook.Options{Version: "v1", Allowed: time.Hour, Refused: 20 * time.Millisecond}, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": map[string]any{"allowed": r.Header.Get("User-Agent") != ""},
		})
	})
	refusing := newBed(t, webhook.Options{Version: "v1", Allowed: time.Hour, Refused: 20 * time.Millisecond}, time.Minute, says(200, review("v1", `{"allowed":false}`)))
	long := pods("jane")
	long.Name = strings.Repeat("x", 10000)
	for name, tc := range map[string]struct {
		b    *bed
		a    *authorizer.AttributesRecord
		want int32
	}{
		"what is allowed":   {b, pods("jane"), 1},
		"somebody else":     {b, pods("joe"), 1},
		"what is very long": {b, long, 3},
	} {
		before := tc.b.asked.Load()
		for range 3 {
			if _, _, err := tc.b.Authorize(t.Context(), tc.a); err != nil {
				t.Fatal(err)
			}
		}
		if got := tc.b.asked.Load() - before; got != tc.want {
			t.Errorf("%s: asked %d times, want %d", name, got, tc.want)
		}
	}
	// What is refused holds for less time.
	for deadline := time.Now().Add(10 * time.Second); refusing.asked.Load() < 2; {
		if _, _, err := refusing.Authorize(t.Context(), pods("jane")); err != nil || time.Now().After(deadline) {
			t.Fatalf("asked %d times, want again after a while: %v", refusing.asked.Load(), err)
		}
	}
}
