package webhook_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatAWebhookIsAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.on("/allow", allow)
	const rules = `"rules":[{"operations":["*"],"apiGroups":["","apps"],"apiVersions":["v1"],"resources":["*/*"],"scope":"Namespaced"}]`
	w.must(201, "POST", validatingPath, config("v", w.hook("/allow", rules+`,"objectSelector":{"matchExpressions":[{"key":"unasked","operator":"DoesNotExist"}]}`)))
	w.asked()
	w.must(201, "POST", mapsPath+"?fieldManager=me", `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	w.must(200, "PATCH", mapsPath+"/a?dryRun=All", `{"data":{"k":"w"}}`, patchMerge)
	w.must(200, "DELETE", mapsPath+"/a?propagationPolicy=Background", "")
	w.must(201, "POST", "/apis/extensions/v1beta1/namespaces/shop/deployments", `{"metadata":{"name":"d"},"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	w.must(200, "PATCH", "/apis/apps/v1/namespaces/shop/deployments/d/scale", `{"spec":{"replicas":0}}`, patchMerge)
	w.must(200, "PATCH", "/apis/apps/v1/namespaces/shop/deployments/d/status", `{"status":{"observedGeneration":1}}`, patchMerge)
	w.must(201, "POST", "/api/v1/namespaces/shop/services", `{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}`)
	var got []string
	for _, r := range w.asked() {
		q := r.Request
		if q.UserInfo.Username != "admin" {
			continue // a controller
		}
		var obj, old struct {
			APIVersion, Kind string
			Metadata         metav1.ObjectMeta
			Spec             struct{ ClusterIP string }
			Data             map[string]string
		}
		for into, raw := range map[any][]byte{&obj: q.Object.Raw, &old: q.OldObject.Raw} {
			if raw == nil || string(raw) == "null" {
				continue
			}
			if err := json.Unmarshal(raw, into); err != nil {
				t.Fatalf("%v in %s", err, raw)
			}
		}
		var options metav1.TypeMeta
		if err := json.Unmarshal(q.Options.Raw, &options); err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprintf("%s %s/%s %s/%s.%s %s.%s/%s %s as %s.%s: %s %s, was %s; %s; dry %t", r.APIVersion, q.Namespace, q.Name, q.Resource.Resource, q.SubResource, q.Resource.Version,
			q.RequestResource.Resource, q.RequestResource.Version, q.RequestResource.Group, q.Operation, q.Kind.Kind, q.Kind.Version, obj.APIVersion, obj.Kind, old.Kind, options.Kind, *q.DryRun)
		got = append(got, what)
		if q.Resource.Resource == "services" && obj.Spec.ClusterIP == "" {
			t.Error("a validating webhook does not see the cluster IP of a service")
		}
		if q.UserInfo.UID != "7" || !slices.Equal(q.UserInfo.Extra["team"], []string{"a", "b"}) {
			t.Errorf("got user %+v", q.UserInfo)
		}
	}
	want := []string{
		"admission.k8s.io/v1 shop/a configmaps/.v1 configmaps.v1/ CREATE as ConfigMap.v1: v1 ConfigMap, was ; CreateOptions; dry false",
		"admission.k8s.io/v1 shop/a configmaps/.v1 configmaps.v1/ UPDATE as ConfigMap.v1: v1 ConfigMap, was ConfigMap; UpdateOptions; dry true",
		"admission.k8s.io/v1 shop/a configmaps/.v1 configmaps.v1/ DELETE as ConfigMap.v1:  , was ConfigMap; DeleteOptions; dry false",
		"admission.k8s.io/v1 shop/d deployments/.v1 deployments.v1beta1/extensions CREATE as Deployment.v1: apps/v1 Deployment, was ; CreateOptions; dry false",
		"admission.k8s.io/v1 shop/d deployments/scale.v1 deployments.v1/apps UPDATE as Scale.v1: autoscaling/v1 Scale, was Scale; UpdateOptions; dry false",
		"admission.k8s.io/v1 shop/d deployments/status.v1 deployments.v1/apps UPDATE as Deployment.v1: apps/v1 Deployment, was Deployment; UpdateOptions; dry false",
		"admission.k8s.io/v1 shop/s services/.v1 services.v1/ CREATE as Service.v1: v1 Service, was ; CreateOptions; dry false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWhatAMutatingWebhookMakesIsHeldToBeSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const pods = "/api/v1/namespaces/shop/pods"
	const pod = `{"metadata":{"name":"%s"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	rules := `"rules":[{"operations":["CREATE","UPDATE"],"apiGroups":["","apps"],"apiVersions":["v1"],"resources":["pods","configmaps","deployments/scale"]}]`
	use := func(operations string) {
		w.on("/patch", patching(operations))
	}
	use(`[]`)
	w.must(201, "POST", mutatingPath, config("m", w.hook("/patch", rules)))

	// Defaults come to what it adds, and the server's own fields stay the server's.
	use(`[{"op":"add","path":"/spec/containers/-","value":{"name":"side","image":"car:1","ports":[{"containerPort":80}]}},{"op":"add","path":"/spec/unknown","value":1},
		{"op":"add","path":"/metadata/uid","value":"mine"},{"op":"add","path":"/metadata/resourceVersion","value":"77"}]`)
	var p corev1.Pod
	if err := json.Unmarshal([]byte(w.must(201, "POST", pods, fmt.Sprintf(pod, "a"))), &p); err != nil {
		t.Fatal(err)
	}
	c := p.Spec.Containers[len(p.Spec.Containers)-1]
	if len(p.Spec.Containers) != 2 || c.ImagePullPolicy != corev1.PullIfNotPresent || c.Ports[0].Protocol != corev1.ProtocolTCP || c.TerminationMessagePath == "" || p.UID == "mine" || p.ResourceVersion == "77" {
		t.Errorf("got %+v of %+v", p.Spec.Containers, p.ObjectMeta)
	}
	// A volume of the service account, which plugins of the server add before, is there once, and in the new container too.
	if len(c.VolumeMounts) != 1 || len(p.Spec.Volumes) != 1 {
		t.Errorf("got %d mounts and %d volumes, want those of the service account", len(c.VolumeMounts), len(p.Spec.Volumes))
	}

	for _, tc := range []struct {
		operations string
		code       int
		want       string
	}{
		{`[{"op":"add","path":"/spec/containers/-","value":{"name":"c","image":"i"}}]`, 422, `Duplicate value: "c"`},
		{`[{"op":"replace","path":"/metadata/name","value":"B B"}]`, 422, "metadata.name: Invalid value"},
		{`[{"op":"replace","path":"/metadata/namespace","value":"exempt"}]`, 400, "the namespace of the provided object does not match the namespace sent on the request"},
		{`[{"op":"replace","path":"/kind","value":"Service"}]`, 500, "Internal error occurred"},
		{`[{"op":"remove","path":"/spec/none"}]`, 500, "Internal error occurred"},
		{`[{"op":"add","path":"/spec/hostPID","value":"often"}]`, 500, "Internal error occurred"},
		{`{"spec":{}}`, 500, "received undecodable patch in webhook response"},
		{`[` + strings.Repeat(`{"op":"copy","from":"/spec","path":"/spec/x"},`, 200) + `{"op":"test","path":"/kind","value":"Pod"}]`, 500, "Internal error occurred"},
	} {
		use(tc.operations)
		w.refused(tc.code, tc.want, "POST", pods, fmt.Sprintf(pod, "b"))
	}

	// By a scale it changes how many replicas there are to be, and nothing else.
	use(`[]`)
	w.must(201, "POST", "/apis/apps/v1/namespaces/shop/deployments", `{"metadata":{"name":"d"},"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	use(`[{"op":"replace","path":"/spec/replicas","value":3}]`)
	if got := w.must(200, "PUT", "/apis/apps/v1/namespaces/shop/deployments/d/scale", `{"metadata":{"name":"d"},"spec":{"replicas":9}}`); !strings.Contains(got, `"spec":{"replicas":3}`) {
		t.Errorf("got %s, want 3 replicas", got)
	}

	// Fields that it claims for managers nobody can read stay with whom they were.
	use(`[{"op":"replace","path":"/metadata/managedFields/0/operation","value":"Steal"}]`)
	rec := w.ask("POST", mapsPath, `{"metadata":{"name":"managed"},"data":{"k":"v"}}`)
	if got := rec.Header().Get("Warning"); rec.Code != 201 || !strings.Contains(got, ".metadata.managedFields was in an invalid state after admission") || strings.Contains(rec.Body.String(), "Steal") {
		t.Errorf("got %d %q %s", rec.Code, got, rec.Body)
	}
}

func TestWebhooksAreAskedAgainIfOthersChangeSomething(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	count := func(key string) func(r *admissionv1.AdmissionReview) any {
		return func(r *admissionv1.AdmissionReview) any {
			var m corev1.ConfigMap
			if err := json.Unmarshal(r.Request.Object.Raw, &m); err != nil {
				return err.Error()
			}
			return patching(fmt.Sprintf(`[{"op":"add","path":"/data/%s","value":"%sx"}]`, key, m.Data[key]))(r)
		}
	}
	w.on("/again", count("again"))
	w.on("/once", count("once"))
	w.on("/last", count("last"))
	const again = `"reinvocationPolicy":"IfNeeded"`
	w.must(201, "POST", mutatingPath, config("b-second", w.hook("/once", ""), w.hook("/last", `"name":"b.example.com",`+again)))
	w.must(201, "POST", mutatingPath, config("a-first", w.hook("/again", again)))
	got := data(t, w.must(201, "POST", mapsPath, `{"metadata":{"name":"a"},"data":{"k":"v"}}`))
	// The first is asked again as later ones have changed something, and that has the last asked again.
	if got["again"] != "xx" || got["once"] != "x" || got["last"] != "xx" {
		t.Errorf("got %v, want the two that say so asked twice", got)
	}
	var order []string
	for _, r := range w.asked() {
		if r.Request.UserInfo.Username == "admin" {
			order = append(order, string(r.Request.Operation))
		}
	}
	if len(order) != 5 {
		t.Errorf("got %d calls, want 5", len(order))
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const create = `{"metadata":{"generateName":"m-"}}`
	w.must(201, "POST", mutatingPath, config("m", w.hook("/answer", "")))
	kind := admissionv1.PatchTypeJSONPatch
	other := admissionv1.PatchType("Merge")
	empty := admissionv1.PatchType("")
	for _, tc := range []struct {
		answer any
		want   string
	}{
		{&admissionv1.AdmissionResponse{UID: "another", Allowed: true}, `received invalid webhook response: expected response.uid="`},
		{`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, "received invalid webhook response: webhook response was absent"},
		{`{"response":{"uid":"%s","allowed":true}}`, "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="},
		{`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","response":{"uid":"%s","allowed":true}}`, "got admission.k8s.io/v1beta1, Kind=AdmissionReview"},
		{&admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[]`)}, "webhook returned response.patch but not response.patchType"},
		{&admissionv1.AdmissionResponse{Allowed: true, PatchType: &kind}, "webhook returned response.patchType but not response.patch"},
		{&admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[]`), PatchType: &empty}, `webhook returned invalid response.patchType of ""`},
		{&admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[{"op":"remove","path":"/data"}]`), PatchType: &other}, `unsupported patch type "Merge"`},
		{"not even JSON", "failed to call webhook: read the answer"},
	} {
		w.on("/answer", func(r *admissionv1.AdmissionReview) any {
			if text, ok := tc.answer.(string); ok {
				return strings.ReplaceAll(text, "%s", string(r.Request.UID))
			}
			return tc.answer
		})
		w.refused(500, tc.want, "POST", mapsPath, create)
	}
	w.must(200, "DELETE", mutatingPath+"/m", "")
	w.must(201, "POST", validatingPath, config("v", w.hook("/answer", "")))
	w.on("/answer", patching(`[{"op":"remove","path":"/data"}]`))
	w.refused(500, "validating webhook may not return response.patch", "POST", mapsPath, create)

	// Those of the older version were never held to be exact.
	w.replace(validatingPath+"/v", config("v", w.hook("/answer", `"admissionReviewVersions":["v2","v1beta1","v1"]`)))
	w.on("/answer", func(*admissionv1.AdmissionReview) any { return `{"response":{"allowed":true,"patch":"W10="}}` })
	w.must(201, "POST", mapsPath, create)
	if all := w.asked(); all[len(all)-1].APIVersion != "admission.k8s.io/v1beta1" {
		t.Errorf("got a review of %s, want the first version that both know", all[len(all)-1].APIVersion)
	}
}

func TestSideEffectsAndWarnings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.on("/warn", func(*admissionv1.AdmissionReview) any {
		return &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"first", "second"}, AuditAnnotations: map[string]string{"why": "so"}}
	})
	w.on("/teapot", func(*admissionv1.AdmissionReview) any {
		return &admissionv1.AdmissionResponse{Warnings: []string{"third"}, Result: &metav1.Status{Message: "no coffee", Reason: "Teapot", Code: 418}}
	})
	w.must(201, "POST", validatingPath, config("v", w.hook("/warn", ""), w.hook("/teapot", `"name":"b.example.com","objectSelector":{"matchLabels":{"coffee":"yes"}}`)))
	rec := w.ask("POST", mapsPath+"?dryRun=All", `{"metadata":{"name":"a"}}`)
	if got := strings.Join(rec.Header().Values("Warning"), ", "); rec.Code != 201 || !strings.Contains(got, `"first"`) || !strings.Contains(got, `"second"`) {
		t.Errorf("got %d, warnings %s", rec.Code, got)
	}
	rec = w.ask("POST", mapsPath, `{"metadata":{"name":"a","labels":{"coffee":"yes"}}}`)
	if got := rec.Body.String(); rec.Code != 418 || !strings.Contains(got, `"message":"admission webhook \"b.example.com\" denied the request: no coffee","reason":"Teapot"`) || !strings.Contains(strings.Join(rec.Header().Values("Warning"), ""), "third") {
		t.Errorf("got %d %s, warnings %v", rec.Code, got, rec.Header().Values("Warning"))
	}
	w.must(200, "DELETE", validatingPath+"/v", "")

	// Only configurations of the older version may have side effects: they cannot be tried.
	w.must(201, "POST", "/apis/admissionregistration.k8s.io/v1beta1/validatingwebhookconfigurations", config("old", w.hook("/warn", `"sideEffects":"Some"`)))
	w.refused(400, `admission webhook "a.example.com" does not support dry run`, "POST", mapsPath+"?dryRun=All", `{"metadata":{"name":"a"}}`)
	w.must(201, "POST", mapsPath, `{"metadata":{"name":"a"}}`)
}

func TestConnectionsAreAskedAbout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/namespaces/shop/pods", `{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
	w.on("/deny", func(r *admissionv1.AdmissionReview) any {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: fmt.Sprintf("attaching to pod '%s' is not allowed: %s %s %s", r.Request.Name, r.Request.Kind.Kind, r.Request.SubResource, r.Request.Operation)}}
	})
	w.must(201, "POST", validatingPath, config("v", w.hook("/deny", `"rules":[{"operations":["CONNECT"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods/attach"]}]`)))
	w.refused(400, `denied the request: attaching to pod 'p' is not allowed: PodAttachOptions attach CONNECT`, "POST", "/api/v1/namespaces/shop/pods/p/attach?container=c&stdin=true", "")
}
