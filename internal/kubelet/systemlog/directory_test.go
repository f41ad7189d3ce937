package systemlog

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDirectoryServesWhatIsInItAlone(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "log")
	for name, text := range map[string]string{"log/syslog": "all is well", "log/sub/old": "all was well", "secret": "do not tell"} {
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"within": "sub/old", "out": "../secret", "far": filepath.Join(top, "secret"), "up": ".."} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	h := Directory(dir)
	for _, tc := range []struct {
		path, ranged string
		code         int
		want         string
	}{
		{"/", "", 200, `<a href="syslog">syslog</a>`},
		{"/sub/", "", 200, `<a href="old">old</a>`},
		{"/syslog", "", 200, "all is well"},
		{"/syslog", "bytes=-4", 206, "well"},
		{"/within", "", 200, "all was well"},
		{"/none", "", 404, ""},
		{"/../secret", "", 404, ""},
		{"/out", "", 500, ""},
		{"/far", "", 500, ""},
		{"/up/secret", "", 500, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if r.URL.Path = tc.path; tc.ranged != "" {
			r.Header.Set("Range", tc.ranged)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) || strings.Contains(w.Body.String(), "do not tell") {
			t.Errorf("%s %s: got %d %q, want %d %q", tc.path, tc.ranged, w.Code, w.Body, tc.code, tc.want)
		}
	}
}
