package up

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestWaitsUntilAServiceAnswers with what it should.
func TestWaitsUntilAServiceAnswers(t *testing.T) {
	served := 0
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if served++; served < 3 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		}
	}))
	defer service.Close()
	if err := answers(t.Context(), service.URL); err != nil || served != 3 {
		t.Errorf("got %v after %d requests", err, served)
	}
}

// TestErrorOfAServerIsThatOfItsLastStart and not of one long ago.
func TestErrorOfAServerIsThatOfItsLastStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for _, tc := range []struct {
		old, now, want string
	}{
		{"level=INFO old\nkemudi: old\n", "level=INFO new\nkemudi: new\nand more\n", "kemudi: new\nand more"},
		{"kemudi: old\n", "level=INFO one\nlevel=ERROR two\n", "level=INFO one\nlevel=ERROR two"},
		{"kemudi: old\n", "", ""},
		{"", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n", "2\n3\n4\n5\n6\n7\n8\n9\n10\n11"},
	} {
		if err := os.WriteFile(file, []byte(tc.old+tc.now), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := tail(file, int64(len(tc.old))); got != tc.want {
			t.Errorf("%+v: got %q", tc, got)
		}
	}
}
