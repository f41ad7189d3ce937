package clients

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// customAdmission refuses custom objects whose data says so, at /deny, and writes two stages into the data of
// others, at /mutate: of the second one only where the first has been.
func customAdmission(t *testing.T) *httptest.Server {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		in := review.Request
		var obj struct{ Data map[string]string }
		raw := in.Object.Raw
		if in.Operation == admissionv1.Delete {
			raw = in.OldObject.Raw
		}
		_ = json.Unmarshal(raw, &obj)
		answer := &admissionv1.AdmissionResponse{UID: in.UID, Allowed: true}
		patch := ""
		switch {
		case r.URL.Path == "/deny" && obj.Data["webhook-e2e-test"] == "webhook-disallow":
			answer.Allowed, answer.Result = false, &metav1.Status{Message: "the custom resource contains unwanted data"}
		case r.URL.Path == "/mutate" && obj.Data["mutation-start"] == "yes" && obj.Data["mutation-stage-1"] == "":
			patch = `[{"op":"add","path":"/data/mutation-stage-1","value":"yes"}]`
		case r.URL.Path == "/mutate" && obj.Data["mutation-stage-1"] == "yes" && in.Options.Raw != nil:
			patch = `[{"op":"add","path":"/data/mutation-stage-2","value":"yes"}]`
		}
		if patch != "" {
			kind := admissionv1.PatchTypeJSONPatch
			answer.Patch, answer.PatchType = []byte(patch), &kind
		}
		review.Request, review.Response = nil, answer
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(s.Close)
	return s
}

// asked has webhooks at paths of a server asked about the things of a definition.
func (d *aDefinition) asked(s *httptest.Server, kind, plural string, paths ...string) {
	d.t.Helper()
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	var hooks []string
	for i, path := range paths {
		hooks = append(hooks, fmt.Sprintf(`{name: w%d.%s, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: %q, caBundle: %s},
  rules: [{apiGroups: [%s], apiVersions: ["*"], resources: [things], operations: [CREATE, UPDATE, DELETE]}]}`, i, d.group, s.URL+path, bundle, d.group))
	}
	all := d.all.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(plural))
	u := d.read(fmt.Sprintf("apiVersion: admissionregistration.k8s.io/v1\nkind: %s\nmetadata: {name: %s}\nwebhooks: [%s]", kind, d.group, strings.Join(hooks, ", ")))
	if _, err := all.Create(d.t.Context(), u, metav1.CreateOptions{}); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := all.Delete(context.WithoutCancel(d.t.Context()), d.group, metav1.DeleteOptions{}); err != nil {
			d.t.Error(err)
		}
	})
}

func TestWebhooksDenyCustomObjects(t *testing.T) {
	t.Parallel()
	d := define(t, "denied.example.com", anyThing)
	d.create("v1", "metadata: {name: a}\ndata: {webhook-e2e-test: webhook-disallow}")
	d.asked(customAdmission(t), "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "/deny")
	denied := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "the custom resource contains unwanted data") {
			t.Errorf("got %v, want it denied", err)
		}
	}
	trace.Proves(t, "C-070")
	_, err := d.at("v1").Create(t.Context(), d.read("apiVersion: denied.example.com/v1\nkind: Thing\nmetadata: {name: b}\ndata: {webhook-e2e-test: webhook-disallow}"), metav1.CreateOptions{})
	denied(err)
	_, err = d.at("v1").Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data":{"x":"y"}}`), metav1.PatchOptions{})
	denied(err)
	denied(d.at("v1").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	if _, err := d.at("v1").Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data":{"webhook-e2e-test":"webhook-allow"}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if err := d.at("v1").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func TestWebhooksChangeCustomObjects(t *testing.T) {
	t.Parallel()
	s := customAdmission(t)
	open := define(t, "changed.example.com", strings.Replace(anyThing, "}]", "}, {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]", 1))
	open.asked(s, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "/mutate", "/mutate")
	pruned := define(t, "pruned.example.com", `[{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {data: {type: object, properties: {mutation-start: {type: string}, mutation-stage-1: {type: string}}}}}}}]`)
	pruned.asked(s, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "/mutate", "/mutate")
	data := func(u *unstructured.Unstructured) string {
		m, _, _ := unstructured.NestedStringMap(u.Object, "data")
		return fmt.Sprint(m)
	}
	trace.Proves(t, "C-076")
	const start = "metadata: {name: a}\ndata: {mutation-start: 'yes'}"
	if got, want := data(open.create("v1", start)), "map[mutation-stage-1:yes mutation-stage-2:yes mutation-start:yes]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	trace.Proves(t, "C-078")
	if got, want := data(pruned.create("v1", start)), "map[mutation-stage-1:yes mutation-start:yes]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	open.patch(types.JSONPatchType, `[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`)
	trace.Proves(t, "C-077")
	wait.Until(t, func() error {
		u, err := open.at("v1").Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data":{"dummy":"test"}}`), metav1.PatchOptions{})
		if err == nil && !strings.Contains(data(u), "dummy:test") {
			err = fmt.Errorf("got %s, want what was patched", data(u))
		}
		return err
	})
}
