package apiserver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/texttest"
)

// upstreamFile holds objects as upstream's API server stores them, one a line:
// where the API has it, its key, and the value in base64. -update writes it anew.
const upstreamFile = "testdata/upstream-store.txt"

// kept is one line of it.
type kept struct {
	path, key string
	value     []byte
}

func keptByUpstream(t *testing.T) (list []kept) {
	t.Helper()
	if *texttest.Update {
		writeUpstreamFile(t)
	}
	text, err := os.ReadFile(upstreamFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		k := kept{}
		var value string
		if _, err := fmt.Sscan(line, &k.path, &k.key, &value); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if k.value, err = base64.StdEncoding.DecodeString(value); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		list = append(list, k)
	}
	return list
}

// onUpstreamsStore is a server on a store that upstream has written, and that store.
func onUpstreamsStore(t *testing.T, list []kept) (*fixture, store.Store) {
	t.Helper()
	st := newStore(t)
	for _, k := range list {
		if _, err := st.Txn(t.Context(), store.Txn{Ops: []store.Op{{Key: k.key, Value: k.value}}}); err != nil {
			t.Fatal(err)
		}
	}
	return newFixture(t, func(o *Options) { o.Store = st }), st
}

// upstreamSees is a stored value as upstream reads it, and in JSON.
func upstreamSees(t *testing.T, key string, value []byte) (obj runtime.Object, fields any) {
	t.Helper()
	if !bytes.HasPrefix(value, []byte("k8s\x00")) {
		t.Fatalf("%s: got %.20q, want protobuf in its envelope", key, value)
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	data, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return obj, fields
}

// holds reports whether everything in part is in all.
func holds(all, part any) bool {
	switch p := part.(type) {
	case map[string]any:
		a, ok := all.(map[string]any)
		for name, v := range p {
			ok = ok && holds(a[name], v)
		}
		return ok
	case []any:
		a, ok := all.([]any)
		ok = ok && len(a) == len(p)
		for i := range p {
			ok = ok && holds(a[i], p[i])
		}
		return ok
	}
	return reflect.DeepEqual(all, part)
}

// TestStoreOfUpstreamIsServedAndHandedBack opens what upstream has stored, shows
// it, writes it, and looks at what it wrote with upstream's codecs.
func TestStoreOfUpstreamIsServedAndHandedBack(t *testing.T) {
	list := keptByUpstream(t)
	f, st := onUpstreamsStore(t, list)
	for _, k := range list {
		t.Run(k.key, func(t *testing.T) {
			was, before := upstreamSees(t, k.key, k.value)
			shown := decoded[map[string]any](t, f.must(200, "GET", k.path, ""))
			delete(before.(map[string]any), "kind")
			delete(before.(map[string]any), "apiVersion")
			if !holds(shown, before) {
				t.Errorf("got %v, want %v in it", shown, before)
			}
			f.must(200, "PATCH", k.path, `{"metadata":{"annotations":{"written":"here"}}}`, merge)
			kv, _, err := st.Get(t.Context(), k.key)
			if err != nil || kv.Rev == 0 {
				t.Fatalf("got revision %d, %v of %s, want what was written at the same key", kv.Rev, err, k.key)
			}
			is, after := upstreamSees(t, k.key, kv.Value)
			if is.GetObjectKind() != nil && is.GetObjectKind().GroupVersionKind() != was.GetObjectKind().GroupVersionKind() {
				t.Errorf("stored as %s, want %s", is.GetObjectKind().GroupVersionKind(), was.GetObjectKind().GroupVersionKind())
			}
			meta := after.(map[string]any)["metadata"].(map[string]any)
			if meta["annotations"].(map[string]any)["written"] != "here" || meta["resourceVersion"] != nil {
				t.Errorf("got metadata %v, want the annotation and no revision", meta)
			}
			if !holds(after, before) {
				t.Errorf("got %v, want %v in it", after, before)
			}
		})
	}
	page, err := st.List(t.Context(), "/registry/", store.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, k := range list {
		known[k.key] = true
	}
	for _, kv := range page.KVs {
		if !known[kv.Key] && !strings.HasPrefix(kv.Key, "/registry/kemudi/") {
			t.Errorf("%s is new", kv.Key)
		}
	}
}

// TestDefaultsOfWhatUpstreamStoredAreShown: upstream stores neither, and shows both.
func TestDefaultsOfWhatUpstreamStoredAreShown(t *testing.T) {
	f, _ := onUpstreamsStore(t, keptByUpstream(t))
	const jobs, sets = "/apis/batch/v1/namespaces/default/jobs", "/apis/apps/v1/namespaces/default/statefulsets"
	f.must(201, "POST", jobs, `{"metadata":{"name":"new"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`)
	f.must(201, "POST", sets, `{"metadata":{"name":"new"},"spec":{"serviceName":"s","selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},`+
		`"spec":{"containers":[{"name":"c","image":"i"}]}},"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}}`)
	for _, name := range []string{"pi", "new"} {
		found := decoded[batchv1.JobList](t, f.must(200, "GET", jobs+"?labelSelector=job-name%3D"+name, ""))
		if len(found.Items) != 1 || found.Items[0].Name != name || !reflect.DeepEqual(found.Items[0].Labels, found.Items[0].Spec.Template.Labels) || len(found.Items[0].Labels) != 4 {
			t.Errorf("job %s: got %+v, want it found by the labels of its pods", name, found.Items)
		}
	}
	for _, name := range []string{"db", "new"} {
		for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
			path := strings.Replace(sets, "/v1/", "/"+version+"/", 1)
			shown := f.must(200, "GET", path+"/"+name, "")
			set := decoded[appsv1.StatefulSet](t, shown)
			if c := set.Spec.VolumeClaimTemplates; len(c) != 1 || c[0].APIVersion != "v1" || c[0].Kind != "PersistentVolumeClaim" {
				t.Errorf("%s of %s: got claims %+v, want them with apiVersion and kind", name, version, c)
			}
			if version == "v1beta1" { // gives the set the labels of its pods
				continue
			}
			again := decoded[metav1.PartialObjectMetadata](t, f.must(200, "PUT", path+"/"+name, shown))
			if again.ResourceVersion != set.ResourceVersion {
				t.Errorf("%s of %s: writing what was read has changed it", name, version)
			}
		}
	}
}

// written is a thing that upstream has stored: where the API has it, and its key.
type written struct {
	path, key string
	obj       runtime.Object
}

func writeUpstreamFile(t *testing.T) {
	t.Helper()
	var b strings.Builder
	for i, w := range upstreamsObjects() {
		m := w.obj.(metav1.Object)
		m.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)))
		m.SetCreationTimestamp(metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
		kinds, _, err := scheme.Scheme.ObjectKinds(w.obj)
		if err != nil {
			t.Fatal(err)
		}
		w.obj.GetObjectKind().SetGroupVersionKind(kinds[0])
		var value bytes.Buffer
		if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(w.obj, &value); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, w.path, w.key, base64.StdEncoding.EncodeToString(value.Bytes()))
	}
	if err := os.WriteFile(upstreamFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// in is the metadata of an object in the default namespace, and of one in none.
func in(name string) metav1.ObjectMeta   { return metav1.ObjectMeta{Namespace: "default", Name: name} }
func free(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// upstreamsObjects are some of every form of key, with what upstream defaults.
func upstreamsObjects() []written {
	list := append(upstreamsPlain(), upstreamsWorkloads()...)
	for i := range list { // most have the form of the API's path
		if list[i].key == "" {
			parts := strings.Split(list[i].path, "/namespaces/default/")
			list[i].key = "/registry" + parts[0][strings.LastIndex(parts[0][:strings.LastIndex(parts[0], "/")], "/"):]
			if len(parts) == 2 {
				kind, name, _ := strings.Cut(parts[1], "/")
				list[i].key = "/registry/" + kind + "/default/" + name
			}
		}
	}
	return list
}

func upstreamsPlain() []written {
	const core = "/api/v1/namespaces/default"
	ports := []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}}
	return []written{
		{core, "/registry/namespaces/default", &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"kubernetes.io/metadata.name": "default"}},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}},
		{"/api/v1/nodes/n1", "/registry/minions/n1", &corev1.Node{
			ObjectMeta: free("n1"), Spec: corev1.NodeSpec{PodCIDR: "10.244.0.0/24", PodCIDRs: []string{"10.244.0.0/24"}},
			Status: corev1.NodeStatus{Capacity: corev1.ResourceList{"cpu": resource.MustParse("4")}, Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4")}},
		}},
		{core + "/configmaps/c", "", &corev1.ConfigMap{ObjectMeta: in("c"), Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"x": {0, 1}}}},
		{core + "/secrets/s", "", &corev1.Secret{ObjectMeta: in("s"), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"k": []byte("v")}}},
		{core + "/serviceaccounts/default", "", &corev1.ServiceAccount{ObjectMeta: in("default")}},
		{core + "/services/web", "/registry/services/specs/default/web", &corev1.Service{ObjectMeta: in("web"), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"}, Ports: ports, Selector: map[string]string{"a": "b"},
			SessionAffinity: corev1.ServiceAffinityNone, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
		}}},
		{"/apis/networking.k8s.io/v1/ipaddresses/10.96.0.10", "", &networkingv1.IPAddress{
			ObjectMeta: metav1.ObjectMeta{Name: "10.96.0.10", Labels: map[string]string{networkingv1.LabelIPAddressFamily: "IPv4", networkingv1.LabelManagedBy: "ipallocator.k8s.io"}},
			Spec:       networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: "web"}},
		}},
		{"/apis/networking.k8s.io/v1/servicecidrs/kubernetes", "", &networkingv1.ServiceCIDR{
			ObjectMeta: free("kubernetes"), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}},
		}},
		{core + "/endpoints/web", "/registry/services/endpoints/default/web", &corev1.Endpoints{ObjectMeta: in("web"), Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "10.244.0.5"}}, Ports: []corev1.EndpointPort{{Name: "http", Port: 8080, Protocol: corev1.ProtocolTCP}},
		}}}},
		{core + "/limitranges/l", "", &corev1.LimitRange{ObjectMeta: in("l"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypePod, Max: corev1.ResourceList{"memory": resource.MustParse("1Gi")},
		}}}}},
		{"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-x", "", &discoveryv1.EndpointSlice{
			ObjectMeta: in("web-x"), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.5"}}},
			Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
		}},
		{"/apis/coordination.k8s.io/v1/namespaces/default/leases/l", "", &coordinationv1.Lease{ObjectMeta: in("l"), Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("me"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &metav1.MicroTime{Time: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)},
		}}},
		{"/apis/rbac.authorization.k8s.io/v1/clusterroles/r", "", &rbacv1.ClusterRole{ObjectMeta: free("r"), Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"},
		}}}},
		{"/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/b", "", &rbacv1.RoleBinding{
			ObjectMeta: in("b"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "r"},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "u"}},
		}},
		{"/apis/scheduling.k8s.io/v1/priorityclasses/high", "", &schedulingv1.PriorityClass{
			ObjectMeta: free("high"), Value: 1000, PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority),
		}},
	}
}

// podOfUpstream is a pod's spec with upstream's defaults.
func podOfUpstream(restart corev1.RestartPolicy) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: restart, TerminationGracePeriodSeconds: ptr.To[int64](30), DNSPolicy: corev1.DNSClusterFirst,
		SecurityContext: &corev1.PodSecurityContext{}, SchedulerName: corev1.DefaultSchedulerName,
		Containers: []corev1.Container{{
			Name: "c", Image: "i:1", ImagePullPolicy: corev1.PullIfNotPresent,
			TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		}},
	}
}

func upstreamsWorkloads() []written {
	const apps, batch = "/apis/apps/v1/namespaces/default", "/apis/batch/v1/namespaces/default"
	labels := map[string]string{"a": "b"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podOfUpstream(corev1.RestartPolicyAlways)}
	quarter := intstr.FromString("25%")
	const uid = "11111111-1111-4111-8111-111111111111"
	made := map[string]string{"controller-uid": uid, "job-name": "pi", batchv1.ControllerUidLabel: uid, batchv1.JobNameLabel: "pi"}
	pod := podOfUpstream(corev1.RestartPolicyAlways)
	pod.NodeName, pod.ServiceAccountName, pod.DeprecatedServiceAccount = "n1", "default", "default"
	pod.EnableServiceLinks, pod.PreemptionPolicy, pod.Priority = ptr.To(true), ptr.To(corev1.PreemptLowerPriority), ptr.To[int32](0)
	return []written{
		{"/api/v1/namespaces/default/pods/p", "", &corev1.Pod{ObjectMeta: in("p"), Spec: pod, Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBestEffort, PodIP: "10.244.0.5", PodIPs: []corev1.PodIP{{IP: "10.244.0.5"}}}}},
		{"/api/v1/namespaces/default/replicationcontrollers/rc", "/registry/controllers/default/rc", &corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rc", Labels: labels, Generation: 1},
			Spec:       corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](1), Selector: labels, Template: &template},
		}},
		{apps + "/deployments/d", "", &appsv1.Deployment{ObjectMeta: in("d"), Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: selector, Template: template, RevisionHistoryLimit: ptr.To[int32](10), ProgressDeadlineSeconds: ptr.To[int32](600),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &quarter, MaxSurge: &quarter}},
		}}},
		{apps + "/statefulsets/db", "", &appsv1.StatefulSet{ObjectMeta: in("db"), Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](1), Selector: selector, Template: template, ServiceName: "db", RevisionHistoryLimit: ptr.To[int32](10),
			PodManagementPolicy: appsv1.OrderedReadyPodManagement,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{
				Partition: ptr.To[int32](0), MaxUnavailable: ptr.To(intstr.FromInt32(1)),
			}},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
				},
			}},
		}}},
		{batch + "/jobs/pi", "", &batchv1.Job{ObjectMeta: in("pi"), Spec: batchv1.JobSpec{
			Parallelism: ptr.To[int32](1), Completions: ptr.To[int32](1), BackoffLimit: ptr.To[int32](6), CompletionMode: ptr.To(batchv1.NonIndexedCompletion),
			Suspend: ptr.To(false), ManualSelector: ptr.To(false), PodReplacementPolicy: ptr.To(batchv1.TerminatingOrFailed),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: uid}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: made}, Spec: podOfUpstream(corev1.RestartPolicyNever)},
		}}},
		{batch + "/cronjobs/every", "", &batchv1.CronJob{ObjectMeta: in("every"), Spec: batchv1.CronJobSpec{
			Schedule: "@hourly", ConcurrencyPolicy: batchv1.AllowConcurrent, Suspend: ptr.To(false), SuccessfulJobsHistoryLimit: ptr.To[int32](3), FailedJobsHistoryLimit: ptr.To[int32](1),
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: podOfUpstream(corev1.RestartPolicyNever)}}},
		}}},
	}
}
