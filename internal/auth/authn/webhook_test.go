package authn

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// hookOptions is a webhook that runs until the test ends, and the flags that lead to it.
func hookOptions(t *testing.T, answer http.HandlerFunc) WebhookOptions {
	t.Helper()
	srv := httptest.NewTLSServer(answer)
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "hook.kubeconfig")
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {
			Server: srv.URL + "/ask", CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: "server"}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}
	if err := clientcmd.WriteToFile(config, file); err != nil {
		t.Fatal(err)
	}
	return WebhookOptions{ConfigFile: file, Version: "v1", CacheTTL: time.Minute}
}

// liar is a webhook that does by each token what that is called.
type liar struct {
	asked, failures atomic.Int32
	release         chan struct{} // who shows "twice" waits for it
}

func (l *liar) answer(w http.ResponseWriter, r *http.Request) {
	l.asked.Add(1)
	var q authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.URL.Path != "/ask" || r.Header.Get("Authorization") != "Bearer server" || q.Kind != "TokenReview" {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	a := q.DeepCopy()
	a.Spec = authenticationv1.TokenReviewSpec{}
	who := authenticationv1.UserInfo{Username: "jane", UID: "u1", Groups: []string{"dev"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
	switch q.Spec.Token {
	case "good", "twice", "once more":
		if q.Spec.Token == "once more" && l.failures.Add(1) == 1 {
			http.Error(w, "later", http.StatusInternalServerError)
			return
		}
		if q.Spec.Token == "twice" {
			<-l.release
		}
		a.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: who}
	case "for others":
		a.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: who, Audiences: []string{"shop"}}
	case "bad":
		a.Status.Error = "it has ended"
	case "hang":
		<-r.Context().Done()
		return
	case "huge":
		_, _ = w.Write([]byte(strings.Repeat("x", maxAnswer+1)))
		return
	case "other kind":
		a.Kind = "Pod"
	case "no kind":
		a.TypeMeta = metav1.TypeMeta{}
		a.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: who}
	case "no name":
		a.Status.Authenticated = true
	case "elsewhere":
		http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		return
	case "refused":
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a)
}

func TestWebhookSaysWhoseTokensAre(t *testing.T) {
	t.Parallel()
	liar := &liar{release: make(chan struct{})}
	o := hookOptions(t, liar.answer)
	for _, version := range []string{"v1", "v1beta1"} {
		o.Version = version
		w, err := NewWebhook(o, []string{"api"}, WebhookWith{Metrics: NewCacheMetrics(nil)})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(ctx context.Context, token string) string {
			res, ok, err := w.AuthenticateToken(authenticator.WithAudiences(ctx, []string{"api"}), token)
			switch {
			case err != nil:
				return err.Error()
			case !ok:
				return "nobody"
			}
			return fmt.Sprint(res.User.GetName(), res.User.GetUID(), res.User.GetGroups(), res.User.GetExtra(), res.Audiences)
		}
		liar.asked.Store(0)
		liar.failures.Store(0)
		for range 3 {
			if got := ask(t.Context(), "good"); got != "janeu1[dev] map[k:[v]] [api]" {
				t.Errorf("%s: a good token: got %s", version, got)
			}
			if got := ask(t.Context(), "strange"); got != "nobody" {
				t.Errorf("%s: a strange token: got %s", version, got)
			}
		}
		if got := liar.asked.Load(); got != 2 {
			t.Errorf("%s: two tokens shown three times: asked %d times, want 2", version, got)
		}
		for token, want := range map[string]string{
			"for others": "nobody", "bad": "it has ended", "huge": "larger than", "other kind": `the webhook answered with "authentication.k8s.io/` + version + `" "Pod"`,
			"no kind": "janeu1[dev]",
			"no name": "names no user", "elsewhere": "it answers 307", "refused": "it answers 403", "once more": "janeu1[dev]",
		} {
			if got := ask(t.Context(), token); !strings.Contains(got, want) {
				t.Errorf("%s: token %q: got %s, want %s", version, token, got, want)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if got := ask(short, "hang"); !strings.Contains(got, "deadline exceeded") {
			t.Errorf("%s: a webhook that hangs: got %s", version, got)
		}
		cancel()
		if version == "v1beta1" {
			continue
		}
		liar.asked.Store(0)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if got := ask(t.Context(), "twice"); !strings.HasPrefix(got, "jane") {
					t.Errorf("a token that many show at once: got %s", got)
				}
			})
		}
		close(liar.release)
		all.Wait()
		if got := liar.asked.Load(); got != 1 {
			t.Errorf("a token that many show at once: asked %d times, want once", got)
		}
	}
	for _, bad := range []WebhookOptions{{ConfigFile: o.ConfigFile, Version: "v2"}, {ConfigFile: o.ConfigFile + "x", Version: "v1"}, {CacheTTL: -1}} {
		if _, err := NewWebhook(bad, nil, WebhookWith{Metrics: NewCacheMetrics(nil)}); err == nil || !strings.HasPrefix(err.Error(), "--authentication-token-webhook-") {
			t.Errorf("%+v: got %v, want an error that names the flag", bad, err)
		}
	}
}

func TestWhoWaitedForOneThatGaveUpAsksHimself(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	var asked atomic.Int32
	c := NewCached(tokenFunc(func(ctx context.Context, _ string) (*authenticator.Response, bool, error) {
		if asked.Add(1) == 1 {
			close(begun)
			<-ctx.Done()
			return nil, false, ctx.Err()
		}
		return &authenticator.Response{}, true, nil
	}), CacheOptions{Good: time.Minute, Metrics: NewCacheMetrics(nil)})
	first, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if _, ok, err := c.AuthenticateToken(first, "t"); ok || err == nil {
			t.Errorf("who gave up: got %t, %v", ok, err)
		}
	})
	<-begun
	all.Go(func() {
		if _, ok, err := c.AuthenticateToken(t.Context(), "t"); !ok || err != nil {
			t.Errorf("who has waited: got %t, %v", ok, err)
		}
	})
	cancel()
	all.Wait()
}

type tokenFunc func(ctx context.Context, token string) (*authenticator.Response, bool, error)

func (f tokenFunc) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return f(ctx, token)
}

func TestTokensOfAFileAreThoseOfItsUsers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.csv")
	read := func(text string) (*TokenFile, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadTokenFile(file, slog.New(slog.DiscardHandler))
	}
	users, err := read("t1,jane,u1,\"dev,ops\"\n,nobody,u2\nt2,joe,u3\n")
	if err != nil {
		t.Fatal(err)
	}
	known := ForAudiences([]string{"api"}, users)
	for token, want := range map[string]string{"t1": "jane u1 [dev ops] [api]", "t2": "joe u3 [] [api]", "t3": "nobody", "": "nobody"} {
		got := "nobody"
		if res, ok, err := known.AuthenticateToken(authenticator.WithAudiences(t.Context(), []string{"api", "x"}), token); err != nil {
			t.Error(err)
		} else if ok {
			got = fmt.Sprint(res.User.GetName(), " ", res.User.GetUID(), " ", res.User.GetGroups(), " ", res.Audiences)
		}
		if got != want {
			t.Errorf("token %q: got %s, want %s", token, got, want)
		}
	}
	if _, ok, _ := known.AuthenticateToken(authenticator.WithAudiences(t.Context(), []string{"x"}), "t1"); ok {
		t.Error("a token of the file is good for somebody else's audience")
	}
	for text, want := range map[string]string{"t1,jane\n": "must have at least 3 columns (token, user name, user uid), found 2", "\"t1,jane,u1\n": "token file"} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func FuzzTokenFile(f *testing.F) {
	f.Add("t1,jane,u1,\"dev,ops\"\n")
	log := slog.New(slog.DiscardHandler)
	f.Fuzz(func(t *testing.T, text string) {
		users, err := readTokens(strings.NewReader(text), "f", log)
		if err != nil {
			return
		}
		if _, ok, _ := users.AuthenticateToken(t.Context(), ""); ok {
			t.Errorf("%q: the empty token is somebody's", text)
		}
	})
}
