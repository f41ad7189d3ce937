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
	trace.Proves(t, "LBL-001", "LBL-016")
	if want := map[string]string{"environment": "production", "app": "nginx"}; !maps.Equal(got, want) {
		t.Errorf("created: got %v, want %v", got, want)
	}
	f.must(201, "POST", pods, fmt.Sprintf(pod, "b")) // the same labels: they identify nothing
	list := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", pods+"?labelSelector=app%3Dnginx", ""))
	trace.Proves(t, "LBL-017", "LBL-018")
	if len(list.Items) != 2 || !maps.Equal(list.Items[0].Labels, list.Items[1].Labels) {
		t.Errorf("of the same labels: got %+v", list.Items)
	}
	got = labels(f.must(200, "PATCH", pods+"/a", `{"metadata":{"labels":{"environment":"qa","release":"stable","app":null}}}`, merge))
	trace.Proves(t, "LBL-003", "LBL-004")
	if want := map[string]string{"environment": "qa", "release": "stable"}; !maps.Equal(got, want) {
		t.Errorf("changed: got %v, want %v", got, want)
	}
	list = decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", pods+"?labelSelector=app%3Dnginx,environment+in+(production)", ""))
	trace.Proves(t, "LBL-019")
	if len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("selected: got %+v", list.Items)
	}
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
	const unmatched = "`selector` does not match template `labels`"
	for _, c := range []struct{ selector, want, proves string }{
		{`null`, `spec.selector: Required value`, "OBJ-024"},
		{`{"matchExpressions":[{"key":"component","operator":"In"}]}`, `spec.selector.matchExpressions[0].values: Required value: must be specified when ` + "`operator`" + ` is 'In' or 'NotIn'`, "LBL-053"},
		{`{"matchExpressions":[{"key":"component","operator":"NotIn","values":[]}]}`, `spec.selector.matchExpressions[0].values: Required value`, "LBL-053"},
		{`{"matchExpressions":[{"key":"component","operator":"Exists","values":["redis"]}]}`, `spec.selector.matchExpressions[0].values: Forbidden: may not be specified when ` + "`operator`" + ` is 'Exists' or 'DoesNotExist'`, "LBL-053"},
		{`{"matchExpressions":[{"key":"x","operator":"DoesNotExist","values":["a"]}]}`, `spec.selector.matchExpressions[0].values: Forbidden`, "LBL-053"},
		{`{"matchExpressions":[{"key":"component","operator":"Like","values":["redis"]}]}`, `spec.selector.matchExpressions[0].operator: Invalid value: \"Like\": not a valid selector operator`, "LBL-052"},
		{`{"matchLabels":{"component":"redis","tier":"web"}}`, unmatched, "OBJ-024"},
		{`{"matchExpressions":[{"key":"tier","operator":"In","values":["web"]}]}`, unmatched, "LBL-051"}, // as matchLabels of it, while one of redis matches like that above
		{`{"matchLabels":{"component":"redis"},"matchExpressions":[{"key":"tier","operator":"DoesNotExist"}]}`, unmatched, "LBL-054"},
	} {
		got := f.must(422, "POST", path, deployment("bad", c.selector))
		trace.Proves(t, strings.Fields(c.proves)...)
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s", c.selector, got, c.want)
		}
	}
}

func TestSelectorsAreOfOneKindOrOfTwo(t *testing.T) {
	f := newFixture(t)
	// Those of services and replication controllers are maps.
	trace.Proves(t, "LBL-048")
	for path, spec := range map[string]string{
		"/api/v1/namespaces/default/services":               `"ports":[{"port":6379}]`,
		"/api/v1/namespaces/default/replicationcontrollers": `"template":{"metadata":{"labels":{"component":"redis"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
	} {
		for selector, code := range map[string]int{`{"component":"redis"}`: 201, `{"matchLabels":{"component":"redis"}}`: 400, `{"matchExpressions":[{"key":"component","operator":"Exists"}]}`: 400} {
			if w := f.ask("POST", path, `{"metadata":{"name":"redis"},"spec":{"selector":`+selector+`,`+spec+`}}`); w.Code != code {
				t.Errorf("%s with %s: got %d %s, want %d", path, selector, w.Code, w.Body, code)
			}
		}
	}
	// Those of later kinds have two members.
	const selector = `"selector":{"matchLabels":{"component":"redis"},"matchExpressions":[{"key":"tier","operator":"In","values":["cache","web"]}]}`
	trace.Proves(t, "LBL-050")
	for path, more := range map[string]string{"apps/v1/namespaces/default/deployments": "", "apps/v1/namespaces/default/replicasets": "", "apps/v1/namespaces/default/daemonsets": "", "batch/v1/namespaces/default/jobs": `"manualSelector":true,`} {
		policy := ""
		if more != "" {
			policy = `"restartPolicy":"Never",`
		}
		w := f.ask("POST", "/apis/"+path, `{"metadata":{"name":"redis"},"spec":{`+more+selector+`,"template":{"metadata":{"labels":{"component":"redis","tier":"cache"}},"spec":{`+policy+`"containers":[{"name":"c","image":"i"}]}}}}`)
		if w.Code != 201 || !strings.Contains(w.Body.String(), selector) {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
}

func TestAnnotationsHoldWhatLabelsCannot(t *testing.T) {
	f := newFixture(t)
	odd := `{\"a\": [1, 2]}\nof any <size> & form: ` + strings.Repeat("x", 10_000)
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"a","annotations":{"key1":"value1","example.com/icon.url":"`+odd+`","empty":""}}}`)
	got := decoded[corev1.ConfigMap](t, f.must(200, "GET", mapsPath+"/a", "")).Annotations
	want := map[string]string{"key1": "value1", "example.com/icon.url": strings.NewReplacer(`\"`, `"`, `\n`, "\n").Replace(odd), "empty": ""}
	trace.Proves(t, "ANN-001", "ANN-003", "ANN-004")
	if !maps.Equal(got, want) {
		t.Errorf("got %.300q", got)
	}
	trace.Proves(t, "ANN-002")
	if got := f.names("labelSelector=key1"); got != "" { // nothing is selected by them
		t.Errorf("selected by the key of an annotation: %s", got)
	}
	for _, query := range []string{"", "watch=1&"} {
		if w := f.ask("GET", mapsPath+"?"+query+"fieldSelector=metadata.annotations.key1%3Dvalue1", ""); w.Code != 400 {
			t.Errorf("%sselected by the field of an annotation: got %d %s", query, w.Code, w.Body)
		}
	}
	trace.Proves(t, "ANN-013")
	checkKeys(t, f, keySegments, "annotations")
	trace.Proves(t, "ANN-014")
	checkKeys(t, f, keyLength, "annotations")
	trace.Proves(t, "ANN-014")
	checkKeys(t, f, keyLetters, "annotations")
	trace.Proves(t, "ANN-015")
	checkKeys(t, f, keyPrefix, "annotations")
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
		f.must(201, "POST", path, `{"metadata":{"name":"other"}`+body)
		for _, c := range []struct {
			label  string
			want   int
			proves string
		}{
			{"name=mysql", 2, "RL-006 RL-012"},
			{"instance=mysql-abcxzy", 1, "RL-007"},
			{"version=5.7.21", 2, "RL-008"},
			{"component=database", 2, "RL-009"},
			{"part-of=wordpress", 2, "RL-010 RL-015"},
			{"managed-by=helm", 2, "RL-011"},
		} {
			list := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", path+"?labelSelector=app.kubernetes.io/"+c.label, ""))
			trace.Proves(t, strings.Fields(c.proves)...)
			if len(list.Items) != c.want {
				t.Errorf("%s %s: got %d, want %d", path, c.label, len(list.Items), c.want)
			}
		}
	}
}

func TestOpenAPIComesAsItIsAskedFor(t *testing.T) {
	f := newFixture(t)
	trace.Proves(t, "API-008", "API-009")
	if got := f.must(200, "GET", "/openapi/v2", ""); !strings.HasPrefix(got, `{"swagger":"2.0"`) {
		t.Errorf("without Accept: got %.100s", got)
	}
	const asProto = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	for _, c := range []struct{ accept, kind, proves string }{
		{"application/json", "application/json", "API-010"},
		{"*/*", "application/json", "API-011"},
		{asProto, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", "API-010"},
	} {
		for encoding, want := range map[string]string{"": "", "gzip": "gzip", "br, deflate": ""} {
			r := httptest.NewRequest("GET", "/openapi/v2", nil)
			r.Header.Set("Accept", c.accept)
			r.Header.Set("Accept-Encoding", encoding)
			w := httptest.NewRecorder()
			f.Handler().ServeHTTP(w, r)
			body := io.Reader(w.Body)
			trace.Proves(t, "API-012")
			if got := w.Header().Get("Content-Encoding"); got != want {
				t.Errorf("%s, %q: encoding %q", c.accept, encoding, got)
			} else if got == "gzip" {
				var err error
				if body, err = gzip.NewReader(body); err != nil {
					t.Fatal(err)
				}
			}
			content, err := io.ReadAll(body)
			trace.Proves(t, strings.Fields(c.proves)...)
			if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || err != nil || got != c.kind {
				t.Errorf("%s: got %d %s, %v", c.accept, w.Code, got, err)
			}
			if c.accept != asProto {
				if !strings.HasPrefix(string(content), `{"swagger":"2.0"`) {
					t.Errorf("%s: got %.100s", c.accept, content)
				}
				continue
			}
			var doc openapi_v2.Document
			if err := proto.Unmarshal(content, &doc); err != nil || doc.Swagger != "2.0" || len(doc.Paths.Path) < 100 {
				t.Errorf("protobuf: %v, %q with %d paths", err, doc.Swagger, len(doc.GetPaths().GetPath()))
			}
		}
	}
	trace.Proves(t, "API-013")
	for _, gone := range []string{"/swagger.json", "/swagger-2.0.0.json", "/swagger-2.0.0.pb-v1", "/swagger-2.0.0.pb-v1.gz"} {
		if w := f.ask("GET", gone, ""); w.Code != 404 {
			t.Errorf("%s: got %d", gone, w.Code)
		}
	}
	trace.Proves(t, "API-014")
	if w := f.ask("GET", "/swaggerapi", ""); w.Code != 404 {
		t.Errorf("version 1.2: got %d", w.Code)
	}
}

func TestVersionsAreNamedByTheirMaturity(t *testing.T) {
	form := regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
	maturities := func(f *fixture) map[string]bool {
		seen := map[string]bool{}
		groups := decoded[metav1.APIGroupList](t, f.must(200, "GET", "/apis", ""))
		for _, g := range groups.Groups {
			for _, v := range g.Versions {
				if !form.MatchString(v.Version) || v.GroupVersion != g.Name+"/"+v.Version {
					t.Fatalf("group %s: version %q, %q", g.Name, v.Version, v.GroupVersion)
				}
				seen[form.FindStringSubmatch(v.Version)[2]] = true
			}
		}
		return seen
	}
	f := newFixture(t)
	seen := maturities(f)
	trace.Proves(t, "API-022", "API-023", "API-025")
	if !seen[""] || !seen["beta"] {
		t.Errorf("got maturities %v, want stable and beta versions by default", seen)
	}
	all := maturities(newFixture(t, func(o *Options) { o.RuntimeConfig = map[string]bool{"api/all": true} }))
	trace.Proves(t, "API-019")
	if !all["alpha"] {
		t.Errorf("got maturities %v, want alpha versions where all are asked for", all)
	}
	// One object, at each of its versions, says which one it is.
	f.must(201, "POST", "/apis/apps/v1/namespaces/default/deployments", nginx)
	for _, gv := range []string{"apps/v1", "apps/v1beta2", "apps/v1beta1", "extensions/v1beta1"} {
		got := decoded[metav1.PartialObjectMetadata](t, f.must(200, "GET", "/apis/"+gv+"/namespaces/default/deployments/nginx-deployment", ""))
		trace.Proves(t, "OBJ-023")
		if got.APIVersion != gv || got.Kind != "Deployment" {
			t.Errorf("%s: got %s %s", gv, got.APIVersion, got.Kind)
		}
	}
}

func TestEveryKindIsListedInBothSerialisations(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.RuntimeConfig = map[string]bool{"api/all": true} })
	for _, d := range f.o.Defs {
		if !d.Stored() {
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
			trace.Proves(t, "API-026", "API-027")
			if got := f.must(200, "GET", path, ""); !strings.HasPrefix(got, `{"kind":"`+d.Kind+`List","apiVersion":"`+gv.String()+`","metadata":{"resourceVersion":"`) {
				t.Errorf("%s: got %.200s", path, got)
			}
			got := f.must(200, "GET", path, "", "Accept: application/vnd.kubernetes.protobuf")
			trace.Proves(t, "API-015")
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
}
