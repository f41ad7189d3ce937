package clients

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
)

// heard is what a kubectl asked, documents included, in its order.
type heard struct {
	mu struct {
		sync.Mutex
		lines []string
		at    []time.Time // of patches
		body  []string    // of them
	}
}

// run runs kubectl in a namespace. refuse says with which code a request is answered in the server's place; 0: not.
func (h *heard) run(t *testing.T, namespace string, refuse func(*http.Request) int, args ...string) (output string, code int) {
	t.Helper()
	k := &kubectl{kubeconfig: theServer.kubeconfig, cacheDir: t.TempDir(), stdin: strings.NewReader("")}
	k.answer = func(r *http.Request) *http.Response {
		h.mu.Lock()
		defer h.mu.Unlock()
		path, _, _ := strings.Cut(r.URL.RequestURI(), "?")
		h.mu.lines = append(h.mu.lines, r.Method+" "+path+" "+r.Header.Get("Accept"))
		if r.Method == http.MethodPatch {
			h.mu.at = append(h.mu.at, time.Now())
			if body, err := r.GetBody(); err == nil {
				text, _ := io.ReadAll(body)
				h.mu.body = append(h.mu.body, string(text))
			}
		}
		refused := refuse(r)
		if refused == 0 {
			return nil
		}
		reason := map[int]metav1.StatusReason{http.StatusConflict: metav1.StatusReasonConflict, http.StatusNotFound: metav1.StatusReasonNotFound}[refused]
		text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"refused by the test","reason":%q,"code":%d}`, reason, refused)
		return &http.Response{
			StatusCode: refused, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), Request: r,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}
	}
	code = k.run(append([]string{"--namespace", namespace}, args...))
	return k.output.String(), code
}

// first is the place of the first request that begins so; -1: there was none.
func (h *heard) first(prefix string) int {
	return slices.IndexFunc(h.mu.lines, func(line string) bool { return strings.HasPrefix(line, prefix) })
}

func nothing(*http.Request) int { return 0 }

// without refuses the documents of the paths.
func without(paths ...string) func(*http.Request) int {
	return func(r *http.Request) int {
		if slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(r.URL.Path, p) }) {
			return http.StatusNotFound
		}
		return 0
	}
}

// aFile is a file with a deployment of one more container at each call.
func aFile(t *testing.T, containers ...string) string {
	t.Helper()
	text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec:\n      containers:\n"
	for _, c := range containers {
		text += fmt.Sprintf("      - {name: %s, image: %s}\n", c, c)
	}
	file := filepath.Join(t.TempDir(), "d.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestKubectlReadsDocumentsFirst(t *testing.T) {
	t.Parallel()
	const ns = "documents-first"
	theServer.namespace(t, ns)
	file := aFile(t, "c")
	const proto = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	h := &heard{}
	if out, code := h.run(t, ns, nothing, "apply", "-f", file); code != 0 {
		t.Fatal(out)
	}
	request := h.first("GET /apis/apps/v1/namespaces/")
	trace.Proves(t, "CRE-K05/discovery", "CRE-K05/openapi-v3")
	for _, want := range []string{"GET /api application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "GET /apis application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "GET /openapi/v3 "} {
		if at := h.first(want); at < 0 || at > request {
			t.Errorf("got %q, want %q before the first request of the object", h.mu.lines, want)
		}
	}
	h = &heard{}
	if out, code := h.run(t, ns, without("/openapi/v3"), "apply", "-f", file); code != 0 {
		t.Fatal(out)
	}
	if three, two := h.first("GET /openapi/v3"), h.first("GET /openapi/v2 "+proto); three < 0 || two < three {
		t.Errorf("got %q without version 3, want version 2 after it", h.mu.lines)
	}
	h = &heard{}
	out, code := h.run(t, ns, without("/openapi/"), "apply", "-f", file)
	trace.Proves(t, "CRE-K05/neither")
	if want := "failed to download openapi"; code == 0 || !strings.Contains(out, "error validating data: "+want) || !strings.Contains(out, "turn validation off with --validate=false") {
		t.Errorf("got %d %s without documents, want %s", code, out, want)
	}
	if out, code := (&heard{}).run(t, ns, without("/openapi/"), "apply", "--validate=false", "-f", file); code != 0 {
		t.Errorf("got %s without documents and validation", out)
	}
}

// TestKubectlMergesByDocuments lets kubectl find how lists are merged in three places, one after the other.
func TestKubectlMergesByDocuments(t *testing.T) {
	t.Parallel()
	const ns = "documents-merge"
	theServer.namespace(t, ns)
	if out, code := (&heard{}).run(t, ns, nothing, "apply", "-f", aFile(t, "a")); code != 0 {
		t.Fatal(out)
	}
	const of3, of2 = "GET /openapi/v3/apis/apps/v1", "GET /openapi/v2"
	for i, c := range []struct {
		refuse         func(*http.Request) int
		three, two     bool
		first, another string
	}{
		{nothing, true, false, "a", "b"},
		{without("/openapi/v3"), false, true, "a", "c"},
		{without("/openapi/"), false, true, "a", "d"},
	} {
		h := &heard{}
		if out, code := h.run(t, ns, c.refuse, "apply", "--validate=false", "-f", aFile(t, c.first, c.another)); code != 0 {
			t.Fatalf("%d: %s", i, out)
		}
		trace.Proves(t, "MRG-K05/order")
		if three, two := h.first(of3) >= 0, h.first(of2) >= 0; three != c.three || two != c.two {
			t.Errorf("%d: got %q, want version 3 read: %t, version 2: %t", i, h.mu.lines, c.three, c.two)
		}
		if got := strings.Join(h.mu.body, " "); !strings.Contains(got, `"$setElementOrder/containers":[{"name":"a"},{"name":"`+c.another+`"}]`) {
			t.Errorf("%d: got the patch %s, want one that merges containers by name", i, got)
		}
	}
}

// TestKubectlTriesAgainAfterConflicts takes the four seconds that kubectl waits between its tries.
func TestKubectlTriesAgainAfterConflicts(t *testing.T) {
	t.Parallel()
	const ns = "documents-conflict"
	theServer.namespace(t, ns)
	if out, code := (&heard{}).run(t, ns, nothing, "apply", "-f", aFile(t, "a")); code != 0 {
		t.Fatal(out)
	}
	conflict := func(r *http.Request) int {
		if r.Method == http.MethodPatch {
			return http.StatusConflict
		}
		return 0
	}
	h := &heard{}
	out, code := h.run(t, ns, conflict, "apply", "-f", aFile(t, "b"))
	trace.Proves(t, "UPD-K05")
	if n := len(h.mu.at); code == 0 || n != 6 {
		t.Fatalf("got %d patches and %d %s, want 6 and an error", n, code, out)
	}
	for i := 2; i < 6; i++ {
		if d := h.mu.at[i].Sub(h.mu.at[i-1]); d < time.Second {
			t.Errorf("got try %d after %s, want 1 s", i, d)
		}
	}
	reads := 0
	for _, line := range h.mu.lines[h.first("PATCH"):] {
		if strings.HasPrefix(line, "GET /apis/apps/v1/namespaces/") {
			reads++
		}
	}
	if reads != 5 {
		t.Errorf("got the object read %d times after conflicts, want 5", reads)
	}
}

// TestKubectlDiffTriesAgain answers each dry run that names the revision as if somebody had written meanwhile. It
// takes the twelve seconds for which kubectl waits between its tries, beside other tests.
func TestKubectlDiffTriesAgain(t *testing.T) {
	t.Parallel()
	const ns = "documents-diff"
	theServer.namespace(t, ns)
	if out, code := (&heard{}).run(t, ns, nothing, "apply", "-f", aFile(t, "a")); code != 0 {
		t.Fatal(out)
	}
	h := &heard{}
	locked := func() bool { return strings.Contains(h.mu.body[len(h.mu.body)-1], "resourceVersion") }
	out, code := h.run(t, ns, func(r *http.Request) int {
		if r.Method == http.MethodPatch && locked() {
			return http.StatusConflict
		}
		return 0
	}, "diff", "-f", aFile(t, "a", "b"))
	trace.Proves(t, "UPD-K06/tries")
	if code != 1 || !strings.Contains(out, "image: b") {
		t.Errorf("got %d %s, want the difference", code, out)
	}
	const each = 6 // times that a try sends its patch while that is refused
	if n := len(h.mu.body); n != 3*each+1 || locked() {
		t.Errorf("got %d patches, the last with %s, want three tries that name the revision, and a fourth without", n, h.mu.body[max(n-1, 0):])
	}
}
