package plane

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// silent is a store whose content nobody gets until it is opened.
type silent struct {
	store.Store
	open chan struct{}
}

func (s silent) List(ctx context.Context, prefix string, o store.ListOptions) (store.Page, error) {
	select {
	case <-s.open:
		return s.Store.List(ctx, prefix, o)
	case <-ctx.Done():
		return store.Page{}, context.Cause(ctx)
	}
}

// byNamespaces knows who comes once it knows the namespace that every cluster has.
type byNamespaces struct{ namespaces *cache.Cache }

func (b byNamespaces) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	if b.namespaces.Get(cache.Key("", metav1.NamespaceSystem)) == nil {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: "jane", Groups: []string{user.AllAuthenticated}}}, true, nil
}

// TestRequestsWaitForAServerThatHasJustBegun shows that who comes while the store has not been read is not
// told that nobody knows them, that they may not or that there is no such thing, but waits for the answer.
func TestRequestsWaitForAServerThatHasJustBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := silent{Store: mem.New(mem.Options{}), open: make(chan struct{})}
		p, g, _ := begin(t, Options{
			Store: st,
			Serving: func(o *apiserver.Options, caches *watchcache.Set) error {
				o.Authenticator = byNamespaces{caches.Cache(core.Namespaces.Def)}
				o.Early = []string{"/early"}
				return nil
			},
		})
		ask := func(path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			p.Server().Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			return w
		}
		// How it is, it says at once, to everybody; on a path that others need for its store, it answers as it can.
		began := time.Now()
		for path, want := range map[string]int{"/readyz": http.StatusInternalServerError, "/livez/ping": http.StatusOK, "/early": http.StatusUnauthorized} {
			if got := ask(path); got.Code != want {
				t.Errorf("%s: got %d %s, want %d", path, got.Code, got.Body, want)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("they took %s", took)
		}
		// Anything else waits for a while, and is told to come again.
		w := ask("/api/v1/namespaces/default/pods")
		if took := time.Since(began); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || took != 10*time.Second {
			t.Errorf("of a store that does not answer: got %d %v %s after %s", w.Code, w.Header(), w.Body, took)
		}
		answers := make(chan *httptest.ResponseRecorder, 1) // of the one request
		g.Go("early request", func(context.Context) error {
			answers <- ask("/apis")
			return nil
		})
		time.Sleep(5 * time.Second)
		close(st.open)
		if w := <-answers; w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "APIGroupList") {
			t.Errorf("a request that came before: got %d %s", w.Code, w.Body)
		}
		<-p.Ready()
		if got := ask("/readyz"); got.Code == http.StatusUnauthorized {
			t.Errorf("of health, who is known: got %d %s", got.Code, got.Body)
		}
	})
}
