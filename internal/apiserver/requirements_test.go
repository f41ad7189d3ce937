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
		"plain":      ``,
	} {
		f.must(201, "POST", mapsPath, `{"metadata":{"name":"`+name+`","labels":{`+labels+`}}}`)
	}
	for selector, want := range map[string]string{
		"environment = production":                            "prod-back prod-front",
		"environment==production":                             "prod-back prod-front",
		"tier != frontend":                                    "plain prod-back",
		"environment=production,tier!=frontend":               "prod-back",
		"environment in (production, qa)":                     "prod-back prod-front qa-front",
		"tier notin (frontend, backend)":                      "plain",
		"partition":                                           "prod-front qa-front",
		"!partition":                                          "plain prod-back",
		"partition,environment notin (qa)":                    "prod-front",
		"environment in (production)":                         "prod-back prod-front",
		"tier notin (frontend)":                               "plain prod-back",
		"partition in (customerA, customerB),environment!=qa": "prod-front",
		"": "plain prod-back prod-front qa-front",
	} {
		if got := f.names("labelSelector=" + url.QueryEscape(selector)); got != want {
			t.Errorf("%q: got %q, want %q", selector, got, want)
		}
	}
	for query, want := range map[string]string{
		"labelSelector=environment%3Dproduction,tier%3Dfrontend":                      "prod-front",
		"labelSelector=environment+in+%28production%2Cqa%29%2Ctier+in+%28frontend%29": "prod-front qa-front",
	} {
		if got := f.names(query); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	if w := f.ask("GET", mapsPath+"?labelSelector=a%7C%7Cb", ""); w.Code != 400 {
		t.Errorf("logical or: got %d", w.Code)
	}
	for _, bad := range []string{`"a b":"c"`, `"":"c"`, `"-a":"c"`, `"a":"b c"`, `"a":"-b"`, `"UPPER.example.com/a":"b"`, `"` + strings.Repeat("x", 64) + `":"b"`, `"a":"` + strings.Repeat("x", 64) + `"`} {
		w := f.ask("POST", mapsPath, `{"metadata":{"name":"bad","labels":{`+bad+`}}}`)
		if w.Code != 422 || !strings.Contains(w.Body.String(), `"field":"metadata.labels"`) {
			t.Errorf("label %s: got %d %s", bad, w.Code, w.Body)
		}
	}
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"good","labels":{"example.com/a":"","b":"`+strings.Repeat("x", 63)+`"}}}`)
	trace.Proves(t, "LBL-005", "LBL-007", "LBL-008", "LBL-009", "LBL-010", "LBL-014", "LBL-015", "LBL-020", "LBL-023", "LBL-024", "LBL-025", "LBL-026",
		"LBL-027", "LBL-028", "LBL-030", "LBL-031", "LBL-032", "LBL-033", "LBL-034", "LBL-035", "LBL-036", "LBL-037", "LBL-038", "LBL-039", "LBL-040")
}

func TestFieldSelectors(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"a", "b"} {
		runningPod(t, f, name)
		f.must(201, "POST", mapsPath, `{"metadata":{"name":"`+name+`"}}`)
	}
	f.must(201, "POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"c"},"spec":{"containers":[{"name":"c","image":"i"}],"restartPolicy":"Never"}}`)
	pods := func(selector string) string {
		t.Helper()
		list := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", "/api/v1/pods?fieldSelector="+url.QueryEscape(selector), ""))
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return strings.Join(names, " ")
	}
	for selector, want := range map[string]string{
		"status.phase=Pending": "c", "status.phase==Running": "a b", "status.phase!=Running,spec.restartPolicy=Always": "",
		"status.phase!=Running,spec.restartPolicy=Never": "c", "metadata.name=b,metadata.namespace=default": "b", "metadata.namespace!=default": "", "": "a b c",
	} {
		if got := pods(selector); got != want {
			t.Errorf("%q: got %q, want %q", selector, got, want)
		}
	}
	if got := f.names("fieldSelector=metadata.name!%3Da"); got != "b" {
		t.Errorf("config maps but a: got %q", got)
	}
	for _, d := range f.o.Defs {
		if d.CreateOnly {
			continue
		}
		path := "/apis/" + d.Group + "/" + d.Version + "/" + d.Plural
		if d.Group == "" {
			path = "/api/v1/" + d.Plural
		}
		f.must(200, "GET", path+"?fieldSelector=metadata.name%3Dx,metadata.namespace!%3Dy", "")
	}
	trace.Proves(t, "FS-001", "FS-002", "FS-004", "FS-005", "FS-006", "FS-008", "FS-010", "FS-011")
}

func TestNamesAndUIDs(t *testing.T) {
	f := newFixture(t)
	seen := map[string]bool{}
	for range 3 {
		m := decoded[metav1.PartialObjectMetadata](t, f.must(201, "POST", mapsPath, cm))
		if len(m.UID) != 36 || seen[string(m.UID)] {
			t.Errorf("UID: got %q", m.UID)
		}
		seen[string(m.UID)] = true
		got := f.must(409, "POST", mapsPath, cm)
		if !strings.Contains(got, `"reason":"AlreadyExists"`) {
			t.Errorf("second of the name: got %s", got)
		}
		f.must(201, "POST", "/api/v1/namespaces/other/configmaps", cm) // another namespace
		f.must(200, "DELETE", "/api/v1/namespaces/other/configmaps/one", "")
		f.must(200, "DELETE", mapsPath+"/one", "")
	}
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"`+strings.Repeat("a", 253)+`"}}`)
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"a-1.b"}}`)
	for _, bad := range []string{"A", "a_b", "-a", "a-", "a/b", strings.Repeat("a", 254)} {
		if w := f.ask("POST", mapsPath, fmt.Sprintf(`{"metadata":{"name":%q}}`, bad)); w.Code != 422 {
			t.Errorf("name %q: got %d", bad, w.Code)
		}
	}
	if w := f.ask("POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"1a"},"spec":{"ports":[{"port":1}]}}`); w.Code != 422 {
		t.Errorf("service 1a: got %d", w.Code)
	}
	trace.Proves(t, "NAME-001", "NAME-003", "NAME-004", "NAME-005", "NAME-006", "NAME-007", "NAME-008", "NAME-009", "NAME-010", "NS-003")
}

const nginx = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"nginx-deployment"},"spec":{"selector":{"matchLabels":{"app":"nginx"}},
	"minReadySeconds":5,"template":{"metadata":{"labels":{"app":"nginx"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1.7.9","ports":[{"containerPort":80}]}]}}}}`

func TestTheServerFillsInDefaultsOnce(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/apps/v1/namespaces/default/deployments"
	body := f.must(201, "POST", path, nginx)
	d := decoded[appsv1.Deployment](t, body)
	c, spec := d.Spec.Template.Spec.Containers[0], d.Spec.Template.Spec
	for what, ok := range map[string]bool{
		"replicas": *d.Spec.Replicas == 1, "strategy": d.Spec.Strategy.Type == "RollingUpdate",
		"rollingUpdate":   d.Spec.Strategy.RollingUpdate.MaxSurge.String() == "25%" && d.Spec.Strategy.RollingUpdate.MaxUnavailable.String() == "25%",
		"imagePullPolicy": c.ImagePullPolicy == corev1.PullIfNotPresent, "protocol": c.Ports[0].Protocol == corev1.ProtocolTCP,
		"resources": strings.Contains(body, `"resources":{}`), "terminationMessagePath": c.TerminationMessagePath == "/dev/termination-log",
		"dnsPolicy": spec.DNSPolicy == corev1.DNSClusterFirst, "restartPolicy": spec.RestartPolicy == corev1.RestartPolicyAlways,
		"securityContext": strings.Contains(body, `"securityContext":{}`), "terminationGracePeriodSeconds": *spec.TerminationGracePeriodSeconds == 30,
		"given values": d.Spec.MinReadySeconds == 5 && c.Image == "nginx:1.7.9" && d.Spec.Selector.MatchLabels["app"] == "nginx",
	} {
		if !ok {
			t.Errorf("%s: got %s", what, body)
		}
	}
	one := path + "/nginx-deployment"
	// What was defaulted from another field stays when that field changes: both together are refused ...
	got := f.must(422, "PATCH", one, `{"spec":{"strategy":{"type":"Recreate"}}}`, strategic)
	if !strings.Contains(got, "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'") {
		t.Errorf("Recreate: got %s", got)
	}
	// ... unless it is cleared, and then it is defaulted again.
	f.must(200, "PATCH", one, `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`, strategic)
	d = decoded[appsv1.Deployment](t, f.must(200, "PATCH", one, `{"spec":{"strategy":null}}`, strategic))
	if d.Spec.Strategy.Type != "RollingUpdate" || d.Spec.Strategy.RollingUpdate == nil {
		t.Errorf("cleared strategy: got %+v", d.Spec.Strategy)
	}
	got = f.must(409, "PATCH", one, `{"metadata":{"resourceVersion":"1"},"spec":{"replicas":2}}`, merge)
	if !strings.Contains(got, `"reason":"Conflict"`) {
		t.Errorf("patch of an old version: got %s", got)
	}
	trace.Proves(t, "DEF-001", "DEF-002", "DEF-003", "DEF-004", "DEF-005", "DEF-006", "DEF-007", "DEF-008", "DEF-009", "DEF-010", "DEF-011", "DEF-012",
		"DEF-014", "DEF-015", "DEF-017", "CLR-002", "CRE-010", "UPD-K07")
}

func TestStrategicMergeGoesByKey(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/apps/v1/namespaces/default/deployments"
	f.must(201, "POST", path, nginx)
	one := path + "/nginx-deployment"
	containers := func(patch string) string {
		t.Helper()
		d := decoded[appsv1.Deployment](t, f.must(200, "PATCH", one, `{"spec":{"template":{"spec":{"containers":`+patch+`}}}}`, strategic))
		var all []string
		for _, c := range d.Spec.Template.Spec.Containers {
			all = append(all, fmt.Sprint(c.Name, ":", c.Image, ":", c.Args))
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	if got := containers(`[{"name":"b","image":"b:1","args":["run","fast"]},{"name":"c","image":"c:1"}]`); got != "b:b:1:[run fast] c:c:1:[] nginx:nginx:1.7.9:[]" {
		t.Errorf("added: got %s", got)
	}
	if got := containers(`[{"name":"b","image":"b:2"}]`); got != "b:b:2:[run fast] c:c:1:[] nginx:nginx:1.7.9:[]" {
		t.Errorf("changed one field: got %s", got)
	}
	if got := containers(`[{"name":"b","args":["stop"]}]`); got != "b:b:2:[stop] c:c:1:[] nginx:nginx:1.7.9:[]" {
		t.Errorf("a list without a key is replaced: got %s", got)
	}
	if got := containers(`[{"name":"c","$patch":"delete"}]`); got != "b:b:2:[stop] nginx:nginx:1.7.9:[]" {
		t.Errorf("deleted: got %s", got)
	}
	trace.Proves(t, "MRG-001", "LST-002", "LST-003", "LST-007", "LST-008")
}

func TestReplaceDropsWhatIsNotInTheFile(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", mapsPath, cm)
	f.must(200, "PATCH", mapsPath+"/one", `{"metadata":{"labels":{"by":"hand"}},"data":{"more":"x"}}`, merge)
	got := decoded[corev1.ConfigMap](t, f.must(200, "PUT", mapsPath+"/one", cm))
	if len(got.Data) != 1 || len(got.Labels) != 0 {
		t.Errorf("got %+v", got)
	}
	trace.Proves(t, "OM-014")
}

func TestStatusBelongsToTheSystem(t *testing.T) {
	f := newFixture(t)
	const path = "/apis/apps/v1/namespaces/default/deployments"
	d := decoded[appsv1.Deployment](t, f.must(201, "POST", path, strings.Replace(nginx, `"spec":{"selector"`, `"status":{"replicas":9},"spec":{"selector"`, 1)))
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
	trace.Proves(t, "OBJ-009")
}

func TestDiscoveryAndVersion(t *testing.T) {
	f := newFixture(t)
	v := decoded[version.Info](t, f.must(200, "GET", "/version", ""))
	for _, n := range []string{v.Major, v.Minor} {
		if n == "" || strings.Trim(n, "0123456789") != "" {
			t.Errorf("version: got %q", n)
		}
	}
	groups := decoded[metav1.APIGroupList](t, f.must(200, "GET", "/apis/", ""))
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
	trace.Proves(t, "C-109", "C-160", "API-026", "API-027", "NS-024")
}

// namer is admission that remembers the names it sees, and gives one if told so.
type namer struct {
	seen []string
	give string
}

func (n *namer) Mutate(_ context.Context, a *Attributes) error {
	obj := a.Object.(resource.Object)
	n.seen = append(n.seen, "mutate "+a.Name+"/"+obj.GetName())
	if n.give != "" {
		obj.SetName(n.give)
	}
	return nil
}

func (n *namer) Validate(_ context.Context, a *Attributes) error {
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
