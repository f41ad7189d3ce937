package cluster

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/wholefile"
	"github.com/kemudi/kemudi/test/openid"
	"github.com/kemudi/kemudi/test/wait"
)

// write writes a file of the test, whole.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := wholefile.Private(path, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return path
}

// tokenHook is a webhook that knows one token, and hangs for another; its kubeconfig.
func tokenHook(t *testing.T) string {
	t.Helper()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		switch q.Spec.Token {
		case "hooked":
			q.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "hook:jane", Groups: []string{"hooked"}}}
		case "hang":
			<-r.Context().Done()
			return
		}
		_ = json.NewEncoder(w).Encode(q)
	}))
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "hook.kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: srv.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// who says who one is that shows a token, or why nobody.
func (b *joinBed) who(token string) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
	defer cancel()
	review, err := b.client(rest.Config{BearerToken: token}).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err.Error()
	}
	return review.Status.UserInfo.Username + " " + strings.Join(review.Status.UserInfo.Groups, ",")
}

// believed waits until a token is believed to be somebody's.
func (b *joinBed) believed(token, want string) {
	b.Helper()
	wait.Until(b, func() error {
		if got := b.who(token); got != want {
			return fmt.Errorf("got %s, want %s", got, want)
		}
		return nil
	})
}

// root is a client that may do everything.
func (b *joinBed) root() kubernetes.Interface {
	b.Helper()
	root, err := b.s.pki.Admin()
	b.must(err)
	key, err := root.KeyPEM()
	b.must(err)
	return b.client(rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: root.CertPEM(), KeyData: key}})
}

// reviewed holds that a review tells the same of all kinds of tokens, and why one is nobody's.
func (b *joinBed) reviewed(k kubernetes.Interface, p *openid.Provider, jane string) {
	b.Helper()
	review := func(token string, audiences ...string) authenticationv1.TokenReviewStatus {
		r, err := k.AuthenticationV1().TokenReviews().Create(b.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}, metav1.CreateOptions{})
		b.must(err)
		return r.Status
	}
	for token, want := range map[string]string{jane: "p:jane", "fixed": "filed", "hooked": "hook:jane"} {
		if got := review(token); !got.Authenticated || got.User.Username != want || strings.Join(got.Audiences, " ") != "https://new.example.com https://old.example.com" {
			b.Errorf("review of %.20s: got %+v", token, got)
		}
		if got := review(token, "shop"); got.Authenticated {
			b.Errorf("review of %.20s for another audience: got %+v", token, got)
		}
	}
	if got := review(p.Token(map[string]any{"aud": "shop", "sub": "x"})); got.Authenticated || !strings.Contains(got.Error, `expected audience in ["kemudi"] got ["shop"]`) {
		b.Errorf("review of a token for others: got %+v", got)
	}
}

// issued holds that both names of the issuer are believed, and that the first is the one that is told.
func (b *joinBed) issued(k kubernetes.Interface) {
	b.Helper()
	issued, err := k.CoreV1().ServiceAccounts("kube-system").CreateToken(b.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	for err != nil && b.Context().Err() == nil { // the account may need a moment
		issued, err = k.CoreV1().ServiceAccounts("kube-system").CreateToken(b.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	}
	b.must(err)
	if got := b.who(issued.Status.Token); !strings.HasPrefix(got, "system:serviceaccount:kube-system:default ") {
		b.Errorf("a token of an account: got %s", got)
	}
	told, err := k.Discovery().RESTClient().Get().AbsPath("/.well-known/openid-configuration").DoRaw(b.Context())
	b.must(err)
	if !strings.Contains(string(told), `"issuer":"https://new.example.com"`) || !strings.Contains(string(told), `"jwks_uri":"https://keys.example.com/jwks"`) {
		b.Errorf("what the issuer tells of itself: got %s", told)
	}
}

// measured holds that metrics tell what has become of tokens.
func (b *joinBed) measured(k kubernetes.Interface) {
	b.Helper()
	text, err := k.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	b.must(err)
	for _, want := range []string{`authentication_attempts{result="success"}`, `authentication_attempts{result="error"}`, `authenticated_user_requests{username="other"}`} {
		if !strings.Contains(string(text), want) {
			b.Errorf("metrics: want %s", want)
		}
	}
	own, err := b.s.registry.Gather() // of the server's parts, which the bed does not serve
	b.must(err)
	var names []string
	for _, family := range own {
		names = append(names, family.GetName())
	}
	for _, want := range []string{
		"authentication_token_cache_request_total", "apiserver_authentication_config_controller_automatic_reloads_total", "apiserver_authentication_jwt_authenticator_latency_seconds",
	} {
		if !slices.Contains(names, want) {
			b.Errorf("metrics: want %s", want)
		}
	}
}

func TestPeopleAreKnownByWhatTheOperatorSays(t *testing.T) {
	t.Parallel()
	p := openid.New(t)
	p.Rotate(jose.ES256)
	dir := t.TempDir()
	configure := func(rest string) string {
		ca, err := json.Marshal(string(p.CA))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration", %s
 "jwt": [{"issuer": {"url": %q, "audiences": ["kemudi"], "certificateAuthority": %s},
  "claimMappings": {"username": {"claim": "sub", "prefix": "p:"}, "groups": {"expression": "claims.groups"}}}]}`, rest, p.URL, ca)
	}
	config := write(t, filepath.Join(dir, "authentication.yaml"), configure(`"anonymous": {"enabled": true, "conditions": [{"path": "/livez"}, {"path": "/version"}]},`))
	b := newJoinBed(t, func(o *Options) {
		o.Identity.Issuers = []string{"https://new.example.com", "https://old.example.com"}
		o.Identity.KeySetURL = "https://keys.example.com/jwks"
		o.Identity.ConfigFile = config
		o.Identity.TokenFile = write(t, filepath.Join(dir, "tokens.csv"), "fixed,filed,u1,\"a,b\"\n")
		o.Identity.Webhook.ConfigFile, o.Identity.Webhook.Version = tokenHook(t), "v1"
	})
	b.g.Go("whose tokens are believed", b.s.known.Run())
	jane := p.Token(map[string]any{"aud": "kemudi", "sub": "jane", "groups": []string{"dev"}})
	b.believed(jane, "p:jane dev,system:authenticated")
	for token, want := range map[string]string{
		"fixed": "filed a,b,system:authenticated", "hooked": "hook:jane hooked,system:authenticated", "strange": "Unauthorized",
		p.Token(map[string]any{"aud": "shop", "sub": "jane", "groups": []string{}}): "Unauthorized",
	} {
		if got := b.who(token); got != want {
			t.Errorf("who shows %.20s: got %s, want %s", token, got, want)
		}
	}

	// A webhook that hangs holds up who shows it what it hangs for, and nobody else.
	hung := make(chan string, 1)
	b.g.Go("hang", func(ctx context.Context) error {
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := b.client(rest.Config{BearerToken: "hang"}).AuthenticationV1().SelfSubjectReviews().Create(within, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		hung <- fmt.Sprint(err)
		return nil
	})
	if got := b.who(jane); got != "p:jane dev,system:authenticated" {
		t.Errorf("while the webhook hangs: got %s", got)
	}
	if got := <-hung; !strings.Contains(got, "deadline exceeded") {
		t.Errorf("who waits for the webhook: got %s", got)
	}

	// Who shows nothing gets the paths that are named, and no others.
	paths := func() string {
		var codes []string
		for _, path := range []string{"/livez", "/version", "/livez/ping", "/api"} {
			code := 0
			b.client(rest.Config{}).Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).StatusCode(&code)
			codes = append(codes, fmt.Sprint(code))
		}
		return strings.Join(codes, " ")
	}
	if got := paths(); got != "200 200 401 401" {
		t.Errorf("who shows nothing, of /livez /version /livez/ping /api: got %s", got)
	}

	k := b.root()
	b.reviewed(k, p, jane)
	b.issued(k)

	// The file is exchanged: nobody has to be restarted.
	write(t, config, configure(`"anonymous": {"enabled": false},`))
	wait.Until(t, func() error {
		if got := paths(); got != "401 401 401 401" {
			return errors.New(got)
		}
		return nil
	})
	if got := b.who(jane); got != "p:jane dev,system:authenticated" {
		t.Errorf("after the file was exchanged: got %s", got)
	}
	b.measured(k)
}

func TestKeyOfTokensIsExchangedWhileTheServerRuns(t *testing.T) {
	t.Parallel()
	b := newJoinBed(t)
	k := b.root()
	token := func() string {
		var issued *authenticationv1.TokenRequest
		wait.Until(t, func() (err error) {
			issued, err = k.CoreV1().ServiceAccounts("kube-system").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		})
		return issued.Status.Token
	}
	keys := func() (ids []string) {
		text, err := k.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(t.Context())
		b.must(err)
		var set jose.JSONWebKeySet
		b.must(json.Unmarshal(text, &set))
		for _, key := range set.Keys {
			ids = append(ids, key.KeyID)
		}
		return ids
	}
	const account = "system:serviceaccount:kube-system:default system:serviceaccounts,system:serviceaccounts:kube-system,system:authenticated"
	before, first := token(), keys()
	b.believed(before, account)
	dir := filepath.Join(b.s.o.DataDir, "pki")
	_, other := writeKey(t)
	text, err := os.ReadFile(other)
	b.must(err)
	write(t, filepath.Join(dir, "sa.key"), string(text))
	wait.Until(t, func() error {
		if now := keys(); len(now) != 2 || now[0] == first[0] || now[1] != first[0] {
			return fmt.Errorf("keys: got %q, before %q", now, first)
		}
		return nil
	})
	after := token()
	b.believed(after, account)
	b.believed(before, account)

	// A key that is none changes nothing.
	write(t, filepath.Join(dir, "sa.key"), "none")
	b.believed(after, account)
	write(t, filepath.Join(dir, "sa.key"), string(text))

	// The old key is believed until its file is removed.
	old, err := filepath.Glob(filepath.Join(dir, "sa-*.pub"))
	b.must(err)
	if len(old) != 1 {
		t.Fatalf("files of old keys: got %q, want one", old)
	}
	again, err := pki.Ensure(pki.Options{Dir: b.s.o.DataDir})
	b.must(err)
	if shared, err := again.Shared(); err != nil || len(shared[filepath.Base(old[0])]) == 0 {
		t.Errorf("what other servers get: %d files, %v, want %s among them", len(shared), err, filepath.Base(old[0]))
	}
	b.must(os.Remove(old[0]))
	b.believed(before, "Unauthorized")
	b.believed(after, account)
}
