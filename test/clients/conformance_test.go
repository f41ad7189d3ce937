package clients

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// aStatus is a kind whose status clients may write, with a sample object and
// what they write: by a patch, then by an update, as fields of the status. Of budgets and
// quotas the whole status is their controllers': transcripts show it.
type aStatus struct {
	version, plural, sample string
	cluster                 bool
	bare                    bool // who writes the status changes no metadata
	patched, updated        string
	keeps                   string // a field of the spec that a write of the status cannot change, as a patch
	proves                  string
}

const aCondition = `conditions: [{type: %s, status: "True", reason: E2E, message: Set from a test}]`

var everyStatus = []aStatus{
	{version: "admissionregistration.k8s.io/v1", plural: "validatingadmissionpolicies", cluster: true, bare: true, sample: everySample("validatingadmissionpolicies"), keeps: `{failurePolicy: Ignore}`,
		patched: `{conditions: [{type: StatusPatched, status: "True", reason: E2E, message: Set from a test, lastTransitionTime: "2020-01-02T03:04:05Z"}]}`,
		updated: `{conditions: [{type: StatusUpdate, status: "True", reason: E2E, message: Set from a test, lastTransitionTime: "2020-01-02T03:04:05Z"}]}`},
	{version: "apps/v1", plural: "replicasets", sample: everySample("replicasets"), keeps: `{minReadySeconds: 9}`, patched: fmt.Sprintf(aCondition, "StatusPatched"), updated: fmt.Sprintf(aCondition, "StatusUpdate")},
	{version: "apps/v1", plural: "daemonsets", proves: "C-013", sample: everySample("daemonsets"), keeps: `{minReadySeconds: 9}`, patched: fmt.Sprintf(aCondition, "StatusPatched"), updated: fmt.Sprintf(aCondition, "StatusUpdate")},
	{version: "apps/v1", plural: "statefulsets", proves: "C-060", sample: everySample("statefulsets"), keeps: `{replicas: 9}`, patched: fmt.Sprintf(aCondition, "StatusPatched"), updated: fmt.Sprintf(aCondition, "StatusUpdate")},
	{version: "certificates.k8s.io/v1", plural: "certificatesigningrequests", cluster: true, sample: everySample("certificatesigningrequests"), keeps: `{signerName: example.com/other}`, patched: fmt.Sprintf(aCondition, "StatusPatched"), updated: fmt.Sprintf(aCondition, "StatusUpdate")},
	{version: "batch/v1", plural: "jobs", proves: "C-030", sample: everySample("jobs"), keeps: `{parallelism: 9}`, patched: fmt.Sprintf(aCondition, "StatusPatched"), updated: fmt.Sprintf(aCondition, "StatusUpdate")},
	{version: "batch/v1", plural: "cronjobs", proves: "C-006/status", sample: everySample("cronjobs"), keeps: `{schedule: "1 0 1 1 *"}`, patched: `{lastScheduleTime: "2020-01-02T03:04:05Z"}`, updated: `{lastScheduleTime: "2021-01-02T03:04:05Z"}`},
	{version: "networking.k8s.io/v1", plural: "ingresses", proves: "C-209", sample: everySample("ingresses"), keeps: `{ingressClassName: other}`, patched: `{loadBalancer: {ingress: [{ip: 169.1.1.1}]}}`, updated: `{loadBalancer: {ingress: [{ip: 169.1.1.1}, {hostname: example.com}]}}`},
	{version: "v1", plural: "persistentvolumes", cluster: true, sample: everySample("persistentvolumes"), keeps: `{storageClassName: other}`, patched: `{phase: Available, reason: E2E patch, message: from a patch}`, updated: `{reason: E2E update, message: from an update}`},
	{version: "v1", plural: "persistentvolumeclaims", proves: "C-397", sample: everySample("persistentvolumeclaims"), keeps: `{volumeName: other}`, patched: fmt.Sprintf(aCondition, "StatusPatched"), updated: fmt.Sprintf(aCondition, "StatusUpdate")},
	{version: "v1", plural: "replicationcontrollers", sample: everySample("replicationcontrollers"), keeps: `{replicas: 9}`, patched: fmt.Sprintf(aCondition, "StatusPatched"), updated: fmt.Sprintf(aCondition, "StatusUpdate")},
	{version: "v1", plural: "services", sample: `spec: {type: LoadBalancer, ports: [{port: 80}]}`, keeps: `{sessionAffinity: ClientIP}`, patched: `{loadBalancer: {ingress: [{ip: 203.0.113.1}]}}`, updated: fmt.Sprintf(aCondition, "StatusUpdate")},
}

// everySample is the sample of a kind in the list of all.
func everySample(plural string) string {
	for _, k := range everyKind {
		if k.plural == plural {
			return k.sample
		}
	}
	return ""
}

// fieldsOf reads a part of an object that is written in YAML.
func fieldsOf(t *testing.T, text string) (out map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

func TestEveryStatusKeepsWhatIsWrittenToItAlone(t *testing.T) {
	client, err := dynamic.NewForConfig(theServer.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range everyStatus {
		t.Run(k.plural, func(t *testing.T) {
			t.Parallel()
			if k.proves != "" {
				trace.Proves(t, strings.Fields(k.proves)...)
			}
			gv, _ := schema.ParseGroupVersion(k.version)
			v := &verbs{T: t, by: "status-", k: aKind{version: k.version, plural: k.plural, sample: k.sample}}
			v.all = client.Resource(gv.WithResource(k.plural))
			v.own = v.all
			if !k.cluster {
				v.namespace = "status-" + k.plural
				theServer.namespace(t, v.namespace)
				v.own = client.Resource(gv.WithResource(k.plural)).Namespace(v.namespace)
			}
			v.status(k)
		})
	}
}

// status writes the status of a kind in the two ways there are.
func (v *verbs) status(k aStatus) {
	ctx := v.Context()
	w, err := v.own.Watch(ctx, v.chosen())
	if err != nil {
		v.Fatal(err)
	}
	defer w.Stop()
	made := v.good("create")(v.own.Create(ctx, v.sample("status-one"), metav1.CreateOptions{}))
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"patched": "true"}},
		"spec":     fieldsOf(v.T, k.keeps), "status": fieldsOf(v.T, k.patched),
	})
	if err != nil {
		v.Fatal(err)
	}
	v.good("patch")(v.own.Patch(ctx, "status-one", types.MergePatchType, body, metav1.PatchOptions{}, "status"))
	got := v.good("get")(v.own.Get(ctx, "status-one", metav1.GetOptions{}, "status"))
	v.hasStatus(got, k.patched)
	if taken := got.GetAnnotations()["patched"] == "true"; taken == k.bare {
		v.Errorf("got annotations %v; that of the patch is to be there: %t", got.GetAnnotations(), !k.bare)
	}
	err = wait.Try(wait.Patience, func() error {
		now, err := v.own.Get(ctx, "status-one", metav1.GetOptions{}, "status")
		if err != nil {
			return err
		}
		status, _ := now.Object["status"].(map[string]any)
		if status == nil {
			status = map[string]any{}
		}
		for name, value := range fieldsOf(v.T, k.updated) {
			status[name] = value
		}
		now.Object["status"] = status
		now.Object["spec"] = made.Object["spec"]
		_, err = v.own.UpdateStatus(ctx, now, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		v.Fatalf("update: %v", err)
	}
	got = v.good("get")(v.own.Get(ctx, "status-one", metav1.GetOptions{}))
	v.hasStatus(got, k.updated)
	if !equality.Semantic.DeepEqual(got.Object["spec"], made.Object["spec"]) || got.GetUID() != made.GetUID() {
		v.Errorf("a write of the status changed the spec:\ngot  %v\nwant %v", got.Object["spec"], made.Object["spec"])
	}
	for deadline := time.After(wait.Patience); ; { // and a watch tells of it
		select {
		case e := <-w.ResultChan():
			if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == "MODIFIED" && subset(fieldsOf(v.T, k.updated), u.Object["status"]) {
				return
			}
		case <-deadline:
			v.Fatalf("no event with the status %s", k.updated)
		}
	}
}

// hasStatus looks for written fields in an object's status.
func (v *verbs) hasStatus(u *unstructured.Unstructured, want string) {
	v.Helper()
	if !subset(fieldsOf(v.T, want), u.Object["status"]) {
		v.Errorf("got status %v, want %s", u.Object["status"], want)
	}
}

// subset reports whether all that want says is in got.
func subset(want, got any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for name := range w {
			if !subset(w[name], g[name]) {
				return false
			}
		}
		return true
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return false
		}
		for i := range w {
			if !subset(w[i], g[i]) {
				return false
			}
		}
		return true
	}
	return fmt.Sprint(want) == fmt.Sprint(got)
}

// TestCollectionsAreDeletedByLabelInOneNamespaceOnly makes two objects in one
// namespace and one in another, patches one, and deletes those with the label.
func TestCollectionsAreDeletedByLabelInOneNamespaceOnly(t *testing.T) {
	client, err := dynamic.NewForConfig(theServer.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ plural, proves, patch, want string }{
		{"limitranges", "C-344", `{"spec":{"limits":[{"type":"Pod","min":{"cpu":"2m"}}]}}`, `{spec: {limits: [{type: Pod, min: {cpu: 2m}}]}}`},
		{"secrets", "C-321", `{"data":{"a":"Yw=="}}`, `{data: {a: Yw==}}`},
		{"services", "C-229", `{"spec":{"ports":[{"port":80,"name":"http"}]}}`, `{spec: {ports: [{port: 80, name: http}]}}`},
		{"pods", "C-295", `{"metadata":{"annotations":{"a":"b"}}}`, `{metadata: {annotations: {a: b}}}`},
		{"endpoints", "C-205", `{"subsets":[{"addresses":[{"ip":"192.0.2.7"}],"ports":[{"port":8080}]}]}`, `{subsets: [{addresses: [{ip: 192.0.2.7}], ports: [{port: 8080}]}]}`},
		{"leases", "", `{"spec":{"holderIdentity":"other"}}`, `{spec: {holderIdentity: other, renewTime: "2020-01-02T03:04:05.123456Z"}}`},
	} {
		t.Run(c.plural, func(t *testing.T) {
			t.Parallel()
			if c.proves != "" {
				trace.Proves(t, c.proves)
			}
			k := sampleKind(c.plural)
			gv, _ := schema.ParseGroupVersion(k.version)
			of := client.Resource(gv.WithResource(c.plural))
			v := &verbs{T: t, by: "collect-", all: of, k: k}
			one, two := "collect-"+c.plural, "collect-other-"+c.plural
			for _, ns := range []string{one, two} {
				theServer.namespace(t, ns)
				v.good("create")(of.Namespace(ns).Create(t.Context(), v.sample("chosen"), metav1.CreateOptions{}))
			}
			other := v.sample("left")
			other.SetLabels(map[string]string{"left": "over"})
			v.good("create")(of.Namespace(one).Create(t.Context(), other, metav1.CreateOptions{}))
			v.listsChosen("chosen chosen")
			patched := v.good("patch")(of.Namespace(one).Patch(t.Context(), "chosen", types.StrategicMergePatchType, []byte(c.patch), metav1.PatchOptions{}))
			if !subset(fieldsOf(t, c.want), patched.Object) {
				t.Errorf("patch: got %v, want %s", patched.Object, c.want)
			}
			relabelled := v.good("get")(of.Namespace(one).Get(t.Context(), "chosen", metav1.GetOptions{}))
			relabelled.SetLabels(map[string]string{"verbs": "collect-" + c.plural, "updated": "yes"})
			v.good("update")(of.Namespace(one).Update(t.Context(), relabelled, metav1.UpdateOptions{}))
			w, err := of.Namespace(one).Watch(t.Context(), metav1.ListOptions{LabelSelector: "updated=yes"})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			now := int64(0)
			if err := of.Namespace(one).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: "verbs=collect-" + c.plural + ",updated=yes"}); err != nil {
				t.Fatal(err)
			}
			v.expect(w, "DELETED", "chosen")
			v.listsChosen("chosen")
			v.good("get")(of.Namespace(two).Get(t.Context(), "chosen", metav1.GetOptions{}))
			v.good("get")(of.Namespace(one).Get(t.Context(), "left", metav1.GetOptions{}))
		})
	}
}

func sampleKind(plural string) aKind {
	for _, k := range everyKind {
		if k.plural == plural {
			return k
		}
	}
	return aKind{}
}

// listsChosen lists the chosen objects of all namespaces by their names.
func (v *verbs) listsChosen(want string) {
	v.Helper()
	list, err := v.all.List(v.Context(), v.chosen())
	if err != nil {
		v.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	if got := strings.Join(names, " "); got != want {
		v.Errorf("got the objects %q, want %q", got, want)
	}
}

// TestLeasesKeepMicroseconds follows a lease through its life.
func TestLeasesKeepMicroseconds(t *testing.T) {
	trace.Proves(t, "C-274")
	t.Parallel()
	theServer.namespace(t, "lease")
	leases := theServer.client.CoordinationV1().Leases("lease")
	at := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC))
	holder, seconds := "one", int32(30)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "lease"}}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime, lease.Spec.AcquireTime = &holder, &seconds, &at, &at
	if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := leases.Get(t.Context(), "lease", metav1.GetOptions{})
	if err != nil || !equality.Semantic.DeepEqual(got.Spec, lease.Spec) {
		t.Fatalf("got %v, %v; want %v", got.Spec, err, lease.Spec)
	}
	next := metav1.NewMicroTime(at.Add(time.Microsecond))
	got.Spec.RenewTime = &next
	if got, err = leases.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil || !got.Spec.RenewTime.Equal(&next) {
		t.Fatalf("update: got %v, %v; want %v", got.Spec.RenewTime, err, next)
	}
	if got, err = leases.Patch(t.Context(), "lease", types.StrategicMergePatchType, []byte(`{"spec":{"leaseTransitions":3}}`), metav1.PatchOptions{}); err != nil || *got.Spec.LeaseTransitions != 3 || !got.Spec.RenewTime.Equal(&next) {
		t.Fatalf("patch: got %v, %v", got.Spec, err)
	}
	second := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "second", Labels: map[string]string{"deletecollection": "true"}}}
	if _, err := leases.Create(t.Context(), second, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if list, err := leases.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 2 {
		t.Fatalf("got %v, %v; want 2 leases", list, err)
	}
	if err := leases.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "deletecollection=true"}); err != nil {
		t.Fatal(err)
	}
	if list, err := leases.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 || list.Items[0].Name != "lease" {
		t.Fatalf("got %v, %v; want the first lease alone", list, err)
	}
	if err := leases.Delete(t.Context(), "lease", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := leases.Get(t.Context(), "lease", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("got %v, want it not to be found", err)
	}
}

// TestPodsAreResizedAndReadThroughTheirSubresource reads what a resize wrote by
// clients of both encodings.
func TestPodsAreResizedAndReadThroughTheirSubresource(t *testing.T) {
	trace.Proves(t, "C-283")
	t.Parallel()
	theServer.namespace(t, "resize")
	config := rest.CopyConfig(theServer.config)
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"
	proto, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pods := theServer.client.CoreV1().Pods("resize")
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(`{metadata: {name: p}, spec: {containers: [{name: c, image: c, resources: {requests: {cpu: 10m, memory: 20Mi}, limits: {cpu: 10m, memory: 20Mi}}}]}}`), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, func() error {
		if pod, err = pods.Get(t.Context(), "p", metav1.GetOptions{}); err != nil || pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod is %s, %v", pod.Status.Phase, err)
		}
		return nil
	})
	if pod.Generation != 1 {
		t.Errorf("got generation %d, want 1", pod.Generation)
	}
	changed := pod.DeepCopy()
	cpu := changed.Spec.Containers[0].Resources.Limits.Cpu().DeepCopy()
	cpu.Add(cpu)
	changed.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU], changed.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = cpu, cpu
	answer, err := pods.UpdateResize(t.Context(), "p", changed, metav1.UpdateOptions{})
	if err != nil || answer.Spec.Containers[0].Resources.Limits.Cpu().String() != "20m" || answer.Generation != 2 {
		t.Fatalf("resize: got %v of generation %d, %v; want 20m of generation 2", answer.Spec.Containers[0].Resources, answer.Generation, err)
	}
	wait.Until(t, func() error {
		whole, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
		if err != nil {
			return err
		}
		read := &corev1.Pod{}
		if err := proto.CoreV1().RESTClient().Get().Namespace("resize").Resource("pods").Name("p").SubResource("resize").Do(t.Context()).Into(read); err != nil {
			return err
		}
		if !equality.Semantic.DeepEqual(read, whole) {
			return fmt.Errorf("pods/resize reads\n%v\nand the pod is\n%v", read, whole)
		}
		return nil
	})
}

// TestPodsAreWrittenInEveryWayWhileTheyRun follows a pod through its life.
func TestPodsAreWrittenInEveryWayWhileTheyRun(t *testing.T) {
	trace.Proves(t, "C-293", "C-297", "C-298")
	t.Parallel()
	theServer.namespace(t, "pod-life")
	pods := theServer.client.CoreV1().Pods("pod-life")
	w, err := pods.Watch(t.Context(), metav1.ListOptions{LabelSelector: "test-pod-static=true"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	seen := func(what string, ok func(kind watch.EventType, pod *corev1.Pod) bool) {
		t.Helper()
		for deadline := time.After(wait.Patience); ; {
			select {
			case e := <-w.ResultChan():
				if pod, isPod := e.Object.(*corev1.Pod); isPod && ok(e.Type, pod) {
					return
				}
			case <-deadline:
				t.Fatalf("no event of a pod %s", what)
			}
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"test-pod-static": "true", "time": "first"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "one"}}}}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	seen("that runs", func(_ watch.EventType, pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	if _, err := pods.Patch(t.Context(), "p", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"test-pod":"patched"}},"spec":{"containers":[{"name":"c","image":"two"}]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	seen("with another image", func(_ watch.EventType, pod *corev1.Pod) bool {
		return pod.Labels["test-pod"] == "patched" && pod.Spec.Containers[0].Image == "two"
	})
	// Its status is written by others than its node.
	now := metav1.Now()
	for _, reason := range []string{"patched", "replaced"} {
		err := wait.Try(wait.Patience, func() error {
			pod, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
			if err != nil {
				return err
			}
			condition := corev1.PodCondition{Type: "example.com/seen", Status: corev1.ConditionFalse, Reason: reason, Message: "by a test", LastTransitionTime: now}
			if reason == "patched" {
				body, err := json.Marshal(map[string]any{"status": map[string]any{"message": "patched", "reason": "E2E", "conditions": []any{condition}}})
				if err != nil {
					return err
				}
				_, err = pods.Patch(t.Context(), "p", types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
				return err
			}
			for i := range pod.Status.Conditions {
				if pod.Status.Conditions[i].Type == condition.Type {
					pod.Status.Conditions[i] = condition
				}
			}
			_, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		seen("whose condition is "+reason, func(_ watch.EventType, pod *corev1.Pod) bool {
			for _, c := range pod.Status.Conditions {
				if c.Type == "example.com/seen" && c.Reason == reason {
					return true
				}
			}
			return false
		})
	}
	if pod, err = pods.Get(t.Context(), "p", metav1.GetOptions{}); err != nil || pod.Status.Message != "patched" || pod.Status.Reason != "E2E" {
		t.Errorf("got message %q, reason %q, %v", pod.Status.Message, pod.Status.Reason, err)
	}
	pod.Labels["time"] = "second"
	pod.ResourceVersion = ""
	if _, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "time=second"}); err != nil || len(list.Items) != 1 {
		t.Errorf("by its new label: got %v, %v", list, err)
	}
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "test-pod-static=true"}); err != nil {
		t.Fatal(err)
	}
	seen("that is gone", func(kind watch.EventType, _ *corev1.Pod) bool { return kind == watch.Deleted })
}

// TestVolumesAndTheirClaimsLiveAndGo makes, labels and deletes both, twice.
func TestVolumesAndTheirClaimsLiveAndGo(t *testing.T) {
	trace.Proves(t, "C-398")
	t.Parallel()
	theServer.namespace(t, "volume-life")
	client, err := dynamic.NewForConfig(theServer.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, plural := range []string{"persistentvolumes", "persistentvolumeclaims"} {
		v := &verbs{T: t, by: "life-", k: sampleKind(plural)}
		v.own = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: plural})
		if !v.k.cluster {
			v.own = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: plural}).Namespace("volume-life")
		}
		o := metav1.ListOptions{LabelSelector: "life=" + plural}
		for round := range 2 {
			sample := v.sample("life")
			sample.SetLabels(map[string]string{"life": plural})
			made := v.good("create")(v.own.Create(t.Context(), sample, metav1.CreateOptions{}))
			if list, err := v.own.List(t.Context(), o); err != nil || len(list.Items) != 1 {
				t.Errorf("%s: got %v, %v; want one", plural, list, err)
			}
			patched := v.good("patch")(v.own.Patch(t.Context(), "life", types.MergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{}))
			if got := v.good("get")(v.own.Get(t.Context(), "life", metav1.GetOptions{})); got.GetUID() != made.GetUID() || got.GetLabels()["patched"] != "yes" || patched.GetUID() != made.GetUID() {
				t.Errorf("%s: got %v, want the same object with a label", plural, got.Object["metadata"])
			}
			if round == 0 {
				err = v.own.Delete(t.Context(), "life", metav1.DeleteOptions{})
			} else {
				err = v.own.DeleteCollection(t.Context(), metav1.DeleteOptions{}, o)
			}
			if err != nil {
				t.Fatal(err)
			}
			wait.Until(t, func() error {
				if list, err := v.own.List(t.Context(), o); err != nil || len(list.Items) > 0 {
					return fmt.Errorf("%s: still there: %v, %v", plural, list, err)
				}
				return nil
			})
		}
	}
}

func TestHealthNamesWhatItChecks(t *testing.T) {
	t.Parallel()
	const (
		alive = "[+]ping ok\n[+]log ok\n[+]etcd ok\n"
		ready = alive + "[+]etcd-readiness ok\n[+]informer-sync ok\n"
		hooks = "[+]poststarthook/start-apiserver-admission-initializer ok\n[+]poststarthook/start-system-namespaces-controller ok\n" +
			"[+]poststarthook/scheduling/bootstrap-system-priority-classes ok\n[+]poststarthook/rbac/bootstrap-roles ok\n" +
			"[+]poststarthook/crd-informer-synced ok\n[+]poststarthook/start-apiextensions-controllers ok\n" +
			"[+]poststarthook/generic-apiserver-start-informers ok\n[+]poststarthook/priority-and-fairness-config-consumer ok\n" +
			"[+]poststarthook/priority-and-fairness-filter ok\n[+]poststarthook/storage-object-count-tracker-hook ok\n" +
			"[+]poststarthook/start-apiextensions-informers ok\n[+]poststarthook/start-cluster-authentication-info-controller ok\n" +
			"[+]poststarthook/start-kube-aggregator-informers ok\n[+]poststarthook/apiservice-status-local-available-controller ok\n" +
			"[+]poststarthook/apiservice-status-remote-available-controller ok\n[+]poststarthook/apiservice-registration-controller ok\n" +
			"[+]poststarthook/apiservice-discovery-controller ok\n[+]poststarthook/kube-apiserver-autoregistration ok\n" +
			"[+]autoregister-completion ok\n[+]poststarthook/apiservice-openapi-controller ok\n[+]poststarthook/apiservice-openapiv3-controller ok\n" +
			"[+]poststarthook/start-service-ip-repair-controllers ok\n"
	)
	for path, want := range map[string]string{
		"/livez?verbose":               alive + hooks + "livez check passed\n",
		"/healthz?verbose":             alive + hooks + "healthz check passed\n",
		"/readyz?verbose":              ready + hooks + "[+]shutdown ok\nreadyz check passed\n",
		"/readyz?verbose&exclude=etcd": strings.Replace(ready, "etcd ok", "etcd excluded: ok", 1) + hooks + "[+]shutdown ok\nreadyz check passed\n",
		"/readyz/etcd":                 "ok", "/readyz": "ok", "/livez": "ok", "/healthz": "ok",
		"/livez/poststarthook/rbac/bootstrap-roles": "ok", "/readyz/shutdown": "ok", "/livez/ping": "ok", "/healthz/log": "ok",
	} {
		if got := ask(t, "GET", path, ""); got.code != 200 || got.body != want {
			t.Errorf("%s: got %d %q, want %q", path, got.code, got.body, want)
		}
	}
}
