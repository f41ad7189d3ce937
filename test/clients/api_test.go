package clients

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kemudi/kemudi/internal/trace"
)

// answer is an HTTP answer.
type answer struct {
	code   int
	header http.Header
	body   string
}

// ask sends a request with the administrator's rights. headers are "Name: value".
func ask(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, theServer.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := theServer.http(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(data)}
}

// Not in parallel with the tests that define kinds, which the document has.
func TestOpenAPIIsServedAsClientsAskForIt(t *testing.T) {
	plain := ask(t, "GET", "/openapi/v2", "", "Accept: */*")
	trace.Proves(t, "API-009", "API-011")
	if plain.code != 200 || plain.header.Get("Content-Type") != "application/json" {
		t.Errorf("Accept */*: got %d, %s; want 200, application/json", plain.code, plain.header.Get("Content-Type"))
	}
	trace.Proves(t, "API-010")
	if got := ask(t, "GET", "/openapi/v2", "", "Accept: application/json"); got.body != plain.body {
		t.Error("application/json gives another document than */*")
	}
	trace.Proves(t, "API-010", "CRE-K05/openapi-v2")
	for _, accept := range []string{"application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"} {
		if got := ask(t, "GET", "/openapi/v2", "", "Accept: "+accept); got.code != 200 || !strings.Contains(got.header.Get("Content-Type"), "protobuf") || strings.HasPrefix(got.body, "{") {
			t.Errorf("Accept %s: got %d, %s", accept, got.code, got.header.Get("Content-Type"))
		}
	}
	zipped := ask(t, "GET", "/openapi/v2", "", "Accept: */*", "Accept-Encoding: gzip")
	trace.Proves(t, "API-012")
	if zipped.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("Accept-Encoding gzip: got Content-Encoding %q", zipped.header.Get("Content-Encoding"))
	}
	r, err := gzip.NewReader(strings.NewReader(zipped.body))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(r); err != nil || !bytes.Equal(data, []byte(plain.body)) {
		t.Errorf("the zipped document is another (%v)", err)
	}
	trace.Proves(t, "API-012")
	if got := ask(t, "GET", "/openapi/v2", "", "Accept: */*", "Accept-Encoding: br, deflate, zstd"); got.header.Get("Content-Encoding") != "" || got.body != plain.body {
		t.Errorf("other encodings: got Content-Encoding %q", got.header.Get("Content-Encoding"))
	}
	trace.Proves(t, "API-013", "API-014")
	for _, old := range []string{"/swagger.json", "/swagger-2.0.0.json", "/swagger-2.0.0.pb-v1", "/swagger-2.0.0.pb-v1.gz", "/swaggerapi"} {
		if got := ask(t, "GET", old, ""); got.code != 404 {
			t.Errorf("%s: got %d, want 404", old, got.code)
		}
	}
}

// definitions are the objects that an OpenAPI document describes.
type definitions map[string]struct {
	Properties map[string]map[string]any
}

// openAPIDefinitions reads those of version 2, and of version 3 those of the groups named.
func openAPIDefinitions(t *testing.T, groups ...string) (v2, v3 definitions) {
	t.Helper()
	var doc struct {
		Swagger     string
		Definitions definitions
	}
	got := ask(t, "GET", "/openapi/v2", "", "Accept: application/json")
	trace.Proves(t, "API-008")
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil || doc.Swagger != "2.0" {
		t.Fatalf("got swagger %q, %v", doc.Swagger, err)
	}
	v3 = definitions{}
	for _, group := range groups {
		var doc struct{ Components struct{ Schemas definitions } }
		got := ask(t, "GET", "/openapi/v3/"+group, "", "Accept: application/json")
		if err := json.Unmarshal([]byte(got.body), &doc); err != nil {
			t.Fatalf("%s: %v", group, err)
		}
		maps.Copy(v3, doc.Components.Schemas)
	}
	return doc.Definitions, v3
}

func TestOpenAPISaysHowListsAreMerged(t *testing.T) {
	t.Parallel()
	v2, v3 := openAPIDefinitions(t, "api/v1", "apis/apps/v1", "apis/networking.k8s.io/v1")
	for _, c := range []struct{ proves, field, strategy, key string }{
		{"LST-K07/keys", "core.v1.PodSpec.containers", "merge", "name"},
		{"LST-K07/keys", "core.v1.PodSpec.initContainers", "merge", "name"},
		{"LST-K07/keys", "core.v1.PodSpec.ephemeralContainers", "merge", "name"},
		{"LST-K07/keys", "core.v1.PodSpec.imagePullSecrets", "merge", "name"},
		{"LST-K07/keys", "core.v1.PodSpec.volumes", "merge,retainKeys", "name"},
		{"LST-K07/keys", "core.v1.PodSpec.topologySpreadConstraints", "merge", "topologyKey"},
		{"LST-K07/keys", "core.v1.PodSpec.schedulingGates", "merge", "name"},
		{"LST-K07/keys", "core.v1.PodSpec.hostAliases", "merge", "ip"},
		{"LST-K07/whole", "core.v1.PodSpec.tolerations", "<nil>", "<nil>"},
		{"LST-K07/keys", "core.v1.PodStatus.podIPs", "merge", "ip"},
		{"LST-K07/keys", "core.v1.PodStatus.conditions", "merge", "type"},
		{"LST-K07/keys", "core.v1.Container.env", "merge", "name"},
		{"LST-K07/keys", "core.v1.Container.ports", "merge", "containerPort"},
		{"LST-K07/keys", "core.v1.Container.volumeMounts", "merge", "mountPath"},
		{"LST-K07/keys", "core.v1.Container.volumeDevices", "merge", "devicePath"},
		{"LST-K07/whole", "core.v1.Container.args", "<nil>", "<nil>"},
		{"LST-K07/whole", "core.v1.Container.command", "<nil>", "<nil>"},
		{"LST-K07/whole", "core.v1.Container.envFrom", "<nil>", "<nil>"},
		{"LST-K07/keys", "core.v1.ServiceSpec.ports", "merge", "port"},
		{"LST-K07/keys", "core.v1.ServiceAccount.secrets", "merge", "name"},
		{"LST-K07/keys", "core.v1.NodeStatus.addresses", "merge", "type"},
		{"LST-K07/whole", "core.v1.PersistentVolumeClaimSpec.accessModes", "<nil>", "<nil>"},
		{"LST-K07/ingress", "networking.v1.IngressSpec.rules", "<nil>", "<nil>"},
		{"LST-K08", "apps.v1.DeploymentSpec.strategy", "retainKeys", "<nil>"},
		{"LST-K08", "apps.v1.DaemonSetSpec.updateStrategy", "<nil>", "<nil>"},
		{"LST-K08", "apps.v1.StatefulSetSpec.updateStrategy", "<nil>", "<nil>"},
		{"LST-K07/keys", "apps.v1.DeploymentStatus.conditions", "merge", "type"},
	} {
		i := strings.LastIndex(c.field, ".")
		for version, doc := range map[string]definitions{"v2": v2, "v3": v3} {
			got := doc["io.k8s.api."+c.field[:i]].Properties[c.field[i+1:]]
			if got == nil {
				t.Errorf("%s: %s is not described", version, c.field)
			}
			trace.Proves(t, c.proves, "MRG-K05/published")
			if s, k := fmt.Sprint(got["x-kubernetes-patch-strategy"]), fmt.Sprint(got["x-kubernetes-patch-merge-key"]); s != c.strategy || k != c.key {
				t.Errorf("%s: %s: got strategy %s, key %s; want %s, %s", version, c.field, s, k, c.strategy, c.key)
			}
		}
	}
	trace.Proves(t, "LST-K07/keys")
	if got := v2["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"].Properties["ownerReferences"]["x-kubernetes-patch-merge-key"]; got != "uid" {
		t.Errorf("ownerReferences: got merge key %v, want uid", got)
	}
	for name, d := range v2 {
		conditions, ok := d.Properties["conditions"]
		trace.Proves(t, "LST-K07/keys")
		if ok && strings.HasPrefix(name, "io.k8s.api.core.v1.") && conditions["x-kubernetes-patch-merge-key"] != "type" {
			t.Errorf("%s.conditions: got merge key %v, want type", name, conditions["x-kubernetes-patch-merge-key"])
		}
	}
}

// Not in parallel with the tests whose groups come and go.
func TestEveryGroupNamesItsPreferredVersion(t *testing.T) {
	groups, err := theServer.client.ServerGroups()
	if err != nil || len(groups.Groups) < 10 {
		t.Fatalf("got %v, %v", groups, err)
	}
	for _, g := range groups.Groups {
		if g.Name == "" {
			continue
		}
		got := ask(t, "GET", "/apis/"+g.Name+"/", "")
		var doc metav1.APIGroup
		if err := json.Unmarshal([]byte(got.body), &doc); err != nil || got.code != 200 || len(doc.Versions) == 0 {
			t.Errorf("/apis/%s/: got %d %s, %v", g.Name, got.code, got.body, err)
			continue
		}
		found := false
		for _, v := range doc.Versions {
			found = found || v == doc.PreferredVersion
			list, err := theServer.client.ServerResourcesForGroupVersion(v.GroupVersion)
			if err != nil || list.GroupVersion != v.GroupVersion || len(list.APIResources) == 0 {
				t.Errorf("%s: got %v, %v", v.GroupVersion, list, err)
			}
		}
		trace.Proves(t, "C-109")
		if !found {
			t.Errorf("%s prefers %v, which it does not have", g.Name, doc.PreferredVersion)
		}
	}
	for _, c := range []struct{ proves, path, want string }{
		{"API-027", "/api/v1/pods", `{"kind":"PodList","apiVersion":"v1",`},
		{"API-028", "/apis/batch/v1/jobs", `{"kind":"JobList","apiVersion":"batch/v1",`},
	} {
		trace.Proves(t, "API-026", c.proves)
		if got := ask(t, "GET", c.path+"?limit=1", ""); got.code != 200 || !strings.HasPrefix(got.body, c.want) {
			t.Errorf("%s: got %d %s, want %s", c.path, got.code, got.body, c.want)
		}
	}
	v, err := theServer.client.ServerVersion()
	trace.Proves(t, "C-160")
	if digits := regexp.MustCompile(`^[0-9]+$`); err != nil || !digits.MatchString(v.Major) || !digits.MatchString(v.Minor) {
		t.Errorf("version: got %v, %v", v, err)
	}
}

func TestStrictFieldValidationNamesEveryField(t *testing.T) {
	t.Parallel()
	theServer.namespace(t, "strict")
	deployment := func(extra, spec string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"` + extra + `},"spec":{` + spec + `"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"c"}]}}}}`
	}
	for _, c := range []struct{ proves, name, body, want string }{
		{"C-114", "unknown and duplicate", deployment("", `"unknownField":"x","replicas":1,"replicas":2,`), `strict decoding error: unknown field "spec.unknownField", duplicate field "spec.replicas"`},
		{"C-116", "unknown metadata", deployment(`,"unknownMeta":"x"`, ""), `strict decoding error: unknown field "metadata.unknownMeta"`},
	} {
		got := ask(t, "POST", "/apis/apps/v1/namespaces/strict/deployments?fieldValidation=Strict", c.body, "Content-Type: application/json")
		trace.Proves(t, c.proves)
		if got.code != 400 || !strings.Contains(got.body, strings.ReplaceAll(c.want, `"`, `\"`)) {
			t.Errorf("%s: got %d %s, want %s", c.name, got.code, got.body, c.want)
		}
	}
	got := ask(t, "POST", "/apis/apps/v1/namespaces/strict/deployments", deployment("", `"unknownField":"x","replicas":1,"replicas":2,`), "Content-Type: application/json")
	trace.Proves(t, "OBJ-014")
	if want := `[299 - "unknown field \"spec.unknownField\"" 299 - "duplicate field \"spec.replicas\""]`; got.code != 201 || fmt.Sprint(got.header.Values("Warning")) != want {
		t.Errorf("without a choice: got %d, warnings %v; want 201, %s", got.code, got.header.Values("Warning"), want)
	}
}

func TestWhatHasNoTableIsNotAcceptable(t *testing.T) {
	t.Parallel()
	got := ask(t, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`,
		"Content-Type: application/json", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	trace.Proves(t, "C-149")
	if got.code != 406 {
		t.Errorf("got %d %s, want 406", got.code, got.body)
	}
}

func TestObjectsAreTheSameInJSONAndProtobuf(t *testing.T) {
	t.Parallel()
	theServer.namespace(t, "protobuf")
	config := rest.CopyConfig(theServer.config)
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"
	proto, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	made, err := proto.CoreV1().Pods("protobuf").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{NodeSelector: map[string]string{"never": "here"}, Containers: []corev1.Container{{Name: "c", Image: "c"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	read, err := theServer.client.CoreV1().Pods("protobuf").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || !equality.Semantic.DeepEqual(read.Spec, made.Spec) || read.UID != made.UID {
		t.Errorf("read as JSON: %v\ngot  %v\nwant %v", err, read.Spec, made.Spec)
	}
	got := ask(t, "GET", "/api/v1/namespaces/protobuf/pods/p", "", "Accept: application/vnd.kubernetes.protobuf")
	trace.Proves(t, "API-015")
	if !strings.HasPrefix(got.body, "k8s\x00") || got.header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" {
		t.Errorf("protobuf: got %s, %q", got.header.Get("Content-Type"), got.body[:min(10, len(got.body))])
	}
	yaml := ask(t, "GET", "/api/v1/namespaces/protobuf/pods/p", "", "Accept: application/yaml")
	if !strings.Contains(yaml.body, "\nkind: Pod\n") {
		t.Errorf("YAML: got %s", yaml.body)
	}
}

func TestWatchesSeeObjectsEnterAndLeaveTheSelection(t *testing.T) {
	t.Parallel()
	theServer.namespace(t, "watch-labels")
	configs := theServer.client.CoreV1().ConfigMaps("watch-labels")
	w, err := configs.Watch(t.Context(), metav1.ListOptions{LabelSelector: "environment in (production, qa),tier=frontend"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	first, err := configs.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: map[string]string{"environment": "production", "tier": "frontend"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := configs.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"environment": "production", "tier": "backend"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ proves, query string }{
		{"LBL-039", "environment%3Dproduction,tier%3Dfrontend"},
		{"LBL-040", "environment+in+%28production%2Cqa%29%2Ctier+in+%28frontend%29"},
	} {
		got := ask(t, "GET", "/api/v1/namespaces/watch-labels/configmaps?labelSelector="+c.query, "")
		var list corev1.ConfigMapList
		if err := json.Unmarshal([]byte(got.body), &list); err != nil {
			t.Fatalf("%s: got %s, %v", c.query, got.body, err)
		}
		trace.Proves(t, "LBL-005", "LBL-038", c.proves)
		if len(list.Items) != 1 || list.Items[0].Name != "m" {
			t.Errorf("%s: got %v, want m alone", c.query, list.Items)
		}
	}
	for _, environment := range []string{"qa", "dev", "test", "production"} {
		if _, err := configs.Patch(t.Context(), "m", types.MergePatchType, []byte(`{"metadata":{"labels":{"environment":"`+environment+`"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := configs.Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	trace.Proves(t, "C-158", "LBL-005", "LBL-038", "LBL-041")
	wantEvents(t, w, "ADDED production", "MODIFIED qa", "DELETED qa", "ADDED production", "DELETED production")
	// Again from the first revision: what came after it, and nothing else.
	again, err := configs.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=m", ResourceVersion: first.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	trace.Proves(t, "C-156")
	last := wantEvents(t, again, "MODIFIED qa", "MODIFIED dev", "MODIFIED test")
	// And on from the last one seen.
	on, err := configs.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=m", ResourceVersion: last})
	if err != nil {
		t.Fatal(err)
	}
	defer on.Stop()
	trace.Proves(t, "C-155")
	wantEvents(t, on, "MODIFIED production", "DELETED production")
}

// wantEvents reads that many events of config maps and returns the last one's revision.
func wantEvents(t *testing.T, w watch.Interface, want ...string) (revision string) {
	t.Helper()
	for _, text := range want {
		e, ok := <-w.ResultChan()
		m, isMap := e.Object.(*corev1.ConfigMap)
		if !ok || !isMap {
			t.Fatalf("got the event %v, want %s", e, text)
		}
		if got := fmt.Sprintf("%s %s", e.Type, m.Labels["environment"]); got != text {
			t.Fatalf("got the event %s, want %s", got, text)
		}
		revision = m.ResourceVersion
	}
	return revision
}

func TestNamespacesHaveFinalizersAndStatusOfTheirOwn(t *testing.T) {
	t.Parallel()
	theServer.namespace(t, "namespace-subresources")
	namespaces := theServer.client.CoreV1().Namespaces()
	ns, err := namespaces.Get(t.Context(), "namespace-subresources", metav1.GetOptions{})
	trace.Proves(t, "C-130")
	if err != nil || ns.Status.Phase != corev1.NamespaceActive {
		t.Fatalf("got %v, %v", ns, err)
	}
	for _, finalizers := range [][]corev1.FinalizerName{{corev1.FinalizerKubernetes, "e2e.example.com/fake"}, {corev1.FinalizerKubernetes}} {
		ns.Spec.Finalizers = finalizers
		if ns, err = namespaces.Finalize(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		trace.Proves(t, "C-128")
		if ns, err = namespaces.Get(t.Context(), ns.Name, metav1.GetOptions{}); err != nil || fmt.Sprint(ns.Spec.Finalizers) != fmt.Sprint(finalizers) {
			t.Errorf("got finalizers %v, %v; want %v", ns.Spec.Finalizers, err, finalizers)
		}
	}
	if _, err := namespaces.Patch(t.Context(), ns.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}},"status":{"conditions":[{"type":"Patched","status":"True","reason":"R","message":"M"}]}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	trace.Proves(t, "C-130")
	if ns, err = namespaces.Get(t.Context(), ns.Name, metav1.GetOptions{}); err != nil || len(ns.Status.Conditions) != 1 || ns.Status.Conditions[0].Type != "Patched" {
		t.Errorf("got conditions %v, %v", ns.Status.Conditions, err)
	}
	ns.Status.Conditions = append(ns.Status.Conditions, corev1.NamespaceCondition{Type: "Updated", Status: corev1.ConditionTrue})
	trace.Proves(t, "C-130")
	if ns, err = namespaces.UpdateStatus(t.Context(), ns, metav1.UpdateOptions{}); err != nil || len(ns.Status.Conditions) != 2 {
		t.Errorf("got %v, %v", ns, err)
	}
	// What an ordinary write says of the status does not count.
	ns.Status.Conditions = nil
	trace.Proves(t, "OBJ-009")
	if ns, err = namespaces.Update(t.Context(), ns, metav1.UpdateOptions{}); err != nil || len(ns.Status.Conditions) != 2 {
		t.Errorf("got conditions %v, %v; want 2", ns.Status.Conditions, err)
	}
	service, err := theServer.client.CoreV1().Services(ns.Name).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		Status:     corev1.ServiceStatus{Conditions: []metav1.Condition{{Type: "Made", Status: metav1.ConditionTrue}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	trace.Proves(t, "OBJ-009")
	if len(service.Status.Conditions) != 0 {
		t.Errorf("got conditions %v of a new service, want none", service.Status.Conditions)
	}
}

func TestKeysMustNotBeEmpty(t *testing.T) {
	t.Parallel()
	theServer.namespace(t, "empty-keys")
	core := theServer.client.CoreV1()
	name := metav1.ObjectMeta{Name: "x"}
	trace.Proves(t, "C-239")
	if _, err := core.ConfigMaps("empty-keys").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: name, Data: map[string]string{"": "x"}}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("config map: got %v, want it to be invalid", err)
	}
	trace.Proves(t, "C-320")
	if _, err := core.Secrets("empty-keys").Create(t.Context(), &corev1.Secret{ObjectMeta: name, Data: map[string][]byte{"": nil}}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("secret: got %v, want it to be invalid", err)
	}
	class := "there-is-none"
	pod := &corev1.Pod{ObjectMeta: name, Spec: corev1.PodSpec{RuntimeClassName: &class, Containers: []corev1.Container{{Name: "c", Image: "c"}}}}
	trace.Proves(t, "C-313")
	if _, err := core.Pods("empty-keys").Create(t.Context(), pod, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("pod of no runtime class: got %v, want it to be forbidden", err)
	}
}
