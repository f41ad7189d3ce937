package watchcache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/kemudi/kemudi/internal/resource"
)

var deployments = resource.Define(resource.Spec[*appsv1.Deployment]{
	Names: resource.Names{Group: "apps", Version: "v1", Kind: "Deployment", Plural: "deployments", Namespaced: true},
	Versions: []resource.Version[*appsv1.Deployment]{{
		Group: "extensions", Version: "v1beta1",
		New: func() resource.Object { return &extensionsv1beta1.Deployment{} },
		Default: func(obj resource.Object) {
			if d := obj.(*extensionsv1beta1.Deployment); d.Spec.Replicas == nil {
				d.Spec.Replicas = new(int32(1))
			}
		},
		To: func(obj resource.Object) (*appsv1.Deployment, error) {
			d := obj.(*extensionsv1beta1.Deployment)
			return &appsv1.Deployment{ObjectMeta: d.ObjectMeta, Spec: appsv1.DeploymentSpec{Replicas: d.Spec.Replicas}}, nil
		},
		From: func(*appsv1.Deployment) (resource.Object, error) { return &extensionsv1beta1.Deployment{}, nil },
	}},
})

func TestStoredFormIsUpstreams(t *testing.T) {
	obj := service("x", "red")
	obj.ResourceVersion, obj.SelfLink = "17", "/api/v1/x"
	got, err := Encode(services.Def, obj)
	if err != nil {
		t.Fatal(err)
	}
	want := service("x", "red")
	want.APIVersion, want.Kind = "v1", "Service"
	var upstream bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(want, &upstream); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, upstream.Bytes()) {
		t.Errorf("got  %q\nwant %q", got, upstream.Bytes())
	}
	if obj.ResourceVersion != "17" || obj.SelfLink == "" {
		t.Error("Encode has changed the object")
	}
	back, err := Decode(services.Def, got, 23)
	if err != nil {
		t.Fatal(err)
	}
	again := service("x", "red")
	again.ResourceVersion = "23"
	if !equality.Semantic.DeepEqual(back, again) {
		t.Errorf("read back: got %+v, want %+v", back, again)
	}
}

func TestDecodeReadsJSONAndSetsDefaults(t *testing.T) {
	obj, err := Decode(services.Def, []byte(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"ports":[{"port":80}]}}`), 5)
	if err != nil {
		t.Fatal(err)
	}
	svc := obj.(*corev1.Service)
	if svc.Name != "x" || svc.Spec.Ports[0].Port != 80 || svc.Spec.Type != corev1.ServiceTypeClusterIP || svc.ResourceVersion != "5" || svc.Kind != "" {
		t.Errorf("got %+v", svc)
	}
}

func TestDecodeConvertsLegacyVersions(t *testing.T) {
	legacy := &extensionsv1beta1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "extensions/v1beta1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"},
	}
	var value bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(legacy, &value); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string][]byte{
		"protobuf": value.Bytes(),
		"JSON":     []byte(`{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"namespace":"a","name":"web"}}`),
	} {
		obj, err := Decode(deployments.Def, value, 9)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		d, ok := obj.(*appsv1.Deployment)
		if !ok || d.Name != "web" || d.Spec.Replicas == nil || *d.Spec.Replicas != 1 || d.ResourceVersion != "9" || d.APIVersion != "" {
			t.Errorf("%s: got %+v", name, obj)
		}
	}
}

func TestCustomResourcesAreJSON(t *testing.T) {
	crontabs := resource.Define(resource.Spec[*unstructured.Unstructured]{
		Names: resource.Names{
			Group: "stable.example.com", Version: "v1", Kind: "CronTab", Plural: "crontabs",
			Namespaced: true, StoragePrefix: "stable.example.com/crontabs",
		},
	})
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "stable.example.com/v1", "kind": "CronTab",
		"metadata": map[string]any{"name": "x", "namespace": "a", "resourceVersion": "4"},
		"spec":     map[string]any{"replicas": int64(3)},
	}}
	value, err := Encode(crontabs.Def, obj)
	if err != nil {
		t.Fatal(err)
	}
	if value[0] != '{' || bytes.Contains(value, []byte("resourceVersion")) || obj.GetResourceVersion() != "4" {
		t.Errorf("stored: got %s", value)
	}
	back, err := Decode(crontabs.Def, value, 6)
	if err != nil {
		t.Fatal(err)
	}
	obj.SetResourceVersion("6")
	if !equality.Semantic.DeepEqual(back, runtime.Object(obj)) {
		t.Errorf("read back: got %+v, want %+v", back, obj)
	}
}

func TestInterningSharesAndChangesNothing(t *testing.T) {
	fresh := func() *corev1.Service {
		s := service("x", "red")
		s.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:type":{}}}`),
		}}
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "1"}}
		return s
	}
	var in interner
	a, b, handed := fresh(), fresh(), fresh()
	shared := *handed
	in.decoded(services.Def, a, nil)
	in.decoded(services.Def, b, nil)
	in.handed(services.Def, &shared, nil)
	if !equality.Semantic.DeepEqual(a, fresh()) || !equality.Semantic.DeepEqual(&shared, fresh()) || !equality.Semantic.DeepEqual(handed, fresh()) {
		t.Errorf("objects have changed: %+v %+v %+v", a, shared, handed)
	}
	if a.ManagedFields[0].FieldsV1 != b.ManagedFields[0].FieldsV1 || a.ManagedFields[0].FieldsV1 != shared.ManagedFields[0].FieldsV1 {
		t.Error("equal field sets are not shared")
	}
	if handed.ManagedFields[0].FieldsV1 == a.ManagedFields[0].FieldsV1 {
		t.Error("the managed fields of the writer's object were changed")
	}
}

func TestPodsOfOneTemplateShareTheirSpec(t *testing.T) {
	fresh := func(name, image string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name},
			Spec: corev1.PodSpec{
				NodeName:   name,
				Containers: []corev1.Container{{Name: "c", Image: image, Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}},
				Volumes:    []corev1.Volume{{Name: "v"}},
				Affinity:   &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
			},
		}
	}
	var in interner
	a, b, own, other := fresh("a", "one"), fresh("b", "one"), fresh("own", "one"), fresh("other", "one")
	own.Spec.Volumes[0].Name = "own"
	other.Spec.Containers[0].Env[0].Value = "other"
	for _, p := range []*corev1.Pod{a, b, own, other} {
		want := p.DeepCopy()
		in.decoded(benchPods.Def, p, nil)
		if !equality.Semantic.DeepEqual(p, want) {
			t.Errorf("pod has changed: got %+v, want %+v", p, want)
		}
	}
	if &a.Spec.Containers[0] != &b.Spec.Containers[0] || &a.Spec.Volumes[0] != &b.Spec.Volumes[0] || a.Spec.Affinity != b.Spec.Affinity {
		t.Error("equal parts are not shared")
	}
	if &a.Spec.Containers[0] != &own.Spec.Containers[0] || &a.Spec.Volumes[0] == &own.Spec.Volumes[0] {
		t.Error("of a pod with a volume of its own, want the containers shared, and the volumes not")
	}
	if &a.Spec.Containers[0] == &other.Spec.Containers[0] {
		t.Error("different containers are shared")
	}
}

func TestTheTableOfTemplatesIsBounded(t *testing.T) {
	var in interner
	for i := range 3 * templateMax {
		name := strconv.Itoa(i)
		for j := range 2 * templateForms {
			in.decoded(benchPods.Def, &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: name, WorkingDir: strconv.Itoa(j)}}}}, nil)
		}
	}
	if n := len(in.mu.templates); n > templateMax+1 {
		t.Errorf("got %d names, want at most %d", n, templateMax+1)
	}
	for key, list := range in.mu.templates {
		if len(list) > templateForms {
			t.Errorf("%v: got %d forms, want at most %d", key, len(list), templateForms)
		}
	}
}

// statusPod is a pod whose digest differs from those of all others, as read from JSON.
func statusPod(t testing.TB, digest string, round int) *corev1.Pod {
	t.Helper()
	text := fmt.Sprintf(`{"metadata":{"namespace":"x","name":%q,"annotations":{"digest":%q}},"spec":{"containers":[`+
		`{"name":"c","image":"one","env":[{"name":"A","value":%q},{"name":"B","value":"b"}],"resources":{"requests":{"cpu":"100m"}},"readinessProbe":{"httpGet":{"path":"/"}}}]},`+
		`"status":{"conditions":[{"type":"Initialized","status":"True"},{"type":"Ready","status":"True","reason":"round-%d"}]}}`, digest, digest, digest, round)
	pod := &corev1.Pod{}
	if err := json.Unmarshal([]byte(text), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestPodsThatDifferShareTheRest(t *testing.T) {
	var in interner
	a, b, next := statusPod(t, "a", 1), statusPod(t, "b", 1), statusPod(t, "b", 2)
	in.handed(benchPods.Def, a, nil)
	in.handed(benchPods.Def, b, nil)
	handed := next.DeepCopy()
	own, conditions := *handed, handed.Status.Conditions
	in.handed(benchPods.Def, &own, b)
	for i, p := range []*corev1.Pod{a, b, &own, handed} {
		if want := []*corev1.Pod{statusPod(t, "a", 1), statusPod(t, "b", 1), next, next}[i]; !equality.Semantic.DeepEqual(p, want) {
			t.Errorf("pod has changed: got %+v, want %+v", p, want)
		}
	}
	x, y, z := &a.Spec.Containers[0], &b.Spec.Containers[0], &own.Spec.Containers[0]
	if x.ReadinessProbe != y.ReadinessProbe || !sameMap(x.Resources.Requests, y.Resources.Requests) {
		t.Error("of pods with a setting of their own, the other parts of a container are not shared")
	}
	if y != z || !sameMap(b.Annotations, own.Annotations) {
		t.Error("what a write has not changed is not shared with the state before")
	}
	if &handed.Status.Conditions[0] != &conditions[0] {
		t.Error("the writer's own object was changed")
	}
}

func sameMap[M ~map[K]V, K comparable, V any](a, b M) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

func TestOnlyEqualValuesAreShared(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		a, b := statusPod(t, "a", 1), statusPod(t, "a", 1)
		for _, change := range []func(*corev1.Pod){
			func(p *corev1.Pod) { p.Labels = map[string]string{} },
			func(p *corev1.Pod) { p.Annotations["more"] = "x" },
			func(p *corev1.Pod) { p.Spec.Containers[0].Env = p.Spec.Containers[0].Env[:1] },
			func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{} },
			func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["memory"] = apiresource.MustParse("1Mi") },
			func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d"}) },
			func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(0)) },
			func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.Unix(1, 0) },
			func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{} },
		} {
			if rnd.IntN(3) == 0 {
				change(a)
			}
			if rnd.IntN(3) == 0 {
				change(b)
			}
		}
		kept, want := a.DeepCopy(), b.DeepCopy()
		adoptObject(b, a, nil)
		if !reflect.DeepEqual(b, want) || !reflect.DeepEqual(a, kept) {
			t.Fatalf("got %+v, want %+v; kept %+v, want %+v", b, want, a, kept)
		}
	}
}

func BenchmarkSharingOfAPodsStates(b *testing.B) {
	var in interner
	before := statusPod(b, "b", 1)
	in.handed(benchPods.Def, before, nil)
	next := statusPod(b, "b", 2)
	b.ReportAllocs()
	for b.Loop() {
		own := *next
		in.handed(benchPods.Def, &own, before)
	}
}
