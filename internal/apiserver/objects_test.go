package apiserver

import (
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/trace"
)

func TestLabelsAreAddedChangedAndTakenAway(t *testing.T) {
	f := newFixture(t)
	labels := func(body string) map[string]string {
		t.Helper()
		return decoded[metav1.PartialObjectMetadata](t, body).Labels
	}
	const pod = `{"metadata":{"name":"%s","labels":{"environment":"production","app":"nginx"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	const pods = "/api/v1/namespaces/default/pods"
	got := labels(f.must(201, "POST", pods, fmt.Sprintf(pod, "a")))
	if want := map[string]string{"environment": "production", "app": "nginx"}; !maps.Equal(got, want) {
		t.Errorf("created: got %v, want %v", got, want)
	}
	f.must(201, "POST", pods, fmt.Sprintf(pod, "b")) // the same labels: they identify nothing
	got = labels(f.must(200, "PATCH", pods+"/a", `{"metadata":{"labels":{"environment":"qa","release":"stable","app":null}}}`, merge))
	if want := map[string]string{"environment": "qa", "release": "stable"}; !maps.Equal(got, want) {
		t.Errorf("changed: got %v, want %v", got, want)
	}
	list := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", pods+"?labelSelector=app%3Dnginx,environment+in+(production)", ""))
	if len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("selected: got %+v", list.Items)
	}
	trace.Proves(t, "LBL-001", "LBL-003", "LBL-004", "LBL-016", "LBL-017", "LBL-018", "LBL-019")
}

func TestSelectorsInObjectsAreChecked(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/apps/v1/namespaces/default/deployments"
	deployment := func(name, selector string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"selector":` + selector + `,"template":{"metadata":{"labels":{"component":"redis","tier":"cache"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	}
	for i, selector := range []string{
		`{"matchLabels":{"component":"redis"}}`,
		`{"matchExpressions":[{"key":"component","operator":"In","values":["redis"]}]}`,
		`{"matchLabels":{"component":"redis"},"matchExpressions":[{"key":"tier","operator":"In","values":["cache","web"]},{"key":"environment","operator":"NotIn","values":["dev"]},{"key":"tier","operator":"Exists"},{"key":"x","operator":"DoesNotExist"}]}`,
	} {
		f.must(201, "POST", path, deployment(fmt.Sprint("good-", i), selector))
	}
	for selector, want := range map[string]string{
		`null`: `spec.selector: Required value`,
		`{"matchExpressions":[{"key":"component","operator":"In"}]}`:                                          `spec.selector.matchExpressions[0].values: Required value: must be specified when ` + "`operator`" + ` is 'In' or 'NotIn'`,
		`{"matchExpressions":[{"key":"component","operator":"NotIn","values":[]}]}`:                           `spec.selector.matchExpressions[0].values: Required value`,
		`{"matchExpressions":[{"key":"component","operator":"Exists","values":["redis"]}]}`:                   `spec.selector.matchExpressions[0].values: Forbidden: may not be specified when ` + "`operator`" + ` is 'Exists' or 'DoesNotExist'`,
		`{"matchExpressions":[{"key":"x","operator":"DoesNotExist","values":["a"]}]}`:                         `spec.selector.matchExpressions[0].values: Forbidden`,
		`{"matchExpressions":[{"key":"component","operator":"Like","values":["redis"]}]}`:                     `spec.selector.matchExpressions[0].operator: Invalid value: \"Like\": not a valid selector operator`,
		`{"matchLabels":{"component":"redis","tier":"web"}}`:                                                  "`selector` does not match template `labels`",
		`{"matchLabels":{"component":"redis"},"matchExpressions":[{"key":"tier","operator":"DoesNotExist"}]}`: "`selector` does not match template `labels`",
	} {
		if got := f.must(422, "POST", path, deployment("bad", selector)); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", selector, got, want)
		}
	}
	// Those of services are maps.
	const services = "/api/v1/namespaces/default/services"
	f.must(201, "POST", services, `{"metadata":{"name":"redis"},"spec":{"selector":{"component":"redis"},"ports":[{"port":6379}]}}`)
	f.must(400, "POST", services, `{"metadata":{"name":"bad"},"spec":{"selector":{"matchLabels":{"component":"redis"}},"ports":[{"port":6379}]}}`)
	trace.Proves(t, "LBL-046", "LBL-048", "LBL-050", "LBL-051", "LBL-052", "LBL-053", "LBL-054", "OBJ-024")
}

func TestAnnotationsHoldWhatLabelsCannot(t *testing.T) {
	f := newFixture(t)
	odd := `{\"a\": [1, 2]}\nof any <size> & form: ` + strings.Repeat("x", 10_000)
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"a","annotations":{"key1":"value1","example.com/icon.url":"`+odd+`","empty":""}}}`)
	got := decoded[corev1.ConfigMap](t, f.must(200, "GET", mapsPath+"/a", "")).Annotations
	want := map[string]string{"key1": "value1", "example.com/icon.url": strings.NewReplacer(`\"`, `"`, `\n`, "\n").Replace(odd), "empty": ""}
	if !maps.Equal(got, want) {
		t.Errorf("got %.300q", got)
	}
	if got := f.names("labelSelector=key1"); got != "" { // nothing is selected by them
		t.Errorf("selected by the key of an annotation: %s", got)
	}
	for _, bad := range []string{"", "a b", "-a", "a-", "Example_.com/a", "a/b/c", "/a", "a/", strings.Repeat("x", 64), strings.Repeat("x", 254) + "/a"} {
		got := f.must(422, "POST", mapsPath, fmt.Sprintf(`{"metadata":{"name":"bad","annotations":{%q:"x"}}}`, bad))
		if !strings.Contains(got, `"field":"metadata.annotations"`) {
			t.Errorf("key %q: got %s", bad, got)
		}
	}
	trace.Proves(t, "ANN-001", "ANN-002", "ANN-003", "ANN-004", "ANN-013", "ANN-014", "ANN-015")
}

func TestRecommendedLabelsFindAnApplication(t *testing.T) {
	f := newFixture(t)
	metadata := func(name, instance string) string {
		return `"metadata":{"name":"` + instance + `","labels":{"app.kubernetes.io/name":"` + name + `","app.kubernetes.io/instance":"` + instance + `","app.kubernetes.io/version":"5.7.21",` +
			`"app.kubernetes.io/component":"database","app.kubernetes.io/part-of":"wordpress","app.kubernetes.io/managed-by":"helm"}}`
	}
	template := `"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	const service = `,"spec":{"ports":[{"port":80}]}}`
	for path, body := range map[string]string{
		"/apis/apps/v1/namespaces/default/statefulsets": `,"spec":{"serviceName":"mysql",` + template + `}}`,
		"/apis/apps/v1/namespaces/default/deployments":  `,"spec":{` + template + `}}`,
		"/api/v1/namespaces/default/services":           service,
	} {
		f.must(201, "POST", path, `{`+metadata("mysql", "mysql-abcxzy")+body)
		f.must(201, "POST", path, `{`+metadata("mysql", "mysql-defuvw")+body) // installed twice in one namespace
		for query, want := range map[string]int{
			"app.kubernetes.io/part-of=wordpress": 2, "app.kubernetes.io/name=mysql,app.kubernetes.io/instance=mysql-abcxzy": 1,
			"app.kubernetes.io/version=5.7.21,app.kubernetes.io/component=database,app.kubernetes.io/managed-by=helm": 2,
		} {
			list := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", path+"?labelSelector="+query, ""))
			if len(list.Items) != want {
				t.Errorf("%s %s: got %d, want %d", path, query, len(list.Items), want)
			}
		}
	}
	trace.Proves(t, "RL-005", "RL-006", "RL-007", "RL-008", "RL-009", "RL-010", "RL-011", "RL-012", "RL-015")
}

func TestOpenAPIComesAsItIsAskedFor(t *testing.T) {
	f := newFixture(t)
	if got := f.must(200, "GET", "/openapi/v2", ""); !strings.HasPrefix(got, `{"swagger":"2.0"`) {
		t.Errorf("without Accept: got %.100s", got)
	}
	const asProto = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	for accept, kind := range map[string]string{"application/json": "application/json", "*/*": "application/json", asProto: asProto} {
		for _, zipped := range []bool{false, true} {
			r := httptest.NewRequest("GET", "/openapi/v2", nil)
			r.Header.Set("Accept", accept)
			if zipped {
				r.Header.Set("Accept-Encoding", "gzip")
			}
			w := httptest.NewRecorder()
			f.Handler().ServeHTTP(w, r)
			body := io.Reader(w.Body)
			if got := w.Header().Get("Content-Encoding"); (got == "gzip") != zipped {
				t.Errorf("%s: encoding %q", accept, got)
			} else if zipped {
				var err error
				if body, err = gzip.NewReader(body); err != nil {
					t.Fatal(err)
				}
			}
			content, err := io.ReadAll(body)
			if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || err != nil || !strings.HasPrefix(got, kind) && !strings.Contains(got, "proto-openapi") {
				t.Errorf("%s: got %d %s, %v", accept, w.Code, got, err)
			}
			if accept != asProto {
				if !strings.HasPrefix(string(content), `{"swagger":"2.0"`) {
					t.Errorf("%s: got %.100s", accept, content)
				}
				continue
			}
			var doc openapi_v2.Document
			if err := proto.Unmarshal(content, &doc); err != nil || doc.Swagger != "2.0" || len(doc.Paths.Path) < 100 {
				t.Errorf("protobuf: %v, %q with %d paths", err, doc.Swagger, len(doc.GetPaths().GetPath()))
			}
		}
	}
	for _, gone := range []string{"/swagger.json", "/swagger-2.0.0.json", "/swagger-2.0.0.pb-v1", "/swagger-2.0.0.pb-v1.gz", "/swaggerapi"} {
		f.must(404, "GET", gone, "")
	}
	trace.Proves(t, "API-008", "API-009", "API-010", "API-011", "API-012", "API-013", "API-014")
}

func TestVersionsAreNamedByTheirMaturity(t *testing.T) {
	f := newFixture(t)
	form := regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
	seen := map[string]bool{}
	groups := decoded[metav1.APIGroupList](t, f.must(200, "GET", "/apis", ""))
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			if !form.MatchString(v.Version) || v.GroupVersion != g.Name+"/"+v.Version {
				t.Errorf("group %s: version %q, %q", g.Name, v.Version, v.GroupVersion)
			}
			seen[form.FindStringSubmatch(v.Version)[2]] = true
		}
	}
	if !seen[""] || !seen["beta"] {
		t.Errorf("got maturities %v, want stable and beta versions by default", seen)
	}
	// One object, at each of its versions, says which one it is.
	f.must(201, "POST", "/apis/apps/v1/namespaces/default/deployments", nginx)
	for _, gv := range []string{"apps/v1", "apps/v1beta2", "apps/v1beta1", "extensions/v1beta1"} {
		got := decoded[metav1.PartialObjectMetadata](t, f.must(200, "GET", "/apis/"+gv+"/namespaces/default/deployments/nginx-deployment", ""))
		if got.APIVersion != gv || got.Kind != "Deployment" {
			t.Errorf("%s: got %s %s", gv, got.APIVersion, got.Kind)
		}
	}
	trace.Proves(t, "API-017", "API-019", "API-022", "API-023", "API-025", "OBJ-023")
}

func TestEveryKindIsListedInBothSerialisations(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.RuntimeConfig = map[string]bool{"api/all": true} })
	for _, d := range f.o.Defs {
		if d.CreateOnly {
			continue
		}
		versions := []schema.GroupVersion{{Group: d.Group, Version: d.Version}}
		for _, v := range d.Versions {
			versions = append(versions, schema.GroupVersion{Group: v.Group, Version: v.Version})
		}
		for _, gv := range versions {
			path := "/apis/" + gv.String() + "/" + d.Plural
			if gv.Group == "" {
				path = "/api/v1/" + d.Plural
			}
			if got := f.must(200, "GET", path, ""); !strings.HasPrefix(got, `{"kind":"`+d.Kind+`List","apiVersion":"`+gv.String()+`","metadata":{"resourceVersion":"`) {
				t.Errorf("%s: got %.200s", path, got)
			}
			got := f.must(200, "GET", path, "", "Accept: application/vnd.kubernetes.protobuf")
			if !strings.HasPrefix(got, "k8s\x00") || !strings.Contains(got, d.Kind+"List") {
				t.Errorf("%s as protobuf: got %.100q", path, got)
			}
		}
	}
	kinds := []string{}
	for _, d := range f.o.Defs {
		kinds = append(kinds, d.Kind)
	}
	for _, want := range []string{"DaemonSet", "Deployment", "Job", "ReplicaSet"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("%s is not served by default", want)
		}
	}
	trace.Proves(t, "API-015")
}
