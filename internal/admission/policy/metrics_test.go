package policy_test

import (
	"strings"
	"testing"
)

func TestWhatPoliciesSayIsCounted(t *testing.T) {
	in(t, func(c *cluster) {
		c.make(validating("rules", `matchConditions: [{name: some, expression: "object.metadata.name != 'left-out'"}],
  validations: [{expression: "object.data.a != 'bad'", message: no}]`, "validationActions: [Warn, Audit]")...)
		c.make(validating("lenient", `failurePolicy: Ignore, validations: [{expression: "object.nothing == 1"}]`, deny)...)
		c.make(mutating("change", "mutations: ["+applied(`Object{data: {"b": "2"}}`)+"]")...)
		c.make(mutating("broken", "failurePolicy: Ignore, mutations: ["+operations(`[JSONPatch{op: "add", path: "/data/c", value: object.nothing}]`)+"]")...)
		c.passes("create", configMap("good", "x"))
		c.passes("create", configMap("left-out", "x"))
		c.passes("create", configMap("m", "bad"))
		code, got, _ := c.http("GET", "/metrics", "")
		if code != 200 {
			t.Fatalf("got %d %s", code, got)
		}
		for _, want := range []string{
			`apiserver_validating_admission_policy_check_total{enforcement_action="warn",error_type="no_error",policy="rules",policy_binding="rules"} 1`,
			`apiserver_validating_admission_policy_check_total{enforcement_action="audit",error_type="no_error",policy="rules",policy_binding="rules"} 1`,
			`apiserver_validating_admission_policy_check_total{enforcement_action="allow",error_type="invalid_error",policy="lenient",policy_binding="lenient"} 3`,
			`apiserver_validating_admission_policy_check_duration_seconds_count{enforcement_action="warn",error_type="no_error",policy="rules",policy_binding="rules"} 1`,
			`apiserver_mutating_admission_policy_check_total{error_type="no_error",policy="change",policy_binding="change"} 3`,
			`apiserver_mutating_admission_policy_check_total{error_type="invalid_error",policy="broken",policy_binding="broken"} 3`,
			`apiserver_mutating_admission_policy_check_duration_seconds_count{error_type="no_error",policy="change",policy_binding="change"} 3`,
			`apiserver_admission_match_condition_evaluation_seconds_count{kind="policy",name="rules",operation="CREATE",type="validate"} 1`,
			"apiserver_cel_compilation_duration_seconds_count 4",
			"apiserver_cel_evaluation_duration_seconds_count 11",
		} {
			if !strings.Contains(got, want+"\n") {
				t.Errorf("/metrics does not have %s", want)
			}
		}
		if strings.Contains(got, `enforcement_action="deny"`) {
			t.Error("/metrics has a refusal that there was not")
		}
	})
}
