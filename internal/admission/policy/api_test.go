package policy_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/sim"
)

// cluster is a control plane to which a test speaks as users do.
type cluster struct {
	t testing.TB
	p *plane.Plane
}

// in runs a test in a cluster.
func in(t *testing.T, f func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := sim.Plane(t, plane.Options{Alone: true, Logger: slog.New(slog.DiscardHandler)})
		synctest.Wait()
		c := &cluster{t, p}
		// Requests over HTTP are nobody's here.
		c.make(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: nobody}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:anonymous"}]}`)
		f(c)
	})
}

// def is a kind by its name.
func def(t testing.TB, kind string) *resource.Def {
	t.Helper()
	for _, d := range api.All() {
		if d.Kind == kind {
			return d
		}
	}
	t.Fatalf("no kind %s", kind)
	return nil
}

// make creates objects, each a document of YAML.
func (c *cluster) make(docs ...string) {
	c.t.Helper()
	for _, doc := range docs {
		if _, err := c.send("create", "", doc); err != nil {
			c.t.Fatalf("%s: %v", doc, err)
		}
	}
	synctest.Wait()
}

// send sends a document as a user ("": one who may do everything).
func (c *cluster) send(verb, as, doc string) (runtime.Object, error) {
	c.t.Helper()
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
		c.t.Fatalf("%s: %v", doc, err)
	}
	d := def(c.t, u.GetKind())
	obj := d.New()
	if err := yaml.UnmarshalStrict([]byte(doc), obj); err != nil {
		c.t.Fatalf("%s: %v", doc, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if d.Namespaced && obj.GetNamespace() == "" {
		obj.SetNamespace("default")
	}
	return c.as(as).Do(c.t.Context(), &client.Request{Verb: verb, Def: d, Namespace: obj.GetNamespace(), Name: obj.GetName(), Object: obj})
}

// replace updates an object, whatever has become of it meanwhile.
func (c *cluster) replace(doc string) error {
	c.t.Helper()
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
		c.t.Fatalf("%s: %v", doc, err)
	}
	for {
		now, err := c.send("get", "", doc)
		if err != nil {
			return err
		}
		u.SetResourceVersion(now.(metav1.Object).GetResourceVersion())
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			return err
		}
		if _, err = c.send("update", "", string(text)); !apierrors.IsConflict(err) {
			return err
		}
	}
}

func (c *cluster) as(name string) client.Transport {
	if name == "" {
		return c.p.Admin()
	}
	return c.p.Server().As(&user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}, "test")
}

// refused expects that a document is refused with a status.
func (c *cluster) refused(verb, doc string, want metav1.Status) {
	c.t.Helper()
	_, err := c.send(verb, "", doc)
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		c.t.Fatalf("%s %s: got %v, want %q", verb, doc, err, want.Message)
	}
	got := status.Status()
	if got.Message != want.Message || want.Code != 0 && got.Code != want.Code || want.Reason != "" && got.Reason != want.Reason {
		c.t.Errorf("%s %s:\n got %d %s %q\nwant %d %s %q", verb, doc, got.Code, got.Reason, got.Message, want.Code, want.Reason, want.Message)
	}
}

// passes expects that a document is taken.
func (c *cluster) passes(verb, doc string) resource.Object {
	c.t.Helper()
	obj, err := c.send(verb, "", doc)
	if err != nil {
		c.t.Fatalf("%s %s: %v", verb, doc, err)
	}
	synctest.Wait()
	return obj.(resource.Object)
}

// http sends a request as bytes, and returns the answer with its warnings.
func (c *cluster) http(method, path, body string) (code int, answer string, warnings []string) {
	c.t.Helper()
	doc, err := yaml.YAMLToJSON([]byte(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(c.t.Context(), method, path, bytes.NewReader(doc))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	c.p.Server().Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String(), w.Header().Values("Warning")
}

const group = "admissionregistration.k8s.io/v1"

// rule names what policies of these tests are for.
func rule(operations, apiGroup, version, resources string) string {
	return fmt.Sprintf(`{operations: [%s], apiGroups: ["%s"], apiVersions: [%s], resources: [%s]}`, operations, apiGroup, version, resources)
}

// validating is a policy for config maps, and a binding of the same name.
func validating(name, spec, binding string) []string {
	return validatingFor(name, rule("CREATE, UPDATE", "", "v1", "configmaps"), spec, binding)
}

func validatingFor(name, rule, spec, binding string) []string {
	return []string{
		fmt.Sprintf("{apiVersion: %s, kind: ValidatingAdmissionPolicy, metadata: {name: %s}, spec: {matchConstraints: {resourceRules: [%s]}, %s}}", group, name, rule, spec),
		fmt.Sprintf("{apiVersion: %s, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %s}, spec: {policyName: %s, %s}}", group, name, name, binding),
	}
}

// mutating is a policy for config maps, and a binding of the same name.
func mutating(name, spec string) []string {
	return mutatingFor(name, rule("CREATE, UPDATE", "", "v1", "configmaps"), spec, "")
}

func mutatingFor(name, rule, spec, binding string) []string {
	if !strings.Contains(spec, "reinvocationPolicy") {
		spec += ", reinvocationPolicy: Never"
	}
	return []string{
		fmt.Sprintf("{apiVersion: %s, kind: MutatingAdmissionPolicy, metadata: {name: %s}, spec: {matchConstraints: {resourceRules: [%s]}, %s}}", group, name, rule, spec),
		fmt.Sprintf("{apiVersion: %s, kind: MutatingAdmissionPolicyBinding, metadata: {name: %s}, spec: {policyName: %s%s}}", group, name, name, binding),
	}
}

const (
	deny  = "validationActions: [Deny]"
	named = `{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {a: %q}}`
)

func configMap(name, value string) string { return fmt.Sprintf(named, name, value) }

func denied(name, policy, message string) metav1.Status {
	return metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: fmt.Sprintf(
		"configmaps %q is forbidden: ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", name, policy, policy, message)}
}

func has(list []string, part string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, part) })
}
