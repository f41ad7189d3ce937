package apiserver

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

func TestContinueTokensThatLeadElsewhereAreRefused(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", mapsPath, cm)
	token := func(key string) string {
		return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":1,"start":%q}`, key))
	}
	for _, key := range []string{"../secrets/default/x", "default/../../x", "default//x", "./x", "default/."} {
		w := f.ask("GET", mapsPath+"?limit=1&continue="+token(key), "")
		if want := "invalid continue token: continue key is not valid: " + key; w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %s, want 400 with %s", key, w.Code, w.Body, want)
		}
	}
	for _, key := range []string{"default/a", "/default/a", "default/..a"} {
		f.must(200, "GET", mapsPath+"?limit=1&continue="+token(key), "")
	}
}
