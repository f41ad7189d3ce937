package policy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
)

const deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, labels: {x: "y"}}, spec: {replicas: %d,
  selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`

func deploymentRule() string { return rule("CREATE, UPDATE", "apps", "v1", "deployments") }

func TestRefusesDeploymentsThatDoNotFulfilAPolicy(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(validatingFor("replicas", deploymentRule(), `validations: [{expression: "object.spec.replicas > 1", messageExpression: "'wants more than one replica, got ' + string(object.spec.replicas)"}]`, deny)...)
		trace.Proves(t, "C-154")
		c.refused("create", fmt.Sprintf(deployment, "one", 1), metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Message: `deployments.apps "one" is forbidden: ValidatingAdmissionPolicy 'replicas' with binding 'replicas' denied request: wants more than one replica, got 1`})
		c.passes("create", fmt.Sprintf(deployment, "two", 2))
		c.refused("update", fmt.Sprintf(deployment, "two", 1), metav1.Status{
			Message: `deployments.apps "two" is forbidden: ValidatingAdmissionPolicy 'replicas' with binding 'replicas' denied request: wants more than one replica, got 1`})
	})
}

func TestExpressionsUseVariables(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(validatingFor("replicas", deploymentRule(), `
  variables: [{name: replicas, expression: object.spec.replicas}, {name: odd, expression: "variables.replicas % 2 == 1"},
    {name: broken, expression: "object.spec.nothing.at.all"}],
  validations: [{expression: "variables.replicas > 1", message: too few}, {expression: "variables.odd"}]`, deny)...)
		trace.Proves(t, "C-151")
		const refusal = `deployments.apps %q is forbidden: ValidatingAdmissionPolicy 'replicas' with binding 'replicas' denied request: %s`
		c.refused("create", fmt.Sprintf(deployment, "one", 1), metav1.Status{Message: fmt.Sprintf(refusal, "one", "too few")})
		c.refused("create", fmt.Sprintf(deployment, "two", 2), metav1.Status{Message: fmt.Sprintf(refusal, "two", "failed expression: variables.odd")})
		c.passes("create", fmt.Sprintf(deployment, "three", 3))
	})
}

func TestWhatAPolicySaysOfARefusal(t *testing.T) {
	for name, q := range map[string]struct {
		spec string
		want metav1.Status
	}{
		"a reason": {`validations: [{expression: "false", reason: Forbidden, message: " refused "}]`, metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: denied("m", "p", "refused").Message}},
		"too large": {`validations: [{expression: "false", reason: RequestEntityTooLarge, message: big}]`,
			metav1.Status{Code: http.StatusRequestEntityTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge, Message: denied("m", "p", "big").Message}},
		"a message of several lines":      {`validations: [{expression: "false", messageExpression: "'a\\nb'", message: given}]`, denied("m", "p", "given")},
		"a message that is empty":         {`validations: [{expression: "false", messageExpression: "'  '"}]`, denied("m", "p", "failed expression: false")},
		"a message that fails":            {`validations: [{expression: "false", messageExpression: "string(object.nothing)", message: given}]`, denied("m", "p", "given")},
		"an expression that fails":        {`validations: [{expression: "object.nothing == 1"}]`, denied("m", "p", "expression 'object.nothing == 1' resulted in error: no such key: nothing")},
		"a variable that fails":           {`variables: [{name: v, expression: object.nothing}], validations: [{expression: "variables.v == 1"}]`, denied("m", "p", `expression 'variables.v == 1' resulted in error: composited variable "v" fails to evaluate: no such key: nothing`)},
		"the first of two":                {`validations: [{expression: "true"}, {expression: "false", message: second}, {expression: "false", message: third}]`, denied("m", "p", "second")},
		"a kind of params that is not":    {`paramKind: {apiVersion: example.com/v1, kind: Thing}, validations: [{expression: "true"}]`, metav1.Status{Message: `configmaps "m" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Thing'`}},
		"who asks":                        {`validations: [{expression: "request.userInfo.username == 'alice'", messageExpression: "'you are ' + request.userInfo.username + ', ' + request.operation + ' ' + request.resource.resource"}]`, denied("m", "p", "you are system:apiserver, CREATE configmaps")},
		"the namespace":                   {`validations: [{expression: "namespaceObject.metadata.name != 'default'", messageExpression: "'not in ' + namespaceObject.metadata.name + ' ' + namespaceObject.status.phase"}]`, denied("m", "p", "not in default Active")},
		"kind and version of the object":  {`validations: [{expression: "object.kind == 'Secret'", messageExpression: "object.apiVersion + ' ' + object.kind"}]`, denied("m", "p", "v1 ConfigMap")},
		"what is not there":               {`validations: [{expression: "oldObject != null"}]`, denied("m", "p", "failed expression: oldObject != null")},
		"what the user is not allowed":    {`validations: [{expression: "authorizer.group('apps').resource('deployments').namespace('default').check('fly').allowed() == false", messageExpression: "'allowed'"}]`, denied("m", "p", "allowed")},
		"the request's own authorization": {`validations: [{expression: "!authorizer.requestResource.check('custom').allowed()"}]`, denied("m", "p", "failed expression: !authorizer.requestResource.check('custom').allowed()")},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(c *cluster) {
				c.make(validating("p", q.spec, deny)...)
				c.refused("create", configMap("m", "x"), q.want)
			})
		})
	}
}

func TestFailuresOfAPolicyAreIgnoredIfItSaysSo(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(validating("fails", `failurePolicy: Ignore, validations: [{expression: "object.nothing == 1"}]`, deny)...)
		c.make(validating("misconfigured", `failurePolicy: Ignore, paramKind: {apiVersion: example.com/v1, kind: Thing}, validations: [{expression: "true"}]`, deny)...)
		c.make(validating("condition", `failurePolicy: Ignore, matchConditions: [{name: a, expression: "object.nothing == 1"}], validations: [{expression: "false"}]`, deny)...)
		c.make(validating("refuses", `failurePolicy: Ignore, validations: [{expression: "object.data.a != 'bad'"}]`, deny)...)
		c.passes("create", configMap("m", "x"))
		c.refused("create", configMap("m2", "bad"), denied("m2", "refuses", "failed expression: object.data.a != 'bad'"))
	})
}

func TestConditionsSayWhetherAPolicyIsAsked(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(validating("p", `matchConditions: [{name: a, expression: "object.data.a != 'skip'"}, {name: b, expression: "object.data.a != 'fail' || object.nothing == 1"}], validations: [{expression: "false"}]`, deny)...)
		c.passes("create", configMap("m", "skip"))
		c.refused("create", configMap("m2", "x"), denied("m2", "p", "failed expression: false"))
		c.refused("create", configMap("m2", "fail"), denied("m2", "p", "expression 'object.data.a != 'fail' || object.nothing == 1' resulted in error: no such key: nothing"))
	})
}

func TestExpressionsHaveABudget(t *testing.T) {
	// Each of the lists is longer than a request could have it.
	bomb := `[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a+b+c+d+e+f > 0))))))`
	in(t, func(c *cluster) {
		c.make(validating("bomb", fmt.Sprintf(`validations: [{expression: "%s"}]`, bomb), deny)...)
		_, err := c.send("create", "", configMap("m", "x"))
		if err == nil || !strings.Contains(err.Error(), "cost limit exceeded") && !strings.Contains(err.Error(), "running out of cost budget") {
			t.Errorf("got %v, want the cost", err)
		}
	})
}

func TestActionsOfBindings(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(validating("p", `validations: [{expression: "object.data.a != 'bad'", message: bad}], auditAnnotations: [{key: note, valueExpression: "'saw ' + object.data.a"}]`, "validationActions: [Warn, Audit]")...)
		if code, answer, warnings := c.http("POST", "/api/v1/namespaces/default/configmaps", configMap("m", "bad")); code != http.StatusCreated || !has(warnings, `Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': bad`) {
			t.Errorf("got %d %s, warnings %q; want it created, and a warning", code, answer, warnings)
		}
		if code, _, warnings := c.http("POST", "/api/v1/namespaces/default/configmaps", configMap("m2", "good")); code != http.StatusCreated || len(warnings) > 0 {
			t.Errorf("got %d, warnings %q; want it created without one", code, warnings)
		}
	})
}

func TestParamsAreLookedUpWhenTheyAreAsked(t *testing.T) {
	in(t, func(c *cluster) {
		spec := `paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "object.data.a == params.data.a", messageExpression: "'wants ' + params.data.a + ' of ' + params.metadata.name + ' ' + params.kind"}]`
		only := `matchResources: {objectSelector: {matchLabels: {checked: "yes"}}}`
		c.make(validating("p", spec, deny+", "+only+", paramRef: {name: param, namespace: kube-system, parameterNotFoundAction: Deny}")...)
		checked := func(name, value string) string {
			return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, labels: {checked: "yes"}}, data: {a: %q}}`, name, value)
		}
		c.passes("create", configMap("other", "x"))
		c.refused("create", checked("m", "x"), denied("m", "p", "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"))
		c.make(`{apiVersion: v1, kind: ConfigMap, metadata: {name: param, namespace: kube-system}, data: {a: good}}`)
		c.refused("create", checked("m", "x"), denied("m", "p", "wants good of param ConfigMap"))
		c.passes("create", checked("m", "good"))
		c.passes("update", `{apiVersion: v1, kind: ConfigMap, metadata: {name: param, namespace: kube-system}, data: {a: better}}`)
		c.refused("update", checked("m", "good"), denied("m", "p", "wants better of param ConfigMap"))
	})
}

func TestParamsAreSelectedInTheNamespaceOfTheRequest(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(`{apiVersion: v1, kind: Namespace, metadata: {name: other}}`,
			`{apiVersion: v1, kind: Secret, metadata: {name: a, labels: {limit: "yes"}}, stringData: {}, type: a/b}`,
			`{apiVersion: v1, kind: Secret, metadata: {name: b, labels: {limit: "yes"}}, type: c/d}`)
		c.make(validating("p", `paramKind: {apiVersion: v1, kind: Secret}, validations: [{expression: "object.data.a == params.type", messageExpression: "'wants ' + params.type"}]`,
			deny+`, paramRef: {selector: {matchLabels: {limit: "yes"}}, parameterNotFoundAction: Allow}`)...)
		c.refused("create", configMap("m", "a/b"), denied("m", "p", "wants c/d"))
		c.refused("create", configMap("m", "c/d"), denied("m", "p", "wants a/b"))
		c.passes("create", `{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: other}, data: {a: x}}`)
	})
}

func TestPoliciesMatchWhatTheyName(t *testing.T) {
	refuse := `validations: [{expression: "false", message: refused}]`
	for name, q := range map[string]struct {
		match  string // beside the rule for everything
		passes bool
	}{
		"everything":                      {"", false},
		"a name":                          {"excludeResourceRules: [{resourceNames: [m], operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]", true},
		"another name":                    {"excludeResourceRules: [{resourceNames: [x], operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]", false},
		"objects by labels":               {"objectSelector: {matchLabels: {a: b}}", false},
		"objects by other labels":         {"objectSelector: {matchLabels: {a: c}}", true},
		"namespaces by labels":            {"namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}", false},
		"namespaces by other labels":      {"namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [default]}]}", true},
		"exactly the version of the rule": {"matchPolicy: Exact", false},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(c *cluster) {
				match := strings.TrimSuffix(`resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: ["v1"], resources: ["*"], scope: Namespaced}], `+q.match, ", ")
				c.make(fmt.Sprintf("{apiVersion: %s, kind: ValidatingAdmissionPolicy, metadata: {name: p}, spec: {matchConstraints: {%s}, %s}}", group, match, refuse),
					fmt.Sprintf("{apiVersion: %s, kind: ValidatingAdmissionPolicyBinding, metadata: {name: p}, spec: {policyName: p, %s}}", group, deny))
				object := `{apiVersion: v1, kind: ConfigMap, metadata: {name: m, labels: {a: b}}}`
				if q.passes {
					c.passes("create", object)
				} else {
					c.refused("create", object, denied("m", "p", "refused"))
				}
				c.passes("create", `{apiVersion: v1, kind: Namespace, metadata: {name: other}}`)
			})
		})
	}
}

func TestEquivalentVersionsMatch(t *testing.T) {
	const path = "/apis/extensions/v1beta1/namespaces/default/deployments"
	old := strings.Replace(fmt.Sprintf(deployment, "d", 1), "apps/v1", "extensions/v1beta1", 1)
	for policy, want := range map[string]int{"Equivalent": http.StatusUnprocessableEntity, "Exact": http.StatusCreated} {
		in(t, func(c *cluster) {
			c.make(fmt.Sprintf(`{apiVersion: %s, kind: ValidatingAdmissionPolicy, metadata: {name: p}, spec: {matchConstraints: {matchPolicy: %s, resourceRules: [%s]},
  validations: [{expression: "false", messageExpression: "object.apiVersion + ' for ' + request.requestResource.group"}]}}`, group, policy, deploymentRule()),
				fmt.Sprintf("{apiVersion: %s, kind: ValidatingAdmissionPolicyBinding, metadata: {name: p}, spec: {policyName: p, %s}}", group, deny))
			code, answer, _ := c.http("POST", path, old)
			if code != want || want != http.StatusCreated && !strings.Contains(answer, "apps/v1 for extensions") {
				t.Errorf("%s: got %d %s, want %d", policy, code, answer, want)
			}
		})
	}
}

func TestDeletesAndSubresourcesAreValidated(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(validatingFor("delete", rule("DELETE", "", "v1", "configmaps"), `validations: [{expression: "oldObject.data.a != 'keep' && object == null", message: kept}]`, deny)...)
		c.make(validatingFor("scale", rule("UPDATE", "apps", "v1", "deployments/scale"), `validations: [{expression: "object.kind == 'Scale' && object.spec.replicas < 5", messageExpression: "request.kind.kind + ' of ' + string(oldObject.spec.replicas)"}]`, deny)...)
		c.passes("create", configMap("m", "keep"))
		c.refused("delete", configMap("m", "keep"), denied("m", "delete", "kept"))
		c.passes("create", fmt.Sprintf(deployment, "d", 2))
		code, answer, _ := c.http("PUT", "/apis/apps/v1/namespaces/default/deployments/d/scale", `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: d, namespace: default}, spec: {replicas: 9}}`)
		if code != http.StatusUnprocessableEntity || !strings.Contains(answer, "Scale of 2") {
			t.Errorf("got %d %s, want it refused", code, answer)
		}
	})
}

func TestPoliciesAreNotAskedAboutThemselves(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(validatingFor("all", rule("'*'", "*", "'*'", "'*/*'"), `validations: [{expression: "false", message: refused}]`, deny)...)
		c.refused("create", configMap("m", "x"), denied("m", "all", "refused"))
		c.passes("delete", fmt.Sprintf("{apiVersion: %s, kind: ValidatingAdmissionPolicyBinding, metadata: {name: all}}", group))
		c.passes("create", configMap("m", "x"))
	})
}

func TestAuthorsMustBeAllowedToReadParams(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: author}, rules: [{apiGroups: ["*"], resources: [validatingadmissionpolicies, validatingadmissionpolicybindings], verbs: ["*"]}]}`,
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: author}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: author}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]}`)
		docs := validating("p", `paramKind: {apiVersion: v1, kind: Secret}, validations: [{expression: "true"}]`, deny+", paramRef: {name: s, namespace: kube-system, parameterNotFoundAction: Deny}")
		if _, err := c.send("create", "alice", docs[0]); err == nil || !strings.Contains(err.Error(), `must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`) {
			t.Errorf("policy: got %v, want it refused", err)
		}
		c.make(docs[0])
		if _, err := c.send("create", "alice", docs[1]); err == nil || !strings.Contains(err.Error(), `does not have "get" permission on the object referenced by paramRef`) {
			t.Errorf("binding: got %v, want it refused", err)
		}
		if _, err := c.send("create", "alice", validating("q", `validations: [{expression: "true"}]`, deny)[0]); err != nil {
			t.Errorf("policy without params: %v", err)
		}
	})
}
