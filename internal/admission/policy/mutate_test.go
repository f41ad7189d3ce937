package policy_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
)

// applied and operations are mutations of a policy.
func applied(expression string) string {
	return fmt.Sprintf("{patchType: ApplyConfiguration, applyConfiguration: {expression: %q}}", expression)
}

func operations(expression string) string {
	return fmt.Sprintf("{patchType: JSONPatch, jsonPatch: {expression: %q}}", expression)
}

func TestChangesDeployments(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(mutatingFor("annotate", deploymentRule(), "mutations: ["+applied(`Object{metadata: Object.metadata{annotations: {"my-foo": "myAnnotationValue"}}, spec: Object.spec{replicas: object.spec.replicas + 1}}`)+"]", "")...)
		trace.Proves(t, "C-124", "C-125")
		d := c.passes("create", fmt.Sprintf(deployment, "d", 1)).(*appsv1.Deployment)
		if d.Annotations["my-foo"] != "myAnnotationValue" || *d.Spec.Replicas != 2 || d.Labels["x"] != "y" {
			t.Errorf("got annotations %v, labels %v and %d replicas, want the policy's", d.Annotations, d.Labels, *d.Spec.Replicas)
		}
		if len(d.Spec.Template.Spec.Containers) != 1 || d.Spec.Template.Spec.Containers[0].Image != "i" {
			t.Errorf("got containers %v, want them as they were", d.Spec.Template.Spec.Containers)
		}
	})
}

func TestWhatMutationsMakeOfAConfigMap(t *testing.T) {
	for name, q := range map[string]struct {
		mutations string
		want      map[string]string
	}{
		"a part that is applied":       {applied(`Object{data: {"b": "2"}}`), map[string]string{"a": "x", "b": "2"}},
		"a JSON patch":                 {operations(`[JSONPatch{op: "add", path: "/data/" + jsonpatch.escapeKey("b~c").replace("~0", "."), value: "2"}, JSONPatch{op: "remove", path: "/data/a"}]`), map[string]string{"b.c": "2"}},
		"a test that fails":            {operations(`[JSONPatch{op: "test", path: "/data/a", value: "other"}, JSONPatch{op: "remove", path: "/data/a"}]`), map[string]string{"a": "x"}},
		"a value of the object itself": {operations(`[JSONPatch{op: "add", path: "/data", value: {"copy": object.data.a}}]`), map[string]string{"copy": "x"}},
		"one after the other":          {applied(`Object{data: {"b": "2"}}`) + "," + operations(`[JSONPatch{op: "replace", path: "/data/a", value: object.data.b + "!"}]`), map[string]string{"a": "2!", "b": "2"}},
		"nothing":                      {operations(`false ? [JSONPatch{op: "remove", path: "/data"}] : []`), map[string]string{"a": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(c *cluster) {
				c.make(mutating("p", "mutations: ["+q.mutations+"]")...)
				if got := c.passes("create", configMap("m", "x")).(*corev1.ConfigMap).Data; !maps.Equal(got, q.want) {
					t.Errorf("got %v, want %v", got, q.want)
				}
			})
		})
	}
}

func TestMutationsThatCannotBeRefuseTheWrite(t *testing.T) {
	const refusal = "policy 'p' with binding 'p' denied request: "
	for name, q := range map[string]struct{ mutation, want string }{
		"fields that are not there":  {applied(`Object{nothing: 1}`), refusal + "error applying patch: failed to convert patch object to typed object: .nothing: field not declared in schema"},
		"names that do not fit":      {applied(`Object{metadata: Object.spec{name: "x"}}`), refusal + `type mismatch: unexpected type name "Object.spec", expected "Object.metadata", which matches field name path from root Object type`},
		"an expression that fails":   {applied(`Object{data: {"b": object.nothing}}`), refusal + "expression 'Object{data: {\"b\": object.nothing}}' resulted in error: no such key: nothing"},
		"a path that is not there":   {operations(`[JSONPatch{op: "remove", path: "/data/z"}]`), refusal + "JSON Patch: "},
		"an operation that is not":   {operations(`[JSONPatch{op: "fly", path: "/data/z"}]`), refusal + "JSON Patch: Unexpected kind: fly"},
		"a result that is no object": {operations(`[JSONPatch{op: "add", path: "/nothing", value: 1}]`), `strict decoding error: unknown field "nothing"`},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(c *cluster) {
				c.make(mutating("p", "mutations: ["+q.mutation+"]")...)
				if _, err := c.send("create", "", configMap("m", "x")); err == nil || !strings.Contains(err.Error(), q.want) {
					t.Errorf("got %v, want %s", err, q.want)
				}
			})
		})
	}
	in(t, func(c *cluster) {
		c.make(mutatingFor("p", deploymentRule(), "mutations: ["+applied(`Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {"c": "d"}}}}`)+"]", "")...)
		want := "policy 'p' with binding 'p' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector"
		c.refused("create", fmt.Sprintf(deployment, "d", 1), metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonInvalid, Message: want})
	})
	in(t, func(c *cluster) {
		c.make(mutating("p", "failurePolicy: Ignore, mutations: ["+applied(`Object{nothing: 1}`)+"]")...)
		c.passes("create", configMap("m", "x"))
	})
}

func TestConditionsParamsAndVariablesOfMutations(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(`{apiVersion: v1, kind: Secret, metadata: {name: param}, type: a/b}`)
		c.make(mutatingFor("p", rule("CREATE", "", "v1", "configmaps"), `paramKind: {apiVersion: v1, kind: Secret},
  variables: [{name: both, expression: "object.data.a + ' ' + params.type + ' ' + namespaceObject.metadata.name"}],
  matchConditions: [{name: "not", expression: "object.data.a != 'skip'"}], mutations: [`+applied(`Object{data: {"b": variables.both}}`)+"]",
			", paramRef: {name: param, parameterNotFoundAction: Deny}")...)
		for value, want := range map[string]string{"x": "x a/b default", "skip": ""} {
			if got := c.passes("create", configMap(value, value)).(*corev1.ConfigMap).Data["b"]; got != want {
				t.Errorf("%s: got %q, want %q", value, got, want)
			}
		}
	})
}

func TestPoliciesAreAskedAgainIfTheyWantThat(t *testing.T) {
	for again, want := range map[string]string{"Never": "0", "IfNeeded": "1"} {
		in(t, func(c *cluster) {
			// The first counts what the second adds; the order is that of the names.
			c.make(mutating("a", "reinvocationPolicy: "+again+", mutations: ["+applied(`Object{data: {"count": has(object.data.b) ? "1" : "0"}}`)+"]")...)
			c.make(mutating("b", "mutations: ["+applied(`Object{data: {"b": "2"}}`)+"]")...)
			if got := c.passes("create", configMap("m", "x")).(*corev1.ConfigMap).Data; got["count"] != want || got["b"] != "2" {
				t.Errorf("%s: got %v, want count %s", again, got, want)
			}
		})
	}
}

func TestWhatPoliciesMakeIsDefaultedAndValidated(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(mutatingFor("sidecar", rule("CREATE", "", "v1", "pods"), "mutations: ["+
			applied(`Object{spec: Object.spec{containers: [Object.spec.containers{name: "sidecar", image: object.metadata.labels.image}]}}`)+"]", "")...)
		c.make(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}`)
		pod := `{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {image: %q}}, spec: {containers: [{name: c, image: i}]}}`
		got := c.passes("create", fmt.Sprintf(pod, "p", "s")).(*corev1.Pod)
		if len(got.Spec.Containers) != 2 || got.Spec.Containers[1].Name != "sidecar" || got.Spec.Containers[1].TerminationMessagePath == "" || got.Spec.Containers[1].ImagePullPolicy != corev1.PullAlways {
			t.Errorf("got containers %+v, want the sidecar with its defaults", got.Spec.Containers)
		}
		if _, err := c.send("create", "", fmt.Sprintf(pod, "q", "")); err == nil || !strings.Contains(err.Error(), "spec.containers[1].image: Required value") {
			t.Errorf("got %v, want the image to be required", err)
		}
	})
}

func TestMutationsOfScaleAndStatus(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(mutatingFor("scale", rule("UPDATE", "apps", "v1", "deployments/scale"), "mutations: ["+applied(`Object{spec: Object.spec{replicas: 3}}`)+"]", "")...)
		c.make(mutatingFor("status", rule("UPDATE", "apps", "v1", "deployments/status"), "mutations: ["+applied(`Object{spec: Object.spec{replicas: 7}, status: Object.status{replicas: 1, readyReplicas: 1}}`)+"]", "")...)
		c.passes("create", fmt.Sprintf(deployment, "d", 1))
		const path = "/apis/apps/v1/namespaces/default/deployments/d/"
		if code, answer, _ := c.http("PUT", path+"scale", `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: d, namespace: default}, spec: {replicas: 9}}`); code != http.StatusOK || !strings.Contains(answer, `"replicas":3`) {
			t.Errorf("scale: got %d %s, want 3 replicas", code, answer)
		}
		if code, answer, _ := c.http("PUT", path+"status", fmt.Sprintf(deployment, "d", 1)); code != http.StatusOK || !strings.Contains(answer, `"readyReplicas":1`) || strings.Contains(answer, `"replicas":7`) {
			t.Errorf("status: got %d %s, want one ready replica and the spec as it was", code, answer)
		}
	})
}
