package apiserver

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/obs"
)

// page is what programs are told.
type page struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	StartTime metav1.Time       `json:"startTime"`
	GoVersion string            `json:"goVersion"`
	Flags     map[string]string `json:"flags"`
}

func TestServerTellsItsStatus(t *testing.T) {
	f := newFixture(t)
	w := f.ask("GET", "/statusz", "")
	for _, want := range []string{"\napiserver statusz\nWarning: ", "Up: 0 hr 00 min ", "\nBinary version: 1.", "\nPaths: /flagz /healthz /livez /metrics /readyz /statusz /version\n"} {
		if got := w.Body.String(); !strings.Contains(got, want) || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("got %q, %s; want %q", got, w.Header(), want)
		}
	}
	for accept, want := range map[string]string{
		"application/json;v=v1beta1;g=config.k8s.io;as=Statusz":  "config.k8s.io/v1beta1",
		"application/json;v=v1alpha1;g=config.k8s.io;as=Statusz": "config.k8s.io/v1alpha1",
	} {
		w := f.ask("GET", "/statusz", "", "Accept: "+accept)
		got := decoded[page](t, w.Body.String())
		if got.APIVersion != want || got.Kind != "Statusz" || got.Name != "apiserver" || time.Since(got.StartTime.Time) > time.Hour || got.GoVersion == "" {
			t.Errorf("%s: got %+v", accept, got)
		}
		if old := strings.Contains(w.Header().Get("Warning"), "deprecated"); old != (want == "config.k8s.io/v1alpha1") {
			t.Errorf("%s: got warning %q", accept, w.Header().Get("Warning"))
		}
	}
	if got := f.must(406, "GET", "/statusz", "", "Accept: application/json"); !strings.Contains(got, "only the following media types are accepted: application/json, application/yaml, text/plain") {
		t.Errorf("got %s", got)
	}
}

func TestServerTellsWhatItWasTold(t *testing.T) {
	f := newFixture(t)
	if got := f.must(404, "GET", "/flagz", ""); !strings.Contains(got, "not found") {
		t.Errorf("a server that was told nothing: got %s", got)
	}
	ctx := obs.WithFlags(t.Context(), map[string]string{"secure-port": "6443", "token": "CLASSIFIED"})
	ask := func(accept string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/flagz", nil)
		r.Header.Set("Accept", accept)
		f.Handler().ServeHTTP(w, r)
		return w
	}
	if got := ask("").Body.String(); !strings.HasPrefix(got, "\napiserver flagz\nWarning: ") || !strings.HasSuffix(got, "\nsecure-port=6443\ntoken=CLASSIFIED\n") {
		t.Errorf("in text: got %q", got)
	}
	got := decoded[page](t, ask("application/json;v=v1beta1;g=config.k8s.io;as=Flagz").Body.String())
	if got.APIVersion != "config.k8s.io/v1beta1" || got.Kind != "Flagz" || got.Name != "apiserver" || got.Flags["secure-port"] != "6443" {
		t.Errorf("in JSON: got %+v", got)
	}
	w := ask("application/yaml;v=v1alpha1;g=config.k8s.io;as=Flagz")
	if !strings.Contains(w.Body.String(), "\n  secure-port: \"6443\"\n") || w.Header().Get("Content-Type") != "application/yaml" || !strings.HasPrefix(w.Header().Get("Warning"), `299 - "This version of the flagz endpoint is deprecated.`) {
		t.Errorf("in YAML: got %q, %v", w.Body.String(), w.Header())
	}
	if got := ask("application/json;v=v1beta1;g=config.k8s.io;as=Statusz"); got.Code != 406 {
		t.Errorf("as another kind: got %d, want 406", got.Code)
	}
}
