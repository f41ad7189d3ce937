package policy_test

import (
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/admission/policy"
	"github.com/kemudi/kemudi/internal/audit/audittest"
)

func TestAuditLogIsToldWhatPoliciesSay(t *testing.T) {
	const rules = `matchConstraints: {resourceRules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}]}`
	world := admissiontest.New(t,
		"Namespace: {metadata: {name: default}}", "Secret: {metadata: {name: a, namespace: default}, type: a/b}", "Secret: {metadata: {name: b, namespace: default}, type: c/d}",
		`ValidatingAdmissionPolicy: {metadata: {name: p}, spec: {`+rules+`, paramKind: {apiVersion: v1, kind: Secret}, validations: [{expression: "true"}, {expression: "object.data.a == params.type", message: other}],
  auditAnnotations: [{key: type, valueExpression: "' saw ' + params.type"}, {key: same, valueExpression: "'x'"}, {key: none, valueExpression: "true ? null : null"}]}}`,
		"ValidatingAdmissionPolicyBinding: {metadata: {name: b}, spec: {policyName: p, validationActions: [Audit], paramRef: {selector: {}, parameterNotFoundAction: Deny}}}")
	plugin := refuser(t, world.Options())
	a := admissiontest.Request(t, "ConfigMap: {metadata: {name: m, namespace: default}, data: {a: a/b}}", "")
	var notes func() map[string]string
	a.Audit, notes = audittest.Request(t)
	if err := plugin.Validate(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	got := notes()
	for key, want := range map[string]string{
		"p/type": "saw a/b, saw c/d", "p/same": "x", "p/none": "",
		"validation.policy.admission.k8s.io/validation_failure": `[{"message":"other","policy":"p","binding":"b","expressionIndex":1,"validationActions":["Audit"]}]`,
	} {
		if got[key] != want {
			t.Errorf("%s: got %q, want %q", key, got[key], want)
		}
	}
}

func TestAuditAnnotationsThatFailRefuseTheWrite(t *testing.T) {
	const rules = `matchConstraints: {resourceRules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}]}`
	for failure, want := range map[string]string{"Fail": "no such key: nothing", "Ignore": ""} {
		world := admissiontest.New(t, "Namespace: {metadata: {name: default}}",
			`ValidatingAdmissionPolicy: {metadata: {name: p}, spec: {failurePolicy: `+failure+`, `+rules+`, auditAnnotations: [{key: a, valueExpression: "string(object.nothing)"}]}}`,
			"ValidatingAdmissionPolicyBinding: {metadata: {name: b}, spec: {policyName: p, validationActions: [Warn]}}")
		err := refuser(t, world.Options()).Validate(t.Context(), admissiontest.Request(t, "ConfigMap: {metadata: {name: m, namespace: default}}", ""))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", failure, err, want)
		}
	}
}

// refuser is the validating plugin without any files.
func refuser(t *testing.T, o *admission.Options) admission.Plugin {
	t.Helper()
	p, err := policy.NewValidating(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
