package aggregate_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apiextensions"
	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/client"
)

const rootPath = "/apis/wardle.example.com/v1alpha1"

// unavailable asks for something of the other server, and wants to be told that it is not there.
func (b *bed) unavailable() {
	b.t.Helper()
	if got := b.ask("GET "+flundersPath, ""); got.code != 503 || got.body != "service unavailable\n" {
		b.t.Errorf("while it is not available: got %d %q, want 503 service unavailable", got.code, got.body)
	}
}

func TestAvailabilityFollowsServiceAndEndpoints(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	cert, authority := certificate(t, sampleHost)
	b.net.set("10.9.0.7:8443", b.listen(serveDocument(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }), cert))
	b.register(authority)
	b.await("False ServiceNotFound", `service/api in "default" is not present`)
	b.unavailable()
	services, apis := client.For(b.plane.Admin(), core.Services), client.For(b.plane.Admin(), apiregistration.APIServices)
	b.service()
	b.await("False EndpointsNotFound", `cannot find endpointslices for service/api in "default"`)
	b.endpoints("api-1", false, podAddress)
	b.await("False MissingEndpoints", `endpointslices for service/api in "default" have no addresses with port name "https"`)
	b.endpoints("api-3", true, podAddress)
	b.await("True Passed", "all checks passed")
	if got := b.must(200, "GET "+flundersPath, ""); got != "here" {
		t.Errorf("got %q", got)
	}
	slices := client.For(b.plane.Admin(), discovery.EndpointSlices)
	if err := slices.Delete(t.Context(), "default", "api-3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.await("False MissingEndpoints")
	b.unavailable()
	s, err := apis.Get(t.Context(), "", "v1alpha1.wardle.example.com")
	if err != nil {
		t.Fatal(err)
	}
	s = s.DeepCopy()
	s.Spec.Service.Port = ptr.To[int32](444)
	if _, err := apis.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.await("False ServicePortError", `service/api in "default" is not listening on port 444`)
	if err := services.Delete(t.Context(), "default", "api", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.await("False ServiceNotFound")
	if err := apis.Delete(t.Context(), "", s.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.gone()
}

// gone waits until nobody knows the group any more.
func (b *bed) gone() {
	b.t.Helper()
	b.until(func() bool { return b.ask("GET "+rootPath, "").code == http.StatusNotFound })
}

func TestWhoShowsAnotherCertificateIsNotBelieved(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		hosts  []string
		change func(s *apiregistrationv1.APIService)
		want   string
		says   string
	}{
		"of another name":                        {[]string{"api.other.svc"}, func(*apiregistrationv1.APIService) {}, "False FailedDiscoveryCheck", "certificate is valid for api.other.svc, not api.default.svc"},
		"of another authority":                   {[]string{sampleHost}, func(s *apiregistrationv1.APIService) { _, s.Spec.CABundle = certificate(t, sampleHost) }, "False FailedDiscoveryCheck", "certificate signed by unknown authority"},
		"of one that this machine does not know": {[]string{sampleHost}, func(s *apiregistrationv1.APIService) { s.Spec.CABundle = nil }, "False FailedDiscoveryCheck", "certificate signed by unknown authority"},
		"no authority at all":                    {[]string{sampleHost}, func(s *apiregistrationv1.APIService) { s.Spec.CABundle = []byte("nothing") }, "False FailedDiscoveryCheck", "unable to load root certificates"},
		"whatever it is": {[]string{"else"}, func(s *apiregistrationv1.APIService) {
			s.Spec.CABundle, s.Spec.InsecureSkipTLSVerify = nil, true
		}, "True Passed", "all checks passed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			cert, authority := certificate(t, tc.hosts...)
			b.net.set("10.9.0.7:8443", b.listen(serveDocument(http.NotFound), cert))
			b.service()
			b.endpoints("api-1", true, podAddress)
			b.register(authority, tc.change)
			b.await(tc.want, tc.says)
		})
	}
}

func TestServersThatDoNotAnswerWellAreNotAvailable(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		says   string
	}{
		"refuses":   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, "failing or missing response from https://api.default.svc:443/apis/wardle.example.com/v1alpha1: bad status from https://api.default.svc:443/apis/wardle.example.com/v1alpha1: 403"},
		"redirects": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, "bad status from https://api.default.svc:443/apis/wardle.example.com/v1alpha1: 302"},
		"hangs":     {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "context deadline exceeded"},
		"hangs up":  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "failing or missing response"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			cert, authority := certificate(t, sampleHost)
			var well atomic.Bool
			good := serveDocument(http.NotFound)
			b.net.set("10.9.0.7:8443", b.listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if well.Load() {
					good(w, r)
					return
				}
				tc.answer(w, r)
			}), cert))
			b.service()
			b.endpoints("api-1", true, podAddress)
			b.register(authority)
			b.await("False FailedDiscoveryCheck", tc.says)
			b.unavailable()
			b.must(200, "GET /apis", "") // nobody else is kept from anything
			well.Store(true)
			b.await("True Passed") // it is asked again
		})
	}
}

func TestOneEndpointThatAnswersIsEnough(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	cert, authority := certificate(t, sampleHost)
	b.net.set("10.9.0.7:8443", b.listen(http.NotFoundHandler(), cert))
	b.net.set("10.9.0.8:8443", b.listen(serveDocument(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }), cert))
	b.service()
	b.endpoints("api-1", true, "10.9.0.6", podAddress, "10.9.0.8") // the first cannot be reached
	b.register(authority)
	b.await("True Passed")
}

func TestPodsAreReachedByWayOfTheirNode(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	cert, authority := certificate(t, sampleHost)
	b.net.set("10.9.0.7:8443", b.listen(serveDocument(http.NotFound), cert))
	create(b, core.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	pods := client.For(b.plane.Admin(), core.Pods)
	pod := create(b, core.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "api"},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Image: "api"}}},
	}).DeepCopy()
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, podAddress, []corev1.PodIP{{IP: podAddress}}
	if _, err := pods.UpdateStatus(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	b.service()
	b.endpoints("api-1", true, podAddress)
	s := client.For(b.plane.Admin(), discovery.EndpointSlices)
	slice, err := s.Get(t.Context(), "default", "api-1")
	if err != nil {
		t.Fatal(err)
	}
	slice = slice.DeepCopy()
	slice.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "api"}
	if _, err := s.Update(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	b.register(authority)
	b.await("True Passed")
	b.net.Lock()
	defer b.net.Unlock()
	if !slices.Equal(b.net.dialed, []string{"n1 10.9.0.7:8443"}) {
		t.Errorf("dialed: got %q", b.net.dialed)
	}
}

// group is what is told of the group of the samples at once; nil: nothing.
func (b *bed) group() *apidiscovery.APIGroupDiscovery {
	b.t.Helper()
	var all apidiscovery.APIGroupDiscoveryList
	body := b.must(200, "GET /apis", "", "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		b.t.Fatal(err)
	}
	i := slices.IndexFunc(all.Items, func(g apidiscovery.APIGroupDiscovery) bool { return g.Name == "wardle.example.com" })
	if i < 0 {
		return nil
	}
	return &all.Items[i]
}

func TestWhatOthersHaveIsDiscovered(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if b.group() != nil {
		t.Error("the group is there before anybody has it")
	}
	b.sample(func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	g := b.group()
	if g == nil || len(g.Versions) != 1 || g.Versions[0].Freshness != apidiscovery.DiscoveryFreshnessCurrent || len(g.Versions[0].Resources) != 1 {
		t.Fatalf("got %+v", g)
	}
	r := g.Versions[0].Resources[0]
	if r.Resource != "flunders" || r.Scope != apidiscovery.ScopeNamespace || r.ResponseKind.Kind != "Flunder" || r.ResponseKind.Group != "wardle.example.com" ||
		!slices.Equal(r.ShortNames, []string{"fl"}) || len(r.Subresources) != 1 || r.Subresources[0].Subresource != "log" {
		t.Errorf("got %+v", r)
	}
	for path, want := range map[string]string{
		"/apis":                    `{"name":"wardle.example.com","versions":[{"groupVersion":"wardle.example.com/v1alpha1","version":"v1alpha1"}],"preferredVersion":{"groupVersion":"wardle.example.com/v1alpha1","version":"v1alpha1"}}`,
		"/apis/wardle.example.com": `"preferredVersion":{"groupVersion":"wardle.example.com/v1alpha1","version":"v1alpha1"}`,
		rootPath:                   `"name":"flunders/log"`,
		"/":                        `"/apis/wardle.example.com/v1alpha1"`,
	} {
		if got := b.must(200, "GET "+path, ""); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want it to contain %s", path, got, want)
		}
	}
	// A server that cannot be asked is not forgotten.
	if err := client.For(b.plane.Admin(), discovery.EndpointSlices).Delete(t.Context(), "default", "api-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.await("False EndpointsNotFound")
	if g := b.group(); g == nil || g.Versions[0].Freshness != apidiscovery.DiscoveryFreshnessStale || len(g.Versions[0].Resources) != 1 {
		t.Errorf("while it is away: got %+v, want what was known, stale", g)
	}
	if err := client.For(b.plane.Admin(), apiregistration.APIServices).Delete(t.Context(), "", "v1alpha1.wardle.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.until(func() bool { return b.group() == nil })
}

func TestWhoLiesOfWhatThereIsHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	for name, lie := range map[string]string{
		"of another group": `{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[{"name":"deployments","kind":"Deployment","verbs":["get"]}]}`,
		"no document":      `<html>`,
		"no kind":          `{"resources":[{"name":"/","kind":""},{"name":""},{"name":"a/b/c"}]}`,
		"without an end":   `{"groupVersion":"` + strings.Repeat("x", 9<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			cert, authority := certificate(t, sampleHost)
			b.net.set("10.9.0.7:8443", b.listen(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, lie) }), cert))
			b.service()
			b.endpoints("api-1", true, podAddress)
			b.register(authority)
			b.await("True Passed")
			if g := b.group(); g == nil || len(g.Versions[0].Resources) != 0 || g.Versions[0].Freshness != apidiscovery.DiscoveryFreshnessStale {
				t.Errorf("got %+v", g)
			}
			if got := b.must(200, "GET /apis/apps/v1", ""); !strings.Contains(got, `"name":"daemonsets"`) {
				t.Errorf("apps/v1: got %s", got)
			}
		})
	}
}

func TestAnotherServerTakesThePlaceOfWhatIsServedHere(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	cert, authority := certificate(t, sampleHost)
	b.net.set("10.9.0.7:8443", b.listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis/metrics.k8s.io/v1beta1" {
			_, _ = io.WriteString(w, `{"groupVersion":"metrics.k8s.io/v1beta1","resources":[{"name":"nodes","kind":"NodeMetrics","verbs":["get","list"]}]}`)
			return
		}
		fmt.Fprint(w, "of another server")
	}), cert))
	b.service()
	b.endpoints("api-1", true, podAddress)
	const path = "/apis/metrics.k8s.io/v1beta1/nodes"
	if got := b.must(200, "GET "+path, ""); !strings.Contains(got, "NodeMetricsList") {
		t.Errorf("before: got %s", got)
	}
	s := create(b, apiregistration.APIServices, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1beta1.metrics.k8s.io"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "metrics.k8s.io", Version: "v1beta1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: authority,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "api"},
		},
	})
	b.awaitOf(s.Name, "True Passed")
	b.until(func() bool { return b.ask("GET "+path, "").body == "of another server" })
	// metrics-server has this one version: clients that know a newer one must not find ours beside it.
	versions := func() string {
		var g metav1.APIGroup
		if err := json.Unmarshal([]byte(b.must(200, "GET /apis/metrics.k8s.io", "")), &g); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s %d", g.PreferredVersion.Version, len(g.Versions))
	}
	if got := versions(); got != "v1beta1 1" {
		t.Errorf("versions: got %s, want v1beta1 alone", got)
	}
	for _, newer := range []string{"/apis/metrics.k8s.io/v1", "/apis/metrics.k8s.io/v1/nodes", "/openapi/v3/apis/metrics.k8s.io/v1"} {
		b.must(404, "GET "+newer, "")
	}
	if got := b.must(200, "GET /openapi/v3", ""); strings.Contains(got, "metrics.k8s.io/v1") {
		t.Errorf("OpenAPI documents: got %s", got)
	}
	if err := client.For(b.plane.Admin(), apiregistration.APIServices).Delete(t.Context(), "", s.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.until(func() bool { return strings.Contains(b.ask("GET "+path, "").body, "NodeMetricsList") })
	if got := versions(); got != "v1 2" {
		t.Errorf("versions afterwards: got %s, want v1 first, of 2", got)
	}
	if got := b.must(200, "GET /apis/metrics.k8s.io/v1/nodes", ""); !strings.Contains(got, "NodeMetricsList") {
		t.Errorf("afterwards: got %s", got)
	}
}

func TestOwnGroupVersionsAreRegistered(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.awaitOf("v2.autoscaling", "True Local", "Local APIServices are always available")
	b.awaitOf("v1.storage.k8s.io", "True Local")
	b.awaitOf("v1.", "True Local")
	all := client.Cached(b.plane.Admin(), apiregistration.APIServices, "")
	s, ok := all.Get("", "v1.apps")
	if !ok || s.Labels["kube-aggregator.kubernetes.io/automanaged"] != "onstart" || s.Spec.GroupPriorityMinimum != 17800 || s.Spec.VersionPriority != 15 {
		t.Errorf("v1.apps: got %+v", s)
	}
	for _, name := range []string{"v1.apiregistration.k8s.io", "v1beta1.metrics.k8s.io"} {
		if _, ok := all.Get("", name); ok {
			t.Errorf("%s is registered", name)
		}
	}
	if got := b.must(200, "GET /apis/apiregistration.k8s.io/v1beta1/apiservices/v1.apps", "", "Accept: application/json;as=Table;g=meta.k8s.io;v=v1"); !strings.Contains(got, `"cells":["v1.apps","Local","True",`) {
		t.Errorf("as a table: got %s", got)
	}
}

func TestRegistrationsOfCustomKindsComeAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.awaitOf("v1.apps", "True Local")
	open := true
	if _, err := client.For(b.plane.Admin(), apiextensions.CustomResourceDefinitions).Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.ClusterScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &open},
			}}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	b.awaitOf("v1.example.com", "True Local")
	api, all := client.For(b.plane.Admin(), apiregistration.APIServices), client.Cached(b.plane.Admin(), apiregistration.APIServices, "")
	was, _ := all.Get("", "v1.example.com")
	for _, name := range []string{"v1.apps", "v1.example.com"} {
		if err := api.Delete(t.Context(), "", name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.until(func() bool {
		is, ok := all.Get("", "v1.example.com")
		return ok && is.UID != was.UID && is.Labels["kube-aggregator.kubernetes.io/automanaged"] == "true"
	})
	if _, ok := all.Get("", "v1.apps"); ok {
		t.Error("what is made at a start came again, too")
	}
}
