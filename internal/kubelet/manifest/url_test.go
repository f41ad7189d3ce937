package manifest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// published is a server of manifests: what it answers, and which headers it was last asked with.
type published struct {
	*httptest.Server
	code   atomic.Int32
	text   atomic.Pointer[string]
	header atomic.Pointer[http.Header]
}

func publish(t *testing.T) *published {
	p := &published{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.header.Store(&r.Header)
		w.WriteHeader(int(p.code.Load()))
		fmt.Fprint(w, *p.text.Load())
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *published) says(code int32, text string) { p.code.Store(code); p.text.Store(&text) }

func podText(name string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}, spec: {containers: [{name: c, image: x}]}}"
}

// names are those of the pods that there are.
func names(u *URL) string {
	var list []string
	for _, pod := range u.Load() {
		list = append(list, pod.Name)
	}
	return strings.Join(list, " ")
}

func TestPodsOfAURLAreThoseOfTheLastGoodAnswer(t *testing.T) {
	p, kept := publish(t), filepath.Join(t.TempDir(), "kept")
	var h Header
	if err := h.Set("X-Who:me,x-who:too, Other: a:b"); err != nil {
		t.Fatal(err)
	}
	if got := h.String(); got != "Other:a:b,X-Who:me,x-who:too" {
		t.Errorf("headers: got %s", got)
	}
	u := &URL{Address: p.URL, Header: Header{"x-who": {"me", "too"}}, Node: "n1", Kept: kept}
	for _, c := range []struct {
		code    int32
		text    string
		changed bool
		wrong   string
		names   string
	}{
		{503, "away", false, "503 Service Unavailable", ""},
		{200, podText("web"), true, "", "web-n1"},
		{200, podText("web"), false, "", "web-n1"},
		{200, "", false, "zero-length data received", "web-n1"},
		{404, "gone", false, "404 Not Found", "web-n1"},
		{200, "kind: Deployment", false, "holds  Deployment, want v1 Pod", "web-n1"},
		{200, "{apiVersion: v1, kind: PodList, items: [" + podText("a") + ", {metadata: {name: b}, spec: {containers: [{name: c, image: x}]}}]}", true, "", "a-n1 b-n1"},
		{200, "{apiVersion: v1, kind: PodList, items: [" + podText("a") + ", " + podText("a") + "]}", false, "pod default/a-n1 is there twice", "a-n1 b-n1"},
		{200, "{apiVersion: v1, kind: PodList, items: [{metadata: {nam: b}}]}", false, `items[0]: error unmarshaling JSON: while decoding JSON: json: unknown field "nam"`, "a-n1 b-n1"},
		{200, "{apiVersion: v1, kind: PodList, items: []}", true, "", ""},
		{200, podText("last"), true, "", "last-n1"},
	} {
		p.says(c.code, c.text)
		changed, err := u.Fetch(t.Context())
		if changed != c.changed || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) || names(u) != c.names {
			t.Errorf("%d %s: got %v, %v, pods %q, want %v, %q, %q", c.code, c.text, changed, err, names(u), c.changed, c.wrong, c.names)
		}
	}
	if got := (*p.header.Load())["X-Who"]; len(got) != 2 || got[1] != "too" {
		t.Errorf("asked with %v", *p.header.Load())
	}
	pod := u.Load()[0]
	if pod.Annotations[AnnotationSource] != "http" || string(pod.UID) != pod.Annotations[AnnotationHash] || pod.Spec.NodeName != "n1" {
		t.Errorf("got %+v", pod.ObjectMeta)
	}
	again := &URL{Address: p.URL, Node: "n1", Kept: kept}
	if err := again.Restore(); err != nil || names(again) != "last-n1" || again.Load()[0].UID != pod.UID {
		t.Errorf("after a new start: got %q, %v", names(again), err)
	}
	elsewhere := &URL{Address: p.URL + "/other", Node: "n1"}
	if _, err := elsewhere.Fetch(t.Context()); err != nil || elsewhere.Load()[0].UID == pod.UID {
		t.Errorf("another place makes another pod: %v", err)
	}
	if err := (&URL{Kept: filepath.Join(t.TempDir(), "none")}).Restore(); err != nil {
		t.Errorf("nothing kept: %v", err)
	}
}
