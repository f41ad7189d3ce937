package imagepolicy_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/admission/imagepolicy"
)

// guard is a webhook that lets in images of one registry, and has its troubles with some.
type guard struct {
	*httptest.Server
	asked atomic.Int32
	last  atomic.Value
}

func newGuard(t *testing.T) *guard {
	t.Helper()
	g := &guard{}
	g.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.asked.Add(1)
		var q imagepolicyv1alpha1.ImageReview
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Errorf("the question cannot be read: %v", err)
		}
		g.last.Store(q)
		q.Status.Allowed = true
		for _, c := range q.Spec.Containers {
			switch registry, _, _ := strings.Cut(c.Image, "/"); registry {
			case "good":
				q.Status.AuditAnnotations = map[string]string{"seen": "yes"}
			case "broken":
				http.Error(w, "out of order", http.StatusTeapot)
				return
			case "lies":
				q.Kind = "Pod"
			case "plain":
				q.TypeMeta = metav1.TypeMeta{}
			case "silent":
				q.Status.Allowed = false
			default:
				q.Status.Allowed, q.Status.Reason = false, "no image of "+registry
			}
		}
		_ = json.NewEncoder(w).Encode(q)
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *guard) kubeconfig(t *testing.T) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["g"] = &clientcmdapi.Cluster{Server: g.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.Certificate().Raw})}
	c.Contexts["g"] = &clientcmdapi.Context{Cluster: "g"}
	c.CurrentContext = "g"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func configured(t *testing.T, text string) (*admission.Chain, error) {
	t.Helper()
	o := admissiontest.New(t).Options()
	if text != "" {
		o.Config = admission.Configurations{"ImagePolicyWebhook": []byte(text)}
	}
	p, err := imagepolicy.New(o)
	return admission.NewChain(p), err
}

// pod is a pod of images, the first of which initializes it.
func pod(images ...string) string {
	var more []string
	for i, image := range images[1:] {
		more = append(more, fmt.Sprintf("{name: c%d, image: %s}", i, image))
	}
	return fmt.Sprintf("Pod: {metadata: {namespace: team, name: x, annotations: {mine.image-policy.k8s.io/ticket: '7', other: a}}, spec: {initContainers: [{name: i, image: %s}], containers: [%s]}}", images[0], strings.Join(more, ", "))
}

func TestPodsRunWhatTheWebhookLetsIn(t *testing.T) {
	g := newGuard(t)
	closed, err := configured(t, fmt.Sprintf("imagePolicy: {kubeConfigFile: %q}", g.kubeconfig(t)))
	if err != nil {
		t.Fatal(err)
	}
	open, err := configured(t, fmt.Sprintf("imagePolicy: {kubeConfigFile: %q, defaultAllow: true, allowTTL: -1, denyTTL: -1}", g.kubeconfig(t)))
	if err != nil {
		t.Fatal(err)
	}
	const forbidden = `pods "x" is forbidden: `
	for _, tc := range []struct {
		images     []string
		want, open string
		asked      int32 // for two pods alike, where answers are remembered
	}{
		{[]string{"good/a", "good/b"}, "", "", 1},
		{[]string{"bad/a", "good/b"}, forbidden + "image policy webhook backend denied one or more images: no image of bad", "same", 1},
		{[]string{"good/a", "plain/b"}, "", "", 1},
		{[]string{"good/a", "silent/b"}, forbidden + "one or more images rejected by webhook backend", "same", 1},
		{[]string{"good/a", "broken/b"}, forbidden + "unable", "", 2},
		{[]string{"good/a", "lies/b"}, forbidden + `the webhook answered with "imagepolicy.k8s.io/v1alpha1" "Pod"`, "", 2},
	} {
		before := g.asked.Load()
		for range 2 {
			got := admissiontest.Run(t, closed, admissiontest.Request(t, pod(tc.images...), ""))
			if tc.images[1] == "broken/b" {
				if !strings.HasPrefix(got, forbidden) || got == forbidden {
					t.Errorf("%v: got %q, want it refused", tc.images, got)
				}
			} else if !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("%v: got %q, want %q", tc.images, got, tc.want)
			}
		}
		if n := g.asked.Load() - before; n != tc.asked {
			t.Errorf("%v: asked %d times, want %d", tc.images, n, tc.asked)
		}
		want := tc.open
		if want == "same" {
			want = tc.want
		}
		before = g.asked.Load()
		for range 2 {
			if got := admissiontest.Run(t, open, admissiontest.Request(t, pod(tc.images...), "")); got != want {
				t.Errorf("%v, where failures let in: got %q, want %q", tc.images, got, want)
			}
		}
		if n := g.asked.Load() - before; n != 2 {
			t.Errorf("%v, where nothing is remembered: asked %d times, want twice", tc.images, n)
		}
	}
	admissiontest.Run(t, open, admissiontest.Request(t, pod("good/a", "good/b"), pod("good/a", "good/c")))
	q := g.last.Load().(imagepolicyv1alpha1.ImageReview)
	if got, want := fmt.Sprint(q.APIVersion, q.Kind, q.Spec), "imagepolicy.k8s.io/v1alpha1ImageReview{[{good/b} {good/a}] map[mine.image-policy.k8s.io/ticket:7] team}"; got != want {
		t.Errorf("of an update: asked %s, want %s", got, want)
	}
	// What else is done with pods, and other things, nobody asks about.
	before := g.asked.Load()
	a := admissiontest.Request(t, pod("bad/a", "bad/b"), pod("bad/a", "bad/b"))
	a.Sub = "status"
	for _, a := range []*admission.Attributes{a, admissiontest.Request(t, "", pod("bad/a", "bad/b")), admissiontest.Request(t, "ConfigMap: {metadata: {namespace: team, name: x}}", "")} {
		if got := admissiontest.Run(t, open, a); got != "" || g.asked.Load() != before {
			t.Errorf("%s %s: got %q, asked %d times", a.Operation, a.Sub, got, g.asked.Load()-before)
		}
	}
}

func TestConfigurationThatCannotBeNamesTheField(t *testing.T) {
	file := newGuard(t).kubeconfig(t)
	for text, want := range map[string]string{
		"":                "imagePolicy.kubeConfigFile: is required",
		"imagePolicy: {}": "imagePolicy.kubeConfigFile: is required",
		"imagePolcy: {}":  `unknown field "imagePolcy"`,
		"imagePolicy: {kubeConfigFile: /nowhere}":                                   "imagePolicy.kubeConfigFile: read kubeconfig /nowhere",
		"imagePolicy: {allowTTL: 1, kubeConfigFile: " + file + "}":                  "imagePolicy.allowTTL: valid value is between 1s and 30m0s",
		"imagePolicy: {denyTTL: 1801, kubeConfigFile: " + file + "}":                "imagePolicy.denyTTL: valid value is between 1s and 30m0s",
		"imagePolicy: {denyTTL: 9223372036854775807, kubeConfigFile: " + file + "}": "imagePolicy.denyTTL: valid value is between",
		"imagePolicy: {retryBackoff: -2, kubeConfigFile: " + file + "}":             "imagePolicy.retryBackoff: valid value is between",
	} {
		if _, err := configured(t, text); err == nil || !strings.HasPrefix(err.Error(), "configuration of admission plugin ImagePolicyWebhook: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want the plugin and %s", text, err, want)
		}
	}
}
