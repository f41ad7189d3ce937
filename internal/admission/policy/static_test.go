package policy_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/admission/policy"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// onDisk is a policy, and what puts it in force, that refuses objects that are called so.
func onDisk(name string) string {
	return `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}]}
  validations: [{expression: "object.metadata.name != '` + name + `'"}]
---
apiVersion: v1
kind: List
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicyBinding
  metadata: {name: all.static.k8s.io}
  spec: {policyName: no.static.k8s.io, validationActions: [Deny]}
`
}

// told is the configuration of the plugin that names a directory.
func told(dir string) admission.Configurations {
	return admission.Configurations{"ValidatingAdmissionPolicy": []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: ValidatingAdmissionPolicyConfiguration\nstaticManifestsDir: " + dir)}
}

func TestPoliciesOfFilesGoForPoliciesToo(t *testing.T) {
	dir, beside := t.TempDir(), filepath.Join(t.TempDir(), "new")
	write := func(text string) { // at once: of a file that is being written nothing is there yet
		t.Helper()
		if err := errors.Join(os.WriteFile(beside, []byte(text), 0o600), os.Rename(beside, filepath.Join(dir, "no.yaml"))); err != nil {
			t.Fatal(err)
		}
	}
	write(onDisk("bad"))
	const rules = `matchConstraints: {resourceRules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}]}`
	world := admissiontest.New(t, "Namespace: {metadata: {name: default}}",
		`ValidatingAdmissionPolicy: {metadata: {name: worse}, spec: {`+rules+`, validations: [{expression: "object.metadata.name != 'worse'"}]}}`,
		"ValidatingAdmissionPolicyBinding: {metadata: {name: b}, spec: {policyName: worse, validationActions: [Deny]}}")
	o := world.Options()
	o.Config = told(dir)
	plugin := refuser(t, o)
	refuses := func(object string) string {
		if err := plugin.Validate(t.Context(), admissiontest.Request(t, object, "")); err != nil {
			return err.Error()
		}
		return ""
	}
	for object, want := range map[string]string{
		"ConfigMap: {metadata: {name: bad, namespace: default}}":   "ValidatingAdmissionPolicy 'no.static.k8s.io' with binding 'all.static.k8s.io' denied request",
		"ConfigMap: {metadata: {name: worse, namespace: default}}": "ValidatingAdmissionPolicy 'worse' with binding 'b' denied request",
		"ConfigMap: {metadata: {name: good, namespace: default}}":  "",
		"ValidatingWebhookConfiguration: {metadata: {name: bad}}":  "ValidatingAdmissionPolicy 'no.static.k8s.io' with binding 'all.static.k8s.io' denied request",
		"ValidatingAdmissionPolicy: {metadata: {name: worse}}":     "", // those of the API are not asked about it
	} {
		if got := refuses(object); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", object, got, want)
		}
	}

	g := task.NewGroup(t.Context())
	defer func() {
		g.Cancel(context.Canceled)
		_ = g.Wait() // the context is what ends it
	}()
	g.Go("files", plugin.Run)
	write("kind: ValidatingAdmissionPolicy") // which is not good: what was holds
	if got := refuses("ConfigMap: {metadata: {name: bad, namespace: default}}"); got == "" {
		t.Error("files that are not good any more took the policies along that were")
	}
	write(onDisk("other"))
	wait.Until(t, func() error {
		if refuses("ConfigMap: {metadata: {name: bad, namespace: default}}") != "" || refuses("ConfigMap: {metadata: {name: other, namespace: default}}") == "" {
			return errors.New("the changed file is not taken over")
		}
		return nil
	})
}

func TestFilesThatAreNoGoodStopTheStart(t *testing.T) {
	good := onDisk("bad")
	for text, want := range map[string]string{
		strings.Replace(good, "name: no.static.k8s.io}", "name: any}", 1):                                         `must have a name ending with ".static.k8s.io"`,
		strings.Replace(good, "kind: ValidatingAdmissionPolicy\n", "kind: ConfigMap\n", 1):                        "is not for the admission plugin ValidatingAdmissionPolicy",
		strings.Replace(good, "  validations:", "  paramKind: {apiVersion: v1, kind: Secret}\n  validations:", 1): `ValidatingAdmissionPolicy "no.static.k8s.io": spec.paramKind is not supported for static manifests`,
		strings.Replace(good, "policyName: no.static", "policyName: none.static", 1):                              `binding "all.static.k8s.io" references policy "none.static.k8s.io" which does not exist in the manifest directory`,
		strings.Replace(good, "policyName: no.static.k8s.io", "policyName: any", 1):                               `binding "all.static.k8s.io": spec.policyName "any" must end with ".static.k8s.io"`,
		strings.Replace(good, "  validations:", "  wrong: x\n  validations:", 1):                                  `unknown field "spec.wrong"`,
		strings.Replace(good, "expression:", "expression: 'x', expression:", 1):                                   "already set in map",
		strings.Replace(good, "object.metadata.name != ", "object.", 1):                                           "spec.validations[0].expression: Invalid value",
		good + "---\n" + good: `duplicate name "no.static.k8s.io"`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.yml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := admissiontest.New(t).Options()
		o.Config = told(dir)
		if _, err := policy.NewValidating(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, want %s", text, err, want)
		}
	}
	for dir, want := range map[string]string{"relative": "must be an absolute file path", filepath.Join(t.TempDir(), "none"): "unable to read", "/dev/null": "must be a directory"} {
		o := admissiontest.New(t).Options()
		o.Config = told(dir)
		if _, err := policy.NewValidating(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", dir, err, want)
		}
	}
}
