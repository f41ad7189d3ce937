package apiserver

import (
	"strings"
	"testing"
	"time"
)

func TestServerTellsItsStatus(t *testing.T) {
	f := newFixture(t)
	w := f.ask("GET", "/statusz", "")
	for _, want := range []string{"\napiserver statusz\nWarning: ", "Up: 0 hr 00 min ", "\nBinary version: 1.", "\nPaths: /healthz /livez /metrics /readyz /statusz /version\n"} {
		if got := w.Body.String(); !strings.Contains(got, want) || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("got %q, %s; want %q", got, w.Header(), want)
		}
	}
	for accept, want := range map[string]string{
		"application/json;v=v1beta1;g=config.k8s.io;as=Statusz":  "config.k8s.io/v1beta1",
		"application/json;v=v1alpha1;g=config.k8s.io;as=Statusz": "config.k8s.io/v1alpha1",
	} {
		w := f.ask("GET", "/statusz", "", "Accept: "+accept)
		got := decoded[statusz](t, w.Body.String())
		if got.APIVersion != want || got.Kind != "Statusz" || got.Name != "apiserver" || time.Since(got.StartTime.Time) > time.Hour || got.GoVersion == "" {
			t.Errorf("%s: got %+v", accept, got)
		}
		if old := strings.Contains(w.Header().Get("Warning"), "deprecated"); old != (want == "config.k8s.io/v1alpha1") {
			t.Errorf("%s: got warning %q", accept, w.Header().Get("Warning"))
		}
	}
	if got := f.must(406, "GET", "/statusz", "", "Accept: application/json"); !strings.Contains(got, "only the following media types are accepted: application/json, text/plain") {
		t.Errorf("got %s", got)
	}
}
