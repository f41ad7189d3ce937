package apiserver

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/apiserver/write"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/trace"
)

const (
	merge     = "Content-Type: application/merge-patch+json"
	strategic = "Content-Type: application/strategic-merge-patch+json"
)

// names lists what a query of config maps in the default namespace finds.
func (f *fixture) names(query string) string {
	f.tb.Helper()
	w := f.ask("GET", mapsPath+"?"+query, "")
	if w.Code != 200 {
		f.tb.Fatalf("%s: %s", query, w.Body)
	}
	var found []string
	for part := range strings.SplitSeq(w.Body.String(), `{"metadata":{"name":"`) {
		if name, _, ok := strings.Cut(part, `"`); ok && !strings.HasPrefix(part, "{") {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

func TestLabelSelectors(t *testing.T) {
	f := newFixture(t)
	for name, labels := range map[string]string{
		"prod-front": `"environment":"production","tier":"frontend","partition":"customerA"`,
		"prod-back":  `"environment":"production","tier":"backend"`,
		"qa-front":   `"environment":"qa","tier":"frontend","partition":"customerB"`,
		"cached":     `"tier":"cache"`,
		"plain":      ``,
	} {
		f.must(201, "POST", mapsPath, `{"metadata":{"name":"`+name+`","labels":{`+labels+`}}}`)
	}
	for _, c := range []struct{ selector, want, proves string }{
		{"environment = production", "prod-back prod-front", "LBL-026"},
		{"environment==production", "prod-back prod-front", ""},
		{"environment=production,environment==production,tier!=frontend", "prod-back", "LBL-025"},
		{"tier != frontend", "cached plain prod-back", "LBL-027"},
		{"environment=production,tier!=frontend", "prod-back", "LBL-020 LBL-028"},
		{"environment in (production, qa)", "prod-back prod-front qa-front", "LBL-031"},
		{"tier notin (frontend, backend)", "cached plain", "LBL-032"},
		{"partition", "prod-front qa-front", "LBL-033"},
		{"!partition", "cached plain prod-back", "LBL-034"},
		{"partition,environment notin (qa)", "prod-front", "LBL-035"},
		{"partition,tier in (frontend),environment notin (qa)", "prod-front", "LBL-030"},
		{"partition in (customerA, customerB),environment!=qa", "prod-front", "LBL-037"},
		{"", "cached plain prod-back prod-front qa-front", ""},
	} {
		if c.proves != "" {
			trace.Proves(t, strings.Fields(c.proves)...)
		}
		if got := f.names("labelSelector=" + url.QueryEscape(c.selector)); got != c.want {
			t.Errorf("%q: got %q, want %q", c.selector, got, c.want)
		}
	}
	trace.Proves(t, "LBL-036")
	for equality, set := range map[string]string{"environment=production": "environment in (production)", "tier!=frontend": "tier notin (frontend)"} {
		if one, other := f.names("labelSelector="+url.QueryEscape(equality)), f.names("labelSelector="+url.QueryEscape(set)); one != other || one == "" {
			t.Errorf("got %q for %s, %q for %s, want the same", one, equality, other, set)
		}
	}
	for _, c := range []struct{ query, want, proves string }{
		{"labelSelector=environment%3Dproduction,tier%3Dfrontend", "prod-front", "LBL-024 LBL-039"},
		{"labelSelector=environment+in+%28production%2Cqa%29%2Ctier+in+%28frontend%29", "prod-front qa-front", "LBL-040"},
	} {
		if c.proves != "" {
			trace.Proves(t, strings.Fields(c.proves)...)
		}
		if got := f.names(c.query); got != c.want {
			t.Errorf("%s: got %q, want %q", c.query, got, c.want)
		}
	}
	const mixed = "labelSelector=environment+in+(production,qa),tier!%3Dfrontend"
	listed, watched := f.names(mixed), f.ask("GET", mapsPath+"?watch=1&timeoutSeconds=1&"+mixed, "").Body.String()
	trace.Proves(t, "LBL-005", "LBL-038")
	if listed != "prod-back" || strings.Count(watched, `"type":"ADDED"`) != 1 || !strings.Contains(watched, `"name":"prod-back"`) {
		t.Errorf("got the list %q, the events %s, want prod-back alone", listed, watched)
	}
	trace.Proves(t, "LBL-023")
	for _, or := range []string{"a%7C%7Cb", "a%3Db%7C%7Cc%3Dd", "a+in+(b)%7C%7Cc+in+(d)"} {
		if w := f.ask("GET", mapsPath+"?labelSelector="+or, ""); w.Code != 400 {
			t.Errorf("logical or: %s: got %d", or, w.Code)
		}
	}
}

// A keyRule is a rule for the keys of labels and annotations: some that keep to it and some that do not.
type keyRule struct{ good, bad []string }

var (
	keySegments = keyRule{[]string{"a", "example.com/a"}, []string{"/a", "a/", "a/b/c"}}
	keyLength   = keyRule{[]string{strings.Repeat("x", 63), "example.com/" + strings.Repeat("x", 63)}, []string{"", strings.Repeat("x", 64), "example.com/" + strings.Repeat("x", 64)}}
	keyLetters  = keyRule{[]string{"a", "0a-b_c.D9"}, []string{"a b", "-a", "a-", "_a", "a.", "a:b", "ä"}}
	keyPrefix   = keyRule{[]string{"a/a", "a-1.b/a", strings.Repeat("x", 253) + "/a"}, []string{"a_b/a", "-a/a", "a../a", strings.Repeat("x", 254) + "/a"}}
)

// checkKeys creates objects whose keys of a map in the metadata keep to a rule, and others.
func checkKeys(t *testing.T, f *fixture, rule keyRule, field string) {
	t.Helper()
	for _, key := range rule.good {
		f.must(201, "POST", mapsPath, fmt.Sprintf(`{"metadata":{"generateName":"good-",%q:{%q:"x"}}}`, field, key))
	}
	for _, key := range rule.bad {
		w := f.ask("POST", mapsPath, fmt.Sprintf(`{"metadata":{"name":"bad",%q:{%q:"x"}}}`, field, key))
		if w.Code != 422 || !strings.Contains(w.Body.String(), `"field":"metadata.`+field+`"`) {
			t.Errorf("key %q: got %d %s", key, w.Code, w.Body)
		}
	}
}

func TestLabelsHaveAForm(t *testing.T) {
	f := newFixture(t)
	trace.Proves(t, "LBL-007")
	checkKeys(t, f, keySegments, "labels")
	trace.Proves(t, "LBL-008")
	checkKeys(t, f, keyLength, "labels")
	trace.Proves(t, "LBL-009")
	checkKeys(t, f, keyLetters, "labels")
	trace.Proves(t, "LBL-010")
	checkKeys(t, f, keyPrefix, "labels")
	checkKeys(t, f, keyRule{nil, []string{"UPPER.example.com/a"}}, "labels")
	trace.Proves(t, "LBL-014")
	for value, code := range map[string]int{
		"": 201, "0": 201, "0a-b_c.D9": 201, strings.Repeat("x", 63): 201,
		"b c": 422, "-b": 422, "b-": 422, "b/c": 422, strings.Repeat("x", 64): 422,
	} {
		if w := f.ask("POST", mapsPath, fmt.Sprintf(`{"metadata":{"generateName":"l-","labels":{"a":%q}}}`, value)); w.Code != code {
			t.Errorf("value %q: got %d %s, want %d", value, w.Code, w.Body, code)
		}
	}
	trace.Proves(t, "LBL-015")
	for _, labels := range []string{`{"a b":"c"}`, `{"a":"b c"}`} {
		w := f.ask("POST", mapsPath, `{"metadata":{"name":"bad","labels":`+labels+`}}`)
		if got := w.Body.String(); w.Code != 422 || !strings.Contains(got, `"reason":"Invalid"`) || !strings.Contains(got, `"field":"metadata.labels"`) {
			t.Errorf("labels %s: got %d %s", labels, w.Code, got)
		}
	}
}

func TestFieldSelectors(t *testing.T) {
	f := newFixture(t, everyVersion)
	for _, name := range []string{"a", "b"} {
		runningPod(t, f, name)
		f.must(201, "POST", mapsPath, `{"metadata":{"name":"`+name+`"}}`)
	}
	for name, policy := range map[string]string{"c": "Never", "d": "Always"} {
		f.must(201, "POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"`+name+`"},"spec":{"containers":[{"name":"c","image":"i"}],"restartPolicy":"`+policy+`"}}`)
	}
	pods := func(query string) string {
		t.Helper()
		list := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", "/api/v1/pods?"+query, ""))
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return strings.Join(names, " ")
	}
	for _, c := range []struct{ selector, want, proves string }{
		{"status.phase=Pending", "c d", ""},
		{"status.phase==Running,spec.restartPolicy=Always,metadata.name!=a", "b", "FS-008"},
		{"status.phase!=Running,spec.restartPolicy=Always", "d", "FS-011"},
		{"status.phase!=Running,spec.restartPolicy=Never", "c", "FS-001"},
		{"metadata.name=b,metadata.namespace=default,status.phase=Running", "b", "FS-010"},
		{"metadata.name=c,metadata.namespace!=other,status.phase=Pending", "c", "FS-002"},
		{"metadata.namespace!=default", "", ""},
	} {
		if c.proves != "" {
			trace.Proves(t, strings.Fields(c.proves)...)
		}
		if got := pods("fieldSelector=" + url.QueryEscape(c.selector)); got != c.want {
			t.Errorf("%q: got %q, want %q", c.selector, got, c.want)
		}
	}
	trace.Proves(t, "FS-004")
	if none, empty := pods(""), pods("fieldSelector="); none != "a b c d" || empty != none {
		t.Errorf("without a selector: got %q, with an empty one %q", none, empty)
	}
	if got := f.names("fieldSelector=metadata.name!%3Da"); got != "b" {
		t.Errorf("config maps but a: got %q", got)
	}
	trace.Proves(t, "FS-005")
	if w := f.ask("GET", mapsPath+"?fieldSelector=status.phase%3DPending", ""); w.Code != 400 || !strings.Contains(w.Body.String(), `is not a known field selector`) {
		t.Errorf("config maps by what pods have: got %d %s", w.Code, w.Body)
	}
	trace.Proves(t, "FS-006")
	for _, d := range f.o.Defs {
		if !d.Stored() {
			continue
		}
		path := "/apis/" + d.Group + "/" + d.Version + "/" + d.Plural
		if d.Group == "" {
			path = "/api/v1/" + d.Plural
		}
		if w := f.ask("GET", path+"?fieldSelector=metadata.name%3Dx,metadata.namespace!%3Dy", ""); w.Code != 200 {
			t.Errorf("%s by name and namespace: got %d %s", path, w.Code, w.Body)
		}
	}
}

func TestNamesAndUIDs(t *testing.T) {
	f := newFixture(t)
	seen := map[string]bool{}
	for range 3 {
		w := f.ask("POST", mapsPath, cm)
		m := decoded[metav1.PartialObjectMetadata](t, w.Body.String())
		trace.Proves(t, "NAME-005", "NAME-009", "NAME-010")
		if w.Code != 201 || len(m.UID) != 36 || seen[string(m.UID)] {
			t.Errorf("created: got %d, UID %q", w.Code, m.UID)
		}
		seen[string(m.UID)] = true
		trace.Proves(t, "NAME-001", "NAME-003")
		if got := decoded[metav1.PartialObjectMetadata](t, f.must(200, "GET", mapsPath+"/one", "")); got.Name != "one" || got.UID != m.UID {
			t.Errorf("by its name: got %s %s, want one %s", got.Name, got.UID, m.UID)
		}
		got := f.must(409, "POST", mapsPath, cm)
		trace.Proves(t, "NAME-004")
		if !strings.Contains(got, `"reason":"AlreadyExists"`) {
			t.Errorf("second of the name: got %s", got)
		}
		elsewhere := decoded[metav1.PartialObjectMetadata](t, f.must(201, "POST", "/api/v1/namespaces/other/configmaps", cm))
		trace.Proves(t, "NS-003")
		if elsewhere.Name != "one" || elsewhere.Namespace != "other" || elsewhere.UID == m.UID {
			t.Errorf("in another namespace: got %+v", elsewhere)
		}
		f.must(200, "DELETE", "/api/v1/namespaces/other/configmaps/one", "")
		f.must(200, "DELETE", mapsPath+"/one", "")
	}
	named := func(path, name, spec string) int {
		return f.ask("POST", path, fmt.Sprintf(`{"metadata":{"name":%q}%s}`, name, spec)).Code
	}
	trace.Proves(t, "NAME-006")
	if long, longer := named(mapsPath, strings.Repeat("a", 253), ""), named(mapsPath, strings.Repeat("a", 254), ""); long != 201 || longer != 422 {
		t.Errorf("names of 253 and 254 letters: got %d and %d", long, longer)
	}
	trace.Proves(t, "NAME-007")
	for name, code := range map[string]int{"a-1.b": 201, "0a": 201, "A": 422, "a_b": 422, "-a": 422, "a-": 422, "a/b": 422, "a b": 422} {
		if got := named(mapsPath, name, ""); got != code {
			t.Errorf("name %q: got %d, want %d", name, got, code)
		}
	}
	trace.Proves(t, "NAME-008")
	const servicesAt, spec = "/api/v1/namespaces/default/services", `,"spec":{"ports":[{"port":1}]}`
	if plain, service := named(mapsPath, "1.a", ""), named(servicesAt, "1.a", spec); plain != 201 || service != 422 {
		t.Errorf("the name 1.a: got %d for a config map, %d for a service", plain, service)
	}
	if got := named(servicesAt, "1a", spec); got != 201 {
		t.Errorf("the name 1a: got %d for a service", got)
	}
}

const nginx = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"nginx-deployment"},"spec":{"selector":{"matchLabels":{"app":"nginx"}},
	"minReadySeconds":5,"template":{"metadata":{"labels":{"app":"nginx"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1.7.9","ports":[{"containerPort":80}]}]}}}}`

func TestTheServerFillsInDefaultsOnce(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/apps/v1/namespaces/default/deployments"
	body := f.must(201, "POST", path, nginx)
	d := decoded[appsv1.Deployment](t, body)
	c, spec := d.Spec.Template.Spec.Containers[0], d.Spec.Template.Spec
	for _, field := range []struct {
		name, proves string
		ok           bool
	}{
		{"replicas", "DEF-001 DEF-002", *d.Spec.Replicas == 1},
		{"strategy", "DEF-003", d.Spec.Strategy.Type == "RollingUpdate"},
		{"rollingUpdate", "DEF-004", d.Spec.Strategy.RollingUpdate.MaxSurge.String() == "25%" && d.Spec.Strategy.RollingUpdate.MaxUnavailable.String() == "25%"},
		{"imagePullPolicy", "DEF-005", c.ImagePullPolicy == corev1.PullIfNotPresent},
		{"protocol", "DEF-006", c.Ports[0].Protocol == corev1.ProtocolTCP},
		{"resources", "DEF-007", strings.Contains(body, `"resources":{}`)},
		{"terminationMessagePath", "DEF-008", c.TerminationMessagePath == "/dev/termination-log"},
		{"dnsPolicy", "DEF-009", spec.DNSPolicy == corev1.DNSClusterFirst},
		{"restartPolicy", "DEF-010", spec.RestartPolicy == corev1.RestartPolicyAlways},
		{"securityContext", "DEF-011", strings.Contains(body, `"securityContext":{}`)},
		{"terminationGracePeriodSeconds", "DEF-012", *spec.TerminationGracePeriodSeconds == 30},
		{"given values", "CRE-010", d.Spec.MinReadySeconds == 5 && c.Image == "nginx:1.7.9" && c.Ports[0].ContainerPort == 80 &&
			d.Spec.Selector.MatchLabels["app"] == "nginx" && d.Spec.Template.Labels["app"] == "nginx"},
	} {
		trace.Proves(t, strings.Fields(field.proves)...)
		if !field.ok {
			t.Errorf("%s: got %s", field.name, body)
		}
	}
	one := path + "/nginx-deployment"
	// What was defaulted from another field stays when that field changes, unless it is cleared, and then it is defaulted again.
	policy := func(image string) string {
		t.Helper()
		patch := `{"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":` + image + `}]}}}}`
		return string(decoded[appsv1.Deployment](t, f.must(200, "PATCH", one, patch, strategic)).Spec.Template.Spec.Containers[0].ImagePullPolicy)
	}
	kept, cleared := policy(`"nginx:latest"`), policy(`"nginx:latest","imagePullPolicy":null`)
	trace.Proves(t, "DEF-014", "DEF-015")
	if kept != "IfNotPresent" || cleared != "Always" {
		t.Errorf("policy for another image: got %s, cleared: %s", kept, cleared)
	}
	// Of a strategy both together are refused ...
	got := f.must(422, "PATCH", one, `{"spec":{"strategy":{"type":"Recreate"}}}`, strategic)
	trace.Proves(t, "DEF-017")
	if !strings.Contains(got, "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'") {
		t.Errorf("Recreate: got %s", got)
	}
	// ... unless the one is cleared.
	f.must(200, "PATCH", one, `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`, strategic)
	d = decoded[appsv1.Deployment](t, f.must(200, "PATCH", one, `{"spec":{"strategy":null}}`, strategic))
	trace.Proves(t, "CLR-002")
	if d.Spec.Strategy.Type != "RollingUpdate" || d.Spec.Strategy.RollingUpdate == nil {
		t.Errorf("cleared strategy: got %+v", d.Spec.Strategy)
	}
	got = f.must(409, "PATCH", one, `{"metadata":{"resourceVersion":"1"},"spec":{"replicas":2}}`, merge)
	trace.Proves(t, "UPD-K07")
	if !strings.Contains(got, `"reason":"Conflict"`) {
		t.Errorf("patch of an old version: got %s", got)
	}
}

func TestStrategicMergeGoesByKey(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/apps/v1/namespaces/default/deployments"
	f.must(201, "POST", path, nginx)
	one := path + "/nginx-deployment"
	ports := ""
	containers := func(patch string) string {
		t.Helper()
		d := decoded[appsv1.Deployment](t, f.must(200, "PATCH", one, `{"spec":{"template":{"spec":{"containers":`+patch+`}}}}`, strategic))
		var all []string
		for _, c := range d.Spec.Template.Spec.Containers {
			all = append(all, fmt.Sprint(c.Name, ":", c.Image, ":", c.Args))
			if c.Name == "nginx" {
				ports = fmt.Sprint(c.Ports)
			}
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	if got := containers(`[{"name":"b","image":"b:1","args":["run","fast"]},{"name":"c","image":"c:1"}]`); got != "b:b:1:[run fast] c:c:1:[] nginx:nginx:1.7.9:[]" {
		t.Errorf("added: got %s", got)
	}
	trace.Proves(t, "MRG-001", "LST-008")
	if got := containers(`[{"name":"b","image":"b:2"}]`); got != "b:b:2:[run fast] c:c:1:[] nginx:nginx:1.7.9:[]" {
		t.Errorf("changed one field: got %s", got)
	}
	trace.Proves(t, "LST-002", "LST-003")
	if got := containers(`[{"name":"b","args":["stop"]}]`); got != "b:b:2:[stop] c:c:1:[] nginx:nginx:1.7.9:[]" {
		t.Errorf("a list without a key is replaced: got %s", got)
	}
	if got := containers(`[{"name":"c","$patch":"delete"}]`); got != "b:b:2:[stop] nginx:nginx:1.7.9:[]" {
		t.Errorf("deleted: got %s", got)
	}
	containers(`[{"name":"nginx","ports":[{"containerPort":80,"name":"http"},{"containerPort":443}]}]`)
	trace.Proves(t, "LST-007")
	if ports != "[{http 0 80 TCP } { 0 443 TCP }]" {
		t.Errorf("ports go by their number as containers go by their name: got %s", ports)
	}
}

func TestReplaceDropsWhatIsNotInTheFile(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", mapsPath, cm)
	f.must(200, "PATCH", mapsPath+"/one", `{"metadata":{"labels":{"by":"hand"}},"data":{"more":"x"}}`, merge)
	got := decoded[corev1.ConfigMap](t, f.must(200, "PUT", mapsPath+"/one", cm))
	trace.Proves(t, "OM-014")
	if len(got.Data) != 1 || len(got.Labels) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestStatusBelongsToTheSystem(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/apps/v1/namespaces/default/deployments"
	d := decoded[appsv1.Deployment](t, f.must(201, "POST", path, strings.Replace(nginx, `"spec":{"selector"`, `"status":{"replicas":9},"spec":{"selector"`, 1)))
	trace.Proves(t, "OBJ-009")
	if d.Status.Replicas != 0 {
		t.Errorf("create took the status: %+v", d.Status)
	}
	d = decoded[appsv1.Deployment](t, f.must(200, "PATCH", path+"/nginx-deployment", `{"status":{"replicas":9}}`, merge))
	if d.Status.Replicas != 0 {
		t.Errorf("patch took the status: %+v", d.Status)
	}
	d = decoded[appsv1.Deployment](t, f.must(200, "PATCH", path+"/nginx-deployment/status", `{"spec":{"replicas":7},"status":{"replicas":9}}`, merge))
	if d.Status.Replicas != 9 || *d.Spec.Replicas != 1 || d.Generation != 1 {
		t.Errorf("patch of status: got %+v", d)
	}
}

func TestDiscoveryAndVersion(t *testing.T) {
	f := newFixture(t)
	v := decoded[version.Info](t, f.must(200, "GET", "/version", ""))
	trace.Proves(t, "C-160")
	for _, n := range []string{v.Major, v.Minor} {
		if n == "" || strings.Trim(n, "0123456789") != "" {
			t.Errorf("version: got %q", n)
		}
	}
	groups := decoded[metav1.APIGroupList](t, f.must(200, "GET", "/apis/", ""))
	trace.Proves(t, "C-109")
	if len(groups.Groups) == 0 {
		t.Error("no groups")
	}
	for _, g := range groups.Groups {
		one := decoded[metav1.APIGroup](t, f.must(200, "GET", "/apis/"+g.Name+"/", ""))
		if !slices.Contains(one.Versions, one.PreferredVersion) || len(one.Versions) == 0 {
			t.Errorf("group %s: %+v", g.Name, one)
		}
		for _, v := range one.Versions {
			list := decoded[metav1.APIResourceList](t, f.must(200, "GET", "/apis/"+v.GroupVersion, ""))
			if list.GroupVersion != v.GroupVersion || len(list.APIResources) == 0 {
				t.Errorf("%s: %+v", v.GroupVersion, list)
			}
		}
	}
	for _, accept := range []string{"v2", "v2beta1"} {
		header := "Accept: application/json;g=apidiscovery.k8s.io;v=" + accept + ";as=APIGroupDiscoveryList,application/json"
		w := f.ask("GET", "/apis", "", header)
		if w.Code != 200 || w.Header().Get("Content-Type") != "application/json;g=apidiscovery.k8s.io;v="+accept+";as=APIGroupDiscoveryList" ||
			!strings.HasPrefix(w.Body.String(), `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/`+accept+`"`) {
			t.Errorf("aggregated %s: %d %v %.100s", accept, w.Code, w.Header(), w.Body)
		}
		if again := f.ask("GET", "/apis", "", header, "If-None-Match: "+w.Header().Get("ETag")); again.Code != 304 || again.Body.Len() > 0 {
			t.Errorf("with its ETag: got %d", again.Code)
		}
	}
	core := f.must(200, "GET", "/api/v1", "")
	for _, want := range []string{
		`{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"shortNames":["po"],"categories":["all"],"storageVersionHash":"xPOwRZ+Yhw8="}`,
		`{"name":"pods/eviction","singularName":"","namespaced":true,"group":"policy","version":"v1","kind":"Eviction","verbs":["create"]}`,
		`{"name":"namespaces","singularName":"namespace","namespaced":false`,
	} {
		if !strings.Contains(core, want) {
			t.Errorf("/api/v1 has no %s:\n%s", want, core)
		}
	}
}

// namer is admission that remembers the names it sees, and gives one if told so.
type namer struct {
	write.NoAdmission
	seen []string
	give string
}

func (n *namer) Mutate(_ context.Context, a *admission.Attributes) error {
	obj := a.Object.(resource.Object)
	n.seen = append(n.seen, "mutate "+a.Name+"/"+obj.GetName())
	if n.give != "" {
		obj.SetName(n.give)
	}
	return nil
}

func (n *namer) Validate(_ context.Context, a *admission.Attributes) error {
	n.seen = append(n.seen, "validate "+a.Name+"/"+a.Object.(resource.Object).GetName())
	return nil
}

func TestNamesAreGeneratedAfterMutatingAdmission(t *testing.T) {
	n := &namer{}
	f := newFixture(t, func(o *Options) { o.Admission = n })
	const body = `{"metadata":{"generateName":"a-"}}`
	made := decoded[metav1.PartialObjectMetadata](t, f.must(201, "POST", mapsPath, body))
	if len(made.Name) != len("a-")+5 || fmt.Sprint(n.seen) != fmt.Sprintf("[mutate / validate %s/%[1]s]", made.Name) {
		t.Errorf("got the name %q; admission saw %q", made.Name, n.seen)
	}
	n.give = "given"
	if got := decoded[metav1.PartialObjectMetadata](t, f.must(201, "POST", mapsPath, body)); got.Name != "given" {
		t.Errorf("got %q, want the name that admission gave", got.Name)
	}
	f.must(200, "GET", mapsPath+"/given", "")
	f.must(409, "POST", mapsPath, body)
	f.must(409, "POST", mapsPath, `{"metadata":{"name":"other"}}`)
	n.give = "another"
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"given"}}`)
}

func TestWhoNamesAUIDMeansNoNewObject(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
	const lease = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l","uid":"gone"}}`
	for _, c := range []struct{ name, method, query, header, want string }{
		{"update", "PUT", "", "", `Precondition failed: UID in precondition: gone, UID in object meta: `},
		{"apply", "PATCH", "?fieldManager=m", applyPatch, `uid mismatch: the provided object specified uid gone, and no existing object was found`},
	} {
		headers := []string{}
		if c.header != "" {
			headers = append(headers, c.header)
		}
		if got := f.must(409, c.method, path+c.query, lease, headers...); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	f.must(404, "GET", path, "")
	f.must(201, "POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", lease)
}
