package hook_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/hook"
)

// users are a kubeconfig with a user of each name, whose token is the name.
func users(t *testing.T, current string, names ...string) *hook.Identities {
	t.Helper()
	text := "apiVersion: v1\nkind: Config\nusers:\n"
	for _, name := range names {
		text += "- {name: '" + name + "', user: {token: '" + name + "'}}\n"
	}
	if current != "" {
		text += "contexts: [{name: x, context: {cluster: c, user: '" + current + "'}}]\ncurrent-context: x\n"
	}
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	i, err := hook.ReadIdentities(file)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestWebhooksAreShownTheUserThatIsCalledAsTheyAre(t *testing.T) {
	var shown string
	p := newPlace(t, "checks.shop.svc", func(w http.ResponseWriter, r *http.Request) {
		shown = r.Header.Get("Authorization")
		_, _ = w.Write([]byte("{}"))
	})
	for _, c := range []struct {
		port    int32
		current string
		names   string
		want    string
	}{
		{0, "", "checks.shop.svc:443 checks.shop.svc *.shop.svc *", "checks.shop.svc:443"},
		{0, "", "checks.shop.svc *.shop.svc *", "checks.shop.svc"},
		{0, "", "*.svc *.shop.svc *", "*.shop.svc"},
		{8443, "", "checks.shop.svc *", "*"},
		{8443, "", "*.svc:8443 *", "*.svc:8443"},
		{0, "other", "other", "other"},
		{0, "", "other", ""},
	} {
		i := users(t, c.current, strings.Fields(c.names)...)
		cfg := hook.Config{Service: &hook.Service{Namespace: "shop", Name: "checks", Port: c.port}, CABundle: p.ca}
		var err error
		if cfg.As, err = i.Of(cfg); err != nil {
			t.Fatal(err)
		}
		if err := caller(t, p).Post(t.Context(), cfg, struct{}{}, &struct{}{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimPrefix(shown, "Bearer "); got != c.want {
			t.Errorf("port %d, users %s: got %q, want %q", c.port, c.names, got, c.want)
		}
	}
}
