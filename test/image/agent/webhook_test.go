package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// ask posts a body and returns the answer.
func ask(h http.Handler, path, body string) string {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Body.String()
}

func TestWebhookJudgesInTheExpectedWords(t *testing.T) {
	const pods, configMaps = `"resource": {"group": "", "version": "v1", "resource": "pods"}`, `"resource": {"group": "", "version": "v1", "resource": "configmaps"}`
	for _, tc := range []struct{ path, request, want string }{
		{"/always-deny", `"operation": "CREATE"`, `"allowed":false,"status":{"message":"this webhook denies all requests"}`},
		{"/add-label", `"object": {"metadata": {}}`, `[{"op": "add", "path": "/metadata/labels", "value": {"added-label": "yes"}}]`},
		{"/add-label", `"object": {"metadata": {"labels": {"a": "b"}}}`, `[{"op": "add", "path": "/metadata/labels/added-label", "value": "yes"}]`},
		{"/add-label", `"object": {"metadata": {"labels": {"added-label": "yes"}}}`, `"allowed":true}`},
		{"/pods", pods + `, "object": {"metadata": {"labels": {"webhook-e2e-test": "webhook-disallow"}}, "spec": {"containers": [{"name": "webhook-disallow"}]}}`, `"message":"the pod contains unwanted label; the pod contains unwanted container name;"`},
		{"/pods", pods + `, "object": {"spec": {"containers": [{"name": "fine"}]}}`, `"allowed":true}`},
		{"/pods/attach", pods + `, "name": "to-be-attached-pod", "subResource": "attach", "object": {"stdin": true, "container": "container1"}`, `"message":"attaching to pod 'to-be-attached-pod' is not allowed"`},
		{"/pods/attach", pods + `, "name": "to-be-attached-pod", "subResource": "attach", "object": {"container": "container1"}`, `"allowed":true}`},
		{"/mutating-pods", pods + `, "object": {"metadata": {"name": "webhook-to-be-mutated"}}`, `"webhook-added-init-container"`},
		{"/mutating-pods", pods + `, "object": {"metadata": {"name": "other"}}`, `"allowed":true}`},
		{"/mutating-pods-sidecar", pods + `, "object": {}`, `"image": "side:1"`},
		{"/configmaps", configMaps + `, "operation": "UPDATE", "object": {"data": {"webhook-e2e-test": "webhook-disallow"}}`, `"reason":"the configmap contains unwanted key and value"`},
		{"/configmaps", configMaps + `, "operation": "DELETE", "oldObject": {"data": {"webhook-e2e-test": "webhook-nondeletable"}}`, `"reason":"the configmap cannot be deleted because it contains unwanted key and value"`},
		{"/custom-resource", `"operation": "CREATE", "object": {"data": {"webhook-e2e-test": "webhook-disallow"}}`, `"reason":"the custom resource contains unwanted data"`},
		{"/mutating-configmaps", `"object": {"data": {"mutation-start": "yes"}}`, "/data/mutation-stage-1"},
		{"/mutating-custom-resource", `"object": {"data": {"mutation-start": "yes", "mutation-stage-1": "yes"}}`, "/data/mutation-stage-2"},
		{"/crd", `"resource": {"group": "apiextensions.k8s.io", "version": "v1", "resource": "customresourcedefinitions"}, "object": {"metadata": {"labels": {"webhook-e2e-test": "webhook-disallow"}}}`, `"message":"the crd contains unwanted label"`},
	} {
		for _, version := range []string{"v1", "v1beta1"} {
			got := ask(webhookHandler("side:1"), tc.path, fmt.Sprintf(`{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/%s", "request": {"uid": "u1", %s}}`, version, tc.request))
			var review struct {
				APIVersion string
				Response   struct {
					UID   string
					Patch []byte
				}
			}
			if err := json.Unmarshal([]byte(got), &review); err != nil {
				t.Errorf("%s: %v in %q", tc.path, err, got)
			}
			if review.APIVersion != "admission.k8s.io/"+version || review.Response.UID != "u1" || !strings.Contains(got+string(review.Response.Patch), tc.want) {
				t.Errorf("%s %s: got %s with patch %s, want %s", tc.path, tc.request, got, review.Response.Patch, tc.want)
			}
		}
	}
}

func TestConversionSplitsAndJoinsHostAndPort(t *testing.T) {
	for _, tc := range []struct{ to, object, want string }{
		{"stable.example.com/v2", `{"apiVersion": "stable.example.com/v1", "hostPort": "h:1"}`, `"convertedObjects":[{"apiVersion":"stable.example.com/v2","host":"h","port":"1"}],"result":{"status":"Success"}`},
		{"stable.example.com/v1", `{"apiVersion": "stable.example.com/v2", "host": "h", "port": "1", "metadata": {"name": "n"}}`, `[{"apiVersion":"stable.example.com/v1","hostPort":"h:1","metadata":{"name":"n"}}]`},
		{"stable.example.com/v1", `{"apiVersion": "stable.example.com/v2"}`, `[{"apiVersion":"stable.example.com/v1"}]`},
		{"stable.example.com/v1", `{"apiVersion": "stable.example.com/v1"}`, `"result":{"status":"Failure","message":"conversion from a version to itself should not call the webhook: stable.example.com/v1"}`},
		{"stable.example.com/v2", `{"apiVersion": "stable.example.com/v1", "hostPort": "h"}`, "invalid hostPort value `h`"},
		{"stable.example.com/v3", `{"apiVersion": "stable.example.com/v1"}`, `unexpected conversion version \"stable.example.com/v3\"`},
	} {
		got := ask(conversionHandler(), "/crdconvert", fmt.Sprintf(`{"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": {"uid": "u1", "desiredAPIVersion": %q, "objects": [%s]}}`, tc.to, tc.object))
		if !strings.Contains(got, tc.want) || !strings.Contains(got, `"uid":"u1"`) {
			t.Errorf("%s to %s: got %s, want %s", tc.object, tc.to, got, tc.want)
		}
	}
}

func TestForwardTesterChecksAndSends(t *testing.T) {
	for name, value := range map[string]string{"EXPECTED_CLIENT_DATA": "abc", "CHUNKS": "3", "CHUNK_SIZE": "2", "CHUNK_INTERVAL": "0"} {
		t.Setenv(name, value)
	}
	for sent, want := range map[string]int{"abc": 0, "abd": 5, "a": 4} {
		client, server := net.Pipe()
		code := make(chan int)
		go func() { code <- forwardOne(server); server.Close() }()
		if _, err := client.Write([]byte(sent)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 6)
		if want == 0 {
			for n := 0; n < len(got); {
				m, err := client.Read(got[n:])
				if err != nil {
					t.Fatal(err)
				}
				n += m
			}
			if string(got) != "xxxxxx" {
				t.Errorf("got %q", got)
			}
		}
		client.Close()
		if c := <-code; c != want {
			t.Errorf("%q: got exit code %d, want %d", sent, c, want)
		}
	}
}
