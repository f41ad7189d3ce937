package secureport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/auth/trust"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// reviewer is an API server that answers reviews.
type reviewer struct {
	client.Transport
	asked    int
	followed int          // how often its ConfigMaps were
	said     *cache.Cache // of ConfigMaps
}

func (a *reviewer) Cache(*resource.Def, string) *cache.Cache {
	a.followed++
	return a.said
}

func (a *reviewer) Do(_ context.Context, r *client.Request) (runtime.Object, error) {
	a.asked++
	switch q := r.Object.(type) {
	case *authenticationv1.TokenReview:
		q.Status.Authenticated = q.Spec.Token != "bad"
		q.Status.User.Username = q.Spec.Token
	case *authorizationv1.SubjectAccessReview:
		at := q.Spec.NonResourceAttributes
		q.Status.Allowed = q.Spec.User == "scraper" && (at.Path == "/metrics" || at.Path == "/configz") && at.Verb == "get"
		if q.Spec.User == "nobody-knows" {
			return nil, errors.New("away")
		}
	}
	return r.Object, nil
}

// bed is a part that serves.
type bed struct {
	*testing.T
	url string
	api *reviewer
}

func newBed(t *testing.T, o Options) *bed {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t, "https://" + l.Addr().String(), &reviewer{said: cache.New(core.ConfigMaps.Def, &cache.Progress{})}}
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "told", Help: "h"}))
	g := task.NewGroup(t.Context())
	log := slog.New(slog.DiscardHandler)
	if err := o.serve(g, Part{Name: "part", Host: "machine", API: b.api, Health: &obs.Health{}, Registry: reg, Config: Configuration{"things", map[string]int{"size": 1}}, Logger: log}, l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bed) get(path, token string, cert *tls.Certificate) (code int, body string) {
	b.Helper()
	config := &tls.Config{InsecureSkipVerify: true} // nobody has signed it
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	tr := &http.Transport{TLSClientConfig: config}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequestWithContext(b.Context(), "GET", b.url+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := (&http.Client{Transport: tr}).Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		b.Fatal(err)
	}
	return res.StatusCode, string(data)
}

func TestPortTellsOfHealthToAllAndOfTheRestToWhoMay(t *testing.T) {
	b := newBed(t, Defaults(1))
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if code, body := b.get(path, "", nil); code != 200 || body != "ok" {
			t.Errorf("%s: got %d %s", path, code, body)
		}
	}
	if b.api.asked != 0 {
		t.Errorf("the API server was asked %d times about what all may have", b.api.asked)
	}
	for _, c := range []struct {
		path, token string
		code        int
		body        string
	}{
		{"/metrics", "", 403, `forbidden: User \"system:anonymous\" cannot get path \"/metrics\"`},
		{"/metrics", "bad", 401, `"message":"Unauthorized"`},
		{"/metrics", "scraper", 200, "told 0"},
		{"/configz", "scraper", 200, `{"things":{"size":1}}`},
		{"/configz", "", 403, `cannot get path \"/configz\"`},
		{"/debug/pprof/cmdline", "scraper", 403, `"reason":"Forbidden"`},
		{"/metrics", "other", 403, `forbidden: User \"other\" cannot get path \"/metrics\"`},
		{"/metrics", "nobody-knows", 500, "does not say who may do this"},
		{"/healthz/nothing", "scraper", 403, "cannot get path"},
	} {
		if code, body := b.get(c.path, c.token, nil); code != c.code || !strings.Contains(body, c.body) {
			t.Errorf("%s as %q: got %d %s, want %d %s", c.path, c.token, code, body, c.code, c.body)
		}
	}
	if b.api.followed != 0 {
		t.Errorf("the API server was asked %d times who signs certificates; nobody has shown one", b.api.followed)
	}
}

func TestAdministratorsAreKnownByTheirCertificate(t *testing.T) {
	ca, err := pki.NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Subject{Name: "admin", Organizations: []string{"system:masters"}, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	o := Defaults(1)
	o.ClientCA, o.Profiling = file, false
	b, cert := newBed(t, o), pair.TLS()
	b.api.said.Replace(nil, 1)
	if code, _ := b.get("/metrics", "", &cert); code != 200 || b.api.asked != 0 {
		t.Errorf("got %d after %d questions to the API server", code, b.api.asked)
	}
	if code, _ := b.get("/debug/pprof/", "", &cert); code != 404 {
		t.Errorf("profiles that are turned off: got %d", code)
	}
}

func TestPortBelievesWhomTheAPIServerSays(t *testing.T) {
	o := Defaults(1)
	b := newBed(t, o)
	show := func(rev int64, authority string) tls.Certificate {
		ca, err := pki.NewAuthority(authority)
		if err != nil {
			t.Fatal(err)
		}
		data, err := trust.Trust{Clients: ca.Certs(), Proxies: ca.Certs(), Names: []string{"gate"}, Headers: authn.FrontProxyHeaders{}.Canonical()}.Data()
		if err != nil {
			t.Fatal(err)
		}
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: trust.ConfigMap, ResourceVersion: strconv.FormatInt(rev, 10)}, Data: data}
		b.api.said.Replace([]*cache.Item{{Key: cache.Key(cm.Namespace, cm.Name), Object: cm, Rev: rev}}, rev)
		pair, err := ca.Issue(pki.Subject{Name: "gate", Organizations: []string{"system:masters"}, Client: true})
		if err != nil {
			t.Fatal(err)
		}
		return pair.TLS()
	}
	code := func(cert *tls.Certificate) func() error {
		return func() error {
			if code, body := b.get("/metrics", "", cert); code != 200 {
				return fmt.Errorf("got %d %s", code, body)
			}
			return nil
		}
	}
	first := show(1, "first")
	wait.Until(t, code(&first))
	second := show(2, "second")
	wait.Until(t, code(&second))
	if err := code(&first)(); err == nil {
		t.Error("an authority is believed that the API server names no more")
	}
	// Who is believed to be a proxy says for whom it asks.
	r, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Remote-User", "jane")
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{second}}}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusForbidden || !strings.Contains(string(body), `User \"jane\"`) {
		t.Errorf("got %d %s, %v, want jane refused", res.StatusCode, body, err)
	}
}

func TestPortsThatCannotBeAreRefused(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]Options{
		"--tls-cert-file: ": {Port: 1, CertFile: empty, KeyFile: empty},
		"--client-ca-file: read credentials from " + empty: {Port: 1, ClientCA: empty},
		"--requestheader-client-ca-file: ":                 {Port: 1, FrontProxyCA: filepath.Join(dir, "none")},
		"--authentication-kubeconfig: ":                    {Port: 1, Authentication: filepath.Join(dir, "none")},
		"--authorization-kubeconfig: ":                     {Port: 1, Authorization: filepath.Join(dir, "none")},
	} {
		o.SkipLookup = true
		g := task.NewGroup(t.Context())
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		err = o.serve(g, Part{Name: "part", Host: "machine", Health: &obs.Health{}, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)}, l)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		g.Cancel(context.Canceled)
		if err := errors.Join(g.Wait(), l.Close()); err != nil {
			t.Error(err)
		}
	}
	none := Options{}
	g := task.NewGroup(t.Context())
	if err := errors.Join(none.Serve(g, Part{}), g.Wait()); err != nil {
		t.Errorf("port 0: %v", err)
	}
}
