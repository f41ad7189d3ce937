package webhook_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/trace"
)

// stages is the mutating webhook of the conformance suite: each stage follows from the one before.
func stages(r *admissionv1.AdmissionReview) any {
	var m corev1.ConfigMap
	if err := json.Unmarshal(r.Request.Object.Raw, &m); err != nil {
		return err.Error()
	}
	switch {
	case m.Data["mutation-start"] == "yes" && m.Data["mutation-stage-1"] == "":
		return patching(`[{"op":"add","path":"/data/mutation-stage-1","value":"yes"}]`)(r)
	case m.Data["mutation-stage-1"] == "yes" && m.Data["mutation-stage-2"] == "":
		return patching(`[{"op":"add","path":"/data/mutation-stage-2","value":"yes"}]`)(r)
	}
	return allow(r)
}

// dislikes refuses what has a word in it.
func dislikes(word string) func(r *admissionv1.AdmissionReview) any {
	return func(r *admissionv1.AdmissionReview) any {
		obj := r.Request.Object.Raw
		if r.Request.Operation == admissionv1.Delete {
			obj = r.Request.OldObject.Raw
		}
		switch {
		case strings.Contains(string(obj), "wait-forever"):
			return nil
		case strings.Contains(string(obj), word):
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Reason: metav1.StatusReason("the " + strings.ToLower(r.Request.Kind.Kind) + " contains unwanted data")}}
		}
		return allow(r)
	}
}

func TestConfigurationsComeAndGoAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.on("/stages", stages)
	w.on("/check", dislikes("disallow"))
	const start, bad = `"data":{"mutation-start":"yes"}`, `"data":{"k":"disallow"}`
	for i := range 10 {
		w.must(201, "POST", mutatingPath, config(fmt.Sprintf("m%d", i), w.hook("/stages", "")))
	}
	var list struct{ Items []any }
	if err := json.Unmarshal([]byte(w.must(200, "GET", mutatingPath+"?labelSelector=set%3Dm", "")), &list); err != nil || len(list.Items) != 10 {
		t.Errorf("got %d configurations, %v, want 10", len(list.Items), err)
	}
	got := data(t, w.must(201, "POST", mapsPath, `{"metadata":{"name":"a"},`+start+`}`))
	trace.Proves(t, "C-063", "C-075")
	if want := map[string]string{"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	w.must(200, "DELETE", mutatingPath+"?labelSelector=set%3Dm", "")
	if got := data(t, w.must(201, "POST", mapsPath, `{"metadata":{"name":"b"},`+start+`}`)); len(got) != 1 {
		t.Errorf("got %v after the webhooks have gone, want what was sent", got)
	}

	for i := range 10 {
		w.must(201, "POST", validatingPath, config(fmt.Sprintf("v%d", i), w.hook("/check", "")))
	}
	trace.Proves(t, "C-064")
	w.refused(400, `admission webhook "a.example.com" denied the request: the configmap contains unwanted data`, "POST", mapsPath, `{"metadata":{"name":"c"},`+bad+`}`)
	w.must(200, "DELETE", validatingPath+"?labelSelector=set%3Dv", "")
	w.must(201, "POST", mapsPath, `{"metadata":{"name":"c"},`+bad+`}`)

	// A webhook that is changed: by PUT it does not mind creations any more, by PATCH it does.
	w.must(201, "POST", validatingPath, config("one", w.hook("/check", "")))
	w.refused(400, "denied the request", "POST", mapsPath, `{"metadata":{"name":"d"},`+bad+`}`)
	const updates = `"rules":[{"operations":["UPDATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]`
	w.replace(validatingPath+"/one", config("one", w.hook("/check", updates)))
	w.must(201, "POST", mapsPath, `{"metadata":{"name":"d"},`+bad+`}`)
	trace.Proves(t, "C-066")
	w.must(200, "PATCH", validatingPath+"/one", `[{"op":"replace","path":"/webhooks/0/rules/0/operations","value":["CREATE"]}]`, "Content-Type: application/json-patch+json")
	w.refused(400, "denied the request", "POST", mapsPath, `{"metadata":{"name":"e"},`+bad+`}`)
}

func TestWritesThatAWebhookDislikesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.on("/check", dislikes("disallow"))
	w.must(201, "POST", validatingPath, config("v",
		w.hook("/check", `"timeoutSeconds":1,"rules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["*"],"resources":["configmaps","pods"]}]`)))
	const pods = "/api/v1/namespaces/shop/pods"
	const refusal = `admission webhook "a.example.com" denied the request: the pod contains unwanted data`
	pod := func(name, container string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"` + container + `","image":"i"}]}}`
	}
	w.refused(400, refusal, "POST", pods, pod("a", "disallow"))
	start := time.Now()
	w.refused(500, "context deadline exceeded", "POST", pods, pod("b", "wait-forever"))
	if took := time.Since(start); took < time.Second || took > 20*time.Second {
		t.Errorf("a webhook that hangs was waited for %s, want its timeout of a second", took)
	}
	w.must(404, "GET", pods+"/b", "")
	w.must(201, "POST", mapsPath, `{"metadata":{"name":"m"},"data":{"k":"v"}}`)
	const unwanted = "the configmap contains unwanted data"
	w.refused(400, unwanted, "PUT", mapsPath+"/m", `{"metadata":{"name":"m"},"data":{"k":"disallow"}}`)
	w.refused(400, unwanted, "PATCH", mapsPath+"/m", `{"data":{"k":"disallow"}}`, patchMerge)
	w.refused(400, unwanted, "PATCH", mapsPath+"/n?fieldManager=x", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n"},"data":{"k":"disallow"}}`, "Content-Type: application/apply-patch+yaml")
	trace.Proves(t, "C-071")
	w.must(201, "POST", "/api/v1/namespaces/exempt/configmaps", `{"metadata":{"name":"m"},"data":{"k":"disallow"}}`)

	// Who is refused a deletion is told by what is: it has no object to be.
	w.must(201, "POST", "/api/v1/namespaces/exempt/configmaps", `{"metadata":{"name":"keep"},"data":{"k":"disallow"}}`)
	w.must(200, "PATCH", "/api/v1/namespaces/exempt", `{"metadata":{"labels":{"hooks":"on"}}}`, patchMerge)
	w.must(200, "GET", "/api/v1/namespaces/exempt", "") // the caches show its label then
	w.refused(400, unwanted, "DELETE", "/api/v1/namespaces/exempt/configmaps/keep", "")
	w.refused(400, unwanted, "DELETE", "/api/v1/namespaces/exempt/configmaps", "")

	// Callers within the process are no others.
	_, err := client.For(w.Admin(), core.ConfigMaps).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own"}, Data: map[string]string{"k": "disallow"},
	})
	if !apierrors.IsBadRequest(err) && (err == nil || !strings.Contains(err.Error(), unwanted)) {
		t.Errorf("got %v, want the webhook's refusal", err)
	}
}

func TestTimeoutsAndFailurePolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.on("/slow", func(r *admissionv1.AdmissionReview) any {
		select {
		case <-time.After(2 * time.Second):
			return allow(r)
		case <-t.Context().Done():
			return nil
		}
	})
	w.on("/hang", func(*admissionv1.AdmissionReview) any { return nil })
	w.on("/allow", allow)
	const fail, ignore = `"failurePolicy":"Fail"`, `"failurePolicy":"Ignore"`
	for i, tc := range []struct {
		hook string
		want string // in the refusal; empty: the write passes
	}{
		{w.hook("/slow", fail+`,"timeoutSeconds":1`), `Internal error occurred: failed calling webhook "a.example.com": failed to call webhook: Post "https://hooks.shop.svc:443/slow?timeout=1s": context deadline exceeded`},
		{w.hook("/slow", ignore+`,"timeoutSeconds":1`), ""},
		{w.hook("/slow", fail+`,"timeoutSeconds":10`), ""},
		{w.hook("/slow", fail), ""}, // 10 seconds
		{w.hook("/hang", ignore+`,"timeoutSeconds":1`), ""},
		{w.hook("/allow", fail+`,"clientConfig":{"service":{"namespace":"shop","name":"hooks","path":"/allow"}}`), "certificate signed by unknown authority"},
		{w.hook("/allow", fail+`,"clientConfig":{"service":{"namespace":"shop","name":"none","path":"/allow"}}`), `failed to call webhook: Post "https://none.shop.svc:443/allow?timeout=10s": service "none" not found`},
		{w.hook("/allow", fail+`,"clientConfig":{"url":"`+w.url+`/allow","caBundle":`+w.ca+`}`), ""},
		{w.hook("/none", fail), "the server could not find the requested resource"},
		{w.hook("/none", ignore), ""},
	} {
		for _, path := range []string{mutatingPath, validatingPath} {
			name := fmt.Sprintf("c%d", i)
			w.must(201, "POST", path, config(name, tc.hook))
			if tc.want == "" {
				w.must(201, "POST", mapsPath, `{"metadata":{"generateName":"m-"}}`)
			} else {
				w.refused(500, tc.want, "POST", mapsPath, `{"metadata":{"generateName":"m-"}}`)
			}
			w.must(200, "DELETE", path+"/"+name, "")
		}
	}
	trace.Proves(t, "C-073", "C-084")
	shown := w.must(200, "GET", "/metrics", "")
	for _, want := range []string{
		`apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="a.example.com",operation="CREATE",rejection_code="503",type="admit"} 3`,
		`apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="a.example.com",operation="CREATE",rejection_code="404",type="validating"} 1`,
		`apiserver_admission_webhook_fail_open_count{name="a.example.com",type="admit"} 3`,
		`apiserver_admission_webhook_request_total{code="200",name="a.example.com",operation="CREATE",rejected="false",type="validating"} 3`,
	} {
		if !strings.Contains(shown, want+"\n") {
			t.Errorf("want the metric %s", want)
		}
	}
}

func TestMatchConditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.on("/stages", stages)
	conditions := func(list string) string { return `"matchConditions":[` + list + `]` }
	const notThat = `{"name":"skip","expression":"object.metadata.name != 'skip-me'"}`
	const system = `{"name":"system","expression":"!request.userInfo.groups.exists(g, g == 'system:nodes') && authorizer.group('').resource('pods').check('get').allowed()"}`
	made := w.must(201, "POST", mutatingPath, config("m", w.hook("/stages", conditions(notThat+","+system))))
	w.replace(mutatingPath+"/m", config("m", w.hook("/stages", conditions(notThat))))
	if !strings.Contains(made, "skip-me") || strings.Contains(w.must(200, "GET", mutatingPath+"/m", ""), "system:nodes") {
		t.Errorf("got %s", made)
	}
	w.must(201, "POST", validatingPath, config("v", w.hook("/stages", conditions(notThat))))
	shown := w.must(200, "PATCH", validatingPath+"/v", `[{"op":"add","path":"/webhooks/0/matchConditions/-","value":`+system+`}]`, "Content-Type: application/json-patch+json")
	trace.Proves(t, "C-068")
	if !strings.Contains(shown, "skip-me") || !strings.Contains(shown, "system:nodes") {
		t.Errorf("got %s", shown)
	}
	w.must(200, "DELETE", validatingPath+"/v", "")

	skipped := data(t, w.must(201, "POST", mapsPath, `{"metadata":{"name":"skip-me"},"data":{"mutation-start":"yes"}}`))
	other := data(t, w.must(201, "POST", mapsPath, `{"metadata":{"name":"other"},"data":{"mutation-start":"yes"}}`))
	trace.Proves(t, "C-079")
	if len(skipped) != 1 || other["mutation-stage-1"] != "yes" {
		t.Errorf("got %v and %v, want the first as it was sent", skipped, other)
	}

	trace.Proves(t, "C-082", "C-083")
	for _, path := range []string{mutatingPath, validatingPath} {
		w.refused(422, "compilation failed", "POST", path, config("x", w.hook("/stages", conditions(`{"name":"a","expression":"... [] bad expression"}`))))
	}

	// An expression that fails for an object refuses it, unless failures are ignored; one that is false decides.
	const fails = `{"name":"fails","expression":"object.data['missing'] == 'x'"}`
	const never = `{"name":"never","expression":"false"}`
	w.replace(mutatingPath+"/m", config("m", w.hook("/stages", conditions(fails))))
	w.refused(403, `expression 'object.data['missing'] == 'x'' resulted in error: no such key: missing`, "POST", mapsPath, `{"metadata":{"name":"f"},"data":{"k":"v"}}`)
	w.replace(mutatingPath+"/m", config("m", w.hook("/stages", conditions(fails+","+never))))
	w.must(201, "POST", mapsPath, `{"metadata":{"name":"f"},"data":{"k":"v"}}`)
	w.replace(mutatingPath+"/m", config("m", w.hook("/stages", conditions(fails)+`,"failurePolicy":"Ignore"`)))
	w.must(201, "POST", mapsPath, `{"metadata":{"name":"g"},"data":{"k":"v"}}`)
	metrics := w.must(200, "GET", "/metrics", "")
	for _, want := range []string{
		`apiserver_admission_match_condition_exclusions_total{kind="webhook",name="a.example.com",operation="CREATE",type="admit"} 3`,
		`apiserver_admission_match_condition_evaluation_errors_total{kind="webhook",name="a.example.com",operation="CREATE",type="admit"} 3`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("want the metric %s", want)
		}
	}
}

func TestConfigurationsAreExempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.on("/deny", func(*admissionv1.AdmissionReview) any { return &admissionv1.AdmissionResponse{} })
	w.on("/label", patching(`[{"op":"add","path":"/metadata/labels","value":{"mutated":"yes"}}]`))
	const all = `"namespaceSelector":null,"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*/*"]}]`
	w.must(201, "POST", mutatingPath, config("m", w.hook("/label", `"failurePolicy":"Ignore",`+all)))
	w.must(201, "POST", validatingPath, config("v", w.hook("/deny", all)))
	w.refused(400, `admission webhook "a.example.com" denied the request without explanation`, "POST", mapsPath, `{"metadata":{"name":"a"}}`)
	trace.Proves(t, "C-081")
	if got := w.must(201, "POST", validatingPath, config("x", w.hook("/deny", all))); strings.Contains(got, "mutated") {
		t.Errorf("got %s, want it as it was sent", got)
	}
	w.must(200, "DELETE", validatingPath+"/x", "")
	// Nor are questions about who may do what, on which everything depends.
	w.must(201, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`)
	w.must(200, "DELETE", validatingPath+"/v", "")
}

func TestRulesThatNameWhatNobodyIsAskedAboutAreWarnedOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule := func(groups, resources string) string {
		return `"rules":[{"operations":["*"],"apiGroups":[` + groups + `],"apiVersions":["v1"],"resources":[` + resources + `]}]`
	}
	warning := func(named string) string {
		return `299 - "webhooks[0].rules[0]: ` + named + ` is excluded from admission webhooks; this rule will have no effect"`
	}
	const reviews = `"subjectaccessreviews","pods","selfsubjectaccessreviews","subjectaccessreviews"`
	for _, q := range []struct {
		name, rule string
		want       []string
	}{
		{"tokens", rule(`"authentication.k8s.io"`, `"tokenreviews"`), []string{warning("tokenreviews.authentication.k8s.io")}},
		{"some of several", rule(`"authorization.k8s.io"`, reviews), []string{warning("subjectaccessreviews.authorization.k8s.io"), warning("selfsubjectaccessreviews.authorization.k8s.io")}},
		{"of another group", rule(`"example.com"`, `"tokenreviews"`), nil},
		{"all groups", rule(`"*"`, `"tokenreviews"`), nil},
		{"all resources", rule(`"authentication.k8s.io"`, `"*"`), nil},
	} {
		for _, path := range []string{mutatingPath, validatingPath} {
			rec := w.ask("POST", path+"?dryRun=All", config("w", w.hook("/w", q.rule)), "Content-Type: application/json")
			if got := rec.Header()["Warning"]; rec.Code != 201 || !slices.Equal(got, q.want) {
				t.Errorf("%s, %s: got %d and %q, want %q", q.name, path, rec.Code, got, q.want)
			}
		}
	}
}

func TestDefinitionsOfKindsAreAskedAbout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.on("/crd", func(r *admissionv1.AdmissionReview) any {
		if strings.Contains(string(r.Request.Object.Raw), `"webhook-e2e-test":"webhook-disallow"`) {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "the crd contains unwanted label"}}
		}
		return allow(r)
	})
	w.must(201, "POST", validatingPath, config("v", w.hook("/crd", `"rules":[{"operations":["CREATE"],"apiGroups":["apiextensions.k8s.io"],"apiVersions":["*"],"resources":["customresourcedefinitions"]}]`)))
	crd := func(labels string) string {
		return `{"metadata":{"name":"tests.example.com","labels":{` + labels + `}},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"tests","kind":"Test"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	}
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	trace.Proves(t, "C-072")
	w.refused(400, "denied the request: the crd contains unwanted label", "POST", path, crd(`"webhook-e2e-test":"webhook-disallow"`))
	w.must(201, "POST", path, crd(""))
}
