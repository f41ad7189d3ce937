package extender

import (
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

var (
	twoNodes = []*corev1.Node{node("n1"), node("n2")}
	pod      = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}}
)

// asked serves one answer, and returns the extender and what it was asked.
func asked(t *testing.T, c configv1.Extender, answer string) (*Extender, *http.Request, *extenderv1.ExtenderArgs) {
	t.Helper()
	req, args := &http.Request{}, &extenderv1.ExtenderArgs{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*req = *r
		if err := json.NewDecoder(r.Body).Decode(args); err != nil {
			t.Error(err)
		}
		if _, err := w.Write([]byte(answer)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	c.URLPrefix = s.URL + "/x/"
	e, err := New(c, field.NewPath("extenders").Index(0))
	if err != nil {
		t.Fatal(err)
	}
	return e, req, args
}

func TestFilterSendsNodesOrTheirNames(t *testing.T) {
	for _, cached := range []bool{false, true} {
		answer := `{"Nodes":{"items":[{"metadata":{"name":"n2"}}]},"FailedNodes":{"n1":"no"},"FailedAndUnresolvableNodes":{"n3":"never"}}`
		if cached {
			answer = `{"NodeNames":["n2"],"FailedNodes":{"n1":"no"},"FailedAndUnresolvableNodes":{"n3":"never"}}`
		}
		e, req, args := asked(t, configv1.Extender{FilterVerb: "f", NodeCacheCapable: cached}, answer)
		got, err := e.Filter(t.Context(), pod, twoNodes)
		if err != nil {
			t.Fatal(err)
		}
		if req.Method != "POST" || req.URL.Path != "/x/f" || req.Header.Get("Content-Type") != "application/json" || args.Pod.Name != "p" {
			t.Errorf("asked %s %s about %v", req.Method, req.URL, args.Pod)
		}
		if (args.Nodes == nil) != cached || (args.NodeNames == nil) == cached {
			t.Errorf("with a cache of its own %t: got nodes %v and names %v", cached, args.Nodes, args.NodeNames)
		}
		want := Filtered{twoNodes[1:], map[string]string{"n1": "no"}, map[string]string{"n3": "never"}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestPrioritizeWeighsScores(t *testing.T) {
	e, _, _ := asked(t, configv1.Extender{PrioritizeVerb: "p", Weight: 3}, `[{"Host":"n1","Score":10},{"Host":"n2","Score":1}]`)
	got, err := e.Prioritize(t.Context(), pod, twoNodes)
	if want := map[string]int64{"n1": 300, "n2": 30}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v and %v, want %v", got, err, want)
	}
}

func TestAnswersThatCannotBeAreErrors(t *testing.T) {
	for answer, want := range map[string]string{
		`{"NodeNames":["n9"]}`: `claims a filtered node "n9" which is not found in the input node list`,
		`{"Error":"broken"}`:   "broken",
		`{"NodeNames":`:        "decode answer of extender at URL",
		`[]`:                   "decode answer of extender at URL",
		``:                     "decode answer of extender at URL",
	} {
		e, _, _ := asked(t, configv1.Extender{FilterVerb: "f", NodeCacheCapable: true}, answer)
		if _, err := e.Filter(t.Context(), pod, twoNodes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("answer %s: got %v, want %s", answer, err, want)
		}
	}
	e, _, _ := asked(t, configv1.Extender{BindVerb: "b"}, `{"Error":"taken"}`)
	if err := e.Bind(t.Context(), &corev1.Binding{}); err == nil || err.Error() != "taken" {
		t.Errorf("bind: got %v, want taken", err)
	}
}

func TestAnExtenderThatIsSlowOrGoneIsAnError(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/slow") {
			<-release
		}
		w.WriteHeader(http.StatusTeapot)
	}))
	defer s.Close()
	defer close(release)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := "http://" + l.Addr().String()
	l.Close()
	for _, tc := range []struct{ url, verb, want string }{
		{s.URL, "slow", "Client.Timeout exceeded while awaiting headers"},
		{s.URL, "teapot", "failed teapot with extender at URL " + s.URL + "/teapot, code 418"},
		{gone, "f", "connection refused"},
	} {
		c := configv1.Extender{URLPrefix: tc.url, FilterVerb: tc.verb}
		if tc.verb == "slow" {
			c.HTTPTimeout = metav1.Duration{Duration: 10 * time.Millisecond}
		}
		e, err := New(c, field.NewPath("extenders").Index(0))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Filter(t.Context(), pod, twoNodes); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.verb, err, tc.want)
		}
	}
}

func TestChecksTheExtendersCertificateAsConfigured(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := w.Write([]byte(`{"NodeNames":[]}`)); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for _, tc := range []struct {
		name string
		c    configv1.Extender
		ok   bool
	}{
		{"nothing said", configv1.Extender{}, false},
		{"https without an authority", configv1.Extender{EnableHTTPS: true}, true},
		{"its authority", configv1.Extender{EnableHTTPS: true, TLSConfig: &configv1.ExtenderTLSConfig{CAData: ca}}, true},
		{"its authority, another name", configv1.Extender{EnableHTTPS: true, TLSConfig: &configv1.ExtenderTLSConfig{CAData: ca, ServerName: "other.example.org"}}, false},
		{"unchecked", configv1.Extender{TLSConfig: &configv1.ExtenderTLSConfig{Insecure: true}}, true},
	} {
		tc.c.URLPrefix, tc.c.FilterVerb, tc.c.NodeCacheCapable = s.URL, "f", true
		e, err := New(tc.c, field.NewPath("extenders").Index(0))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Filter(t.Context(), pod, twoNodes); (err == nil) != tc.ok {
			t.Errorf("%s: got %v", tc.name, err)
		}
		e.Client.CloseIdleConnections()
	}
}

func TestIsAskedAboutPodsThatNeedWhatItManages(t *testing.T) {
	e, _, _ := asked(t, configv1.Extender{ManagedResources: []configv1.ExtenderManagedResource{{Name: "example.com/gpu"}}}, "")
	with := func(init bool, limits corev1.ResourceList) *corev1.Pod {
		p, c := pod.DeepCopy(), corev1.Container{Resources: corev1.ResourceRequirements{Limits: limits}}
		if init {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		return p
	}
	gpu := corev1.ResourceList{"example.com/gpu": {}}
	if e.Interested(pod) || e.Interested(with(false, corev1.ResourceList{"cpu": {}})) || !e.Interested(with(false, gpu)) || !e.Interested(with(true, gpu)) {
		t.Error("asked about the wrong pods")
	}
}
