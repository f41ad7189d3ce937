package clients

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
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

func TestOpenAPIIsServedAsClientsAskForIt(t *testing.T) {
	trace.Proves(t, "API-002", "API-008", "API-009", "API-010", "API-011", "API-012", "API-013", "API-014", "MRG-K05", "LST-K07", "LST-K08", "CRE-K05")
	t.Parallel()
	plain := ask(t, "GET", "/openapi/v2", "", "Accept: */*")
	if plain.code != 200 || plain.header.Get("Content-Type") != "application/json" {
		t.Errorf("Accept */*: got %d, %s; want 200, application/json", plain.code, plain.header.Get("Content-Type"))
	}
	if got := ask(t, "GET", "/openapi/v2", "", "Accept: application/json"); got.body != plain.body {
		t.Error("application/json gives another document than */*")
	}
	for _, accept := range []string{"application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"} {
		if got := ask(t, "GET", "/openapi/v2", "", "Accept: "+accept); got.code != 200 || !strings.Contains(got.header.Get("Content-Type"), "protobuf") || strings.HasPrefix(got.body, "{") {
			t.Errorf("Accept %s: got %d, %s", accept, got.code, got.header.Get("Content-Type"))
		}
	}
	zipped := ask(t, "GET", "/openapi/v2", "", "Accept: */*", "Accept-Encoding: gzip")
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
	for _, old := range []string{"/swagger.json", "/swagger-2.0.0.json", "/swagger-2.0.0.pb-v1", "/swagger-2.0.0.pb-v1.gz", "/swaggerapi"} {
		if got := ask(t, "GET", old, ""); got.code != 404 {
			t.Errorf("%s: got %d, want 404", old, got.code)
		}
	}
	var doc struct {
		Swagger     string
		Definitions map[string]struct {
			Properties map[string]map[string]any
		}
	}
	if err := json.Unmarshal([]byte(plain.body), &doc); err != nil || doc.Swagger != "2.0" {
		t.Fatalf("got swagger %q, %v", doc.Swagger, err)
	}
	for _, c := range []struct{ field, strategy, key string }{
		{"core.v1.PodSpec.containers", "merge", "name"},
		{"core.v1.PodSpec.initContainers", "merge", "name"},
		{"core.v1.PodSpec.ephemeralContainers", "merge", "name"},
		{"core.v1.PodSpec.imagePullSecrets", "merge", "name"},
		{"core.v1.PodSpec.volumes", "merge,retainKeys", "name"},
		{"core.v1.PodSpec.topologySpreadConstraints", "merge", "topologyKey"},
		{"core.v1.PodSpec.schedulingGates", "merge", "name"},
		{"core.v1.PodSpec.hostAliases", "merge", "ip"},
		{"core.v1.PodSpec.tolerations", "<nil>", "<nil>"},
		{"core.v1.PodStatus.podIPs", "merge", "ip"},
		{"core.v1.PodStatus.conditions", "merge", "type"},
		{"core.v1.Container.env", "merge", "name"},
		{"core.v1.Container.ports", "merge", "containerPort"},
		{"core.v1.Container.volumeMounts", "merge", "mountPath"},
		{"core.v1.Container.volumeDevices", "merge", "devicePath"},
		{"core.v1.Container.args", "<nil>", "<nil>"},
		{"core.v1.Container.command", "<nil>", "<nil>"},
		{"core.v1.Container.envFrom", "<nil>", "<nil>"},
		{"core.v1.ServiceSpec.ports", "merge", "port"},
		{"core.v1.ServiceAccount.secrets", "merge", "name"},
		{"core.v1.NodeStatus.addresses", "merge", "type"},
		{"core.v1.PersistentVolumeClaimSpec.accessModes", "<nil>", "<nil>"},
		{"apps.v1.DeploymentSpec.strategy", "retainKeys", "<nil>"},
		{"apps.v1.DaemonSetSpec.updateStrategy", "<nil>", "<nil>"},
		{"apps.v1.StatefulSetSpec.updateStrategy", "<nil>", "<nil>"},
		{"apps.v1.DeploymentStatus.conditions", "merge", "type"},
	} {
		i := strings.LastIndex(c.field, ".")
		got := doc.Definitions["io.k8s.api."+c.field[:i]].Properties[c.field[i+1:]]
		if got == nil {
			t.Errorf("%s is not described", c.field)
		} else if s, k := fmt.Sprint(got["x-kubernetes-patch-strategy"]), fmt.Sprint(got["x-kubernetes-patch-merge-key"]); s != c.strategy || k != c.key {
			t.Errorf("%s: got strategy %s, key %s; want %s, %s", c.field, s, k, c.strategy, c.key)
		}
	}
	if got := doc.Definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"].Properties["ownerReferences"]["x-kubernetes-patch-merge-key"]; got != "uid" {
		t.Errorf("ownerReferences: got merge key %v, want uid", got)
	}
}

func TestEveryGroupNamesItsPreferredVersion(t *testing.T) {
	trace.Proves(t, "C-109", "C-160", "API-026", "API-027", "API-028")
	t.Parallel()
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
		if !found {
			t.Errorf("%s prefers %v, which it does not have", g.Name, doc.PreferredVersion)
		}
	}
	v, err := theServer.client.ServerVersion()
	if digits := regexp.MustCompile(`^[0-9]+$`); err != nil || !digits.MatchString(v.Major) || !digits.MatchString(v.Minor) {
		t.Errorf("version: got %v, %v", v, err)
	}
}

func TestStrictFieldValidationNamesEveryField(t *testing.T) {
	trace.Proves(t, "C-114", "C-116")
	t.Parallel()
	theServer.namespace(t, "strict")
	deployment := func(extra, spec string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"` + extra + `},"spec":{` + spec + `"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"c"}]}}}}`
	}
	for _, c := range []struct{ name, body, want string }{
		{"unknown and duplicate", deployment("", `"unknownField":"x","replicas":1,"replicas":2,`), `strict decoding error: unknown field "spec.unknownField", duplicate field "spec.replicas"`},
		{"unknown metadata", deployment(`,"unknownMeta":"x"`, ""), `strict decoding error: unknown field "metadata.unknownMeta"`},
	} {
		got := ask(t, "POST", "/apis/apps/v1/namespaces/strict/deployments?fieldValidation=Strict", c.body, "Content-Type: application/json")
		if got.code != 400 || !strings.Contains(got.body, strings.ReplaceAll(c.want, `"`, `\"`)) {
			t.Errorf("%s: got %d %s, want %s", c.name, got.code, got.body, c.want)
		}
	}
	got := ask(t, "POST", "/apis/apps/v1/namespaces/strict/deployments", deployment("", `"unknownField":"x","replicas":1,"replicas":2,`), "Content-Type: application/json")
	if want := `[299 - "unknown field \"spec.unknownField\"" 299 - "duplicate field \"spec.replicas\""]`; got.code != 201 || fmt.Sprint(got.header.Values("Warning")) != want {
		t.Errorf("without a choice: got %d, warnings %v; want 201, %s", got.code, got.header.Values("Warning"), want)
	}
}

func TestWhatHasNoTableIsNotAcceptable(t *testing.T) {
	trace.Proves(t, "C-149")
	t.Parallel()
	got := ask(t, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`,
		"Content-Type: application/json", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	if got.code != 406 {
		t.Errorf("got %d %s, want 406", got.code, got.body)
	}
}

func TestObjectsAreTheSameInJSONAndProtobuf(t *testing.T) {
	trace.Proves(t, "API-015", "CON-002", "OBJ-014")
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
	if !strings.HasPrefix(got.body, "k8s\x00") || got.header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" {
		t.Errorf("protobuf: got %s, %q", got.header.Get("Content-Type"), got.body[:min(10, len(got.body))])
	}
	yaml := ask(t, "GET", "/api/v1/namespaces/protobuf/pods/p", "", "Accept: application/yaml")
	if !strings.Contains(yaml.body, "\nkind: Pod\n") {
		t.Errorf("YAML: got %s", yaml.body)
	}
}

func TestWatchesSeeObjectsEnterAndLeaveTheSelection(t *testing.T) {
	trace.Proves(t, "C-155", "C-156", "C-158", "LBL-005", "LBL-038", "LBL-039", "LBL-040", "LBL-041", "CON-011")
	t.Parallel()
	theServer.namespace(t, "watch-labels")
	maps := theServer.client.CoreV1().ConfigMaps("watch-labels")
	w, err := maps.Watch(t.Context(), metav1.ListOptions{LabelSelector: "environment in (production, qa),tier=frontend"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	first, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: map[string]string{"environment": "production", "tier": "frontend"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, environment := range []string{"qa", "dev", "test", "production"} {
		if _, err := maps.Patch(t.Context(), "m", types.MergePatchType, []byte(`{"metadata":{"labels":{"environment":"`+environment+`"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := maps.Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, w, "ADDED production", "MODIFIED qa", "DELETED qa", "ADDED production", "DELETED production")
	// Again from the first revision: what came after it, and nothing else.
	again, err := maps.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=m", ResourceVersion: first.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	last := wantEvents(t, again, "MODIFIED qa", "MODIFIED dev", "MODIFIED test")
	// And on from the last one seen.
	on, err := maps.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=m", ResourceVersion: last})
	if err != nil {
		t.Fatal(err)
	}
	defer on.Stop()
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
	trace.Proves(t, "C-128", "C-130", "OBJ-009")
	t.Parallel()
	theServer.namespace(t, "namespace-subresources")
	namespaces := theServer.client.CoreV1().Namespaces()
	ns, err := namespaces.Get(t.Context(), "namespace-subresources", metav1.GetOptions{})
	if err != nil || ns.Status.Phase != corev1.NamespaceActive {
		t.Fatalf("got %v, %v", ns, err)
	}
	for _, finalizers := range [][]corev1.FinalizerName{{corev1.FinalizerKubernetes, "e2e.example.com/fake"}, {corev1.FinalizerKubernetes}} {
		ns.Spec.Finalizers = finalizers
		if ns, err = namespaces.Finalize(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if ns, err = namespaces.Get(t.Context(), ns.Name, metav1.GetOptions{}); err != nil || fmt.Sprint(ns.Spec.Finalizers) != fmt.Sprint(finalizers) {
			t.Errorf("got finalizers %v, %v; want %v", ns.Spec.Finalizers, err, finalizers)
		}
	}
	if _, err := namespaces.Patch(t.Context(), ns.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}},"status":{"conditions":[{"type":"Patched","status":"True","reason":"R","message":"M"}]}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if ns, err = namespaces.Get(t.Context(), ns.Name, metav1.GetOptions{}); err != nil || len(ns.Status.Conditions) != 1 || ns.Status.Conditions[0].Type != "Patched" {
		t.Errorf("got conditions %v, %v", ns.Status.Conditions, err)
	}
	ns.Status.Conditions = append(ns.Status.Conditions, corev1.NamespaceCondition{Type: "Updated", Status: corev1.ConditionTrue})
	if ns, err = namespaces.UpdateStatus(t.Context(), ns, metav1.UpdateOptions{}); err != nil || len(ns.Status.Conditions) != 2 {
		t.Errorf("got %v, %v", ns, err)
	}
	// What an ordinary write says of the status does not count.
	ns.Status.Conditions = nil
	if ns, err = namespaces.Update(t.Context(), ns, metav1.UpdateOptions{}); err != nil || len(ns.Status.Conditions) != 2 {
		t.Errorf("got conditions %v, %v; want 2", ns.Status.Conditions, err)
	}
}

func TestKeysMustNotBeEmpty(t *testing.T) {
	trace.Proves(t, "C-239", "C-320", "C-313")
	t.Parallel()
	theServer.namespace(t, "empty-keys")
	core := theServer.client.CoreV1()
	name := metav1.ObjectMeta{Name: "x"}
	if _, err := core.ConfigMaps("empty-keys").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: name, Data: map[string]string{"": "x"}}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("config map: got %v, want it to be invalid", err)
	}
	if _, err := core.Secrets("empty-keys").Create(t.Context(), &corev1.Secret{ObjectMeta: name, Data: map[string][]byte{"": nil}}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("secret: got %v, want it to be invalid", err)
	}
	class := "there-is-none"
	pod := &corev1.Pod{ObjectMeta: name, Spec: corev1.PodSpec{RuntimeClassName: &class, Containers: []corev1.Container{{Name: "c", Image: "c"}}}}
	if _, err := core.Pods("empty-keys").Create(t.Context(), pod, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("pod of no runtime class: got %v, want it to be forbidden", err)
	}
}
