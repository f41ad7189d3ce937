package obs

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestFlagsAreToldButForSecrets(t *testing.T) {
	t.Parallel()
	f := pflag.NewFlagSet("program", pflag.ContinueOnError)
	f.Bool("help", false, "")
	f.Int("size", 3, "")
	f.StringSlice("names", nil, "")
	f.String("token", "", "")
	Classify(f, "token")
	if err := f.Parse([]string{"--names=a,b", "--token=abcdef.0123456789abcdef"}); err != nil {
		t.Fatal(err)
	}
	got, want := Told(f), map[string]string{"size": "3", "names": "[a,b]", "token": "CLASSIFIED"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPagesAnswerInTheFormThatIsAskedFor(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	p := &Pages{Component: "part", Began: time.Now().Add(-3661 * time.Second), Paths: func() []string { return []string{"/statusz", "/metrics/slis", "/metrics", "/apis/apps"} }}
	p.Install(mux)
	ctx := WithFlags(t.Context(), map[string]string{"b": "2", "a": "1"})
	for _, tc := range []struct {
		method, path, accept string
		code                 int
		want                 string
	}{
		{"GET", "/statusz", "", 200, "\npart statusz\nWarning: "},
		{"GET", "/statusz", "*/*", 200, "\nUp: 1 hr 01 min 01 sec\n"},
		{"GET", "/statusz", "application/json, */*", 200, "\nPaths: /metrics /statusz\n"},
		{"GET", "/statusz", "application/json;g=config.k8s.io;v=v1beta1;as=Statusz", 200, `{"kind":"Statusz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"part"},"startTime":`},
		{"GET", "/statusz", "application/json;g=config.k8s.io;v=v9;as=Statusz,application/yaml;g=config.k8s.io;v=v1beta1;as=Statusz", 200, "apiVersion: config.k8s.io/v1beta1\n"},
		{"GET", "/flagz", "text/plain", 200, "debugging purposes only.\n"},
		{"GET", "/flagz", "text/*", 200, "purposes only.\na=1\nb=2\n"},
		{"GET", "/flagz", "application/json;as=Flagz;v=v1beta1;g=config.k8s.io", 200, `"flags":{"a":"1","b":"2"}}`},
		{"GET", "/flagz", "application/json;as=Flagz;v=v1beta1;g=other", 406, `"reason":"NotAcceptable"`},
		{"GET", "/flagz", "application/vnd.kubernetes.protobuf", 406, "application/json, application/yaml, text/plain"},
		{"POST", "/flagz", "", 405, "Method Not Allowed"},
	} {
		r, w := httptest.NewRequestWithContext(ctx, tc.method, tc.path, nil), httptest.NewRecorder()
		r.Header.Set("Accept", tc.accept)
		if mux.ServeHTTP(w, r); w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s %s as %q: got %d %q, want %d %q", tc.method, tc.path, tc.accept, w.Code, w.Body, tc.code, tc.want)
		}
	}
	w := httptest.NewRecorder()
	if mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/flagz", nil)); w.Code != 404 {
		t.Errorf("of a process that was told nothing: got %d, want 404", w.Code)
	}
}

func TestHowMuchIsLoggedCanBeSaidMeanwhile(t *testing.T) { // klog's level is the process's
	var out bytes.Buffer
	log, err := NewLogger(&out, LogOptions{Level: "warn"})
	if err != nil {
		t.Fatal(err)
	}
	v := Verbosity{Log: log.With("part", "some")}
	put := func(method, body string) (int, string) {
		w := httptest.NewRecorder()
		v.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, VerbosityPath, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	for _, tc := range []struct {
		method, body string
		code         int
		want         string
		lowest       slog.Level
	}{
		{"PUT", "5\n", 200, "successfully set klog.logging.verbosity to 5\n", slog.LevelDebug},
		{"PUT", "much", 400, `failed set klog.logging.verbosity much: strconv.ParseInt: parsing "much": invalid syntax`, slog.LevelDebug},
		{"PUT", strings.Repeat("9", 1000), 400, "value out of range", slog.LevelDebug},
		{"GET", "", 406, "unsupported http method\n", slog.LevelDebug},
		{"PUT", "0", 200, "successfully set klog.logging.verbosity to 0\n", slog.LevelWarn},
	} {
		code, got := put(tc.method, tc.body)
		if code != tc.code || !strings.Contains(got, tc.want) {
			t.Errorf("%s %.20q: got %d %q, want %d %q", tc.method, tc.body, code, got, tc.code, tc.want)
		}
		if !log.Enabled(t.Context(), tc.lowest) || log.Enabled(t.Context(), tc.lowest-1) {
			t.Errorf("after %s %.20q the lowest level is not %s", tc.method, tc.body, tc.lowest)
		}
	}
}
