package request_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/cel/request"
)

// only lets a user do one thing.
func only(name, verb string) authorizer.AuthorizerFunc {
	return func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == name && a.GetVerb() == verb {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "not you", nil
	}
}

func TestExpressionsSeeTheRequest(t *testing.T) {
	t.Parallel()
	no := false
	in := &request.Input{
		Object: &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "y"}},
			Data: map[string]string{"k": "v"},
		},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}, OwnerReferences: []metav1.OwnerReference{{Name: "o"}}}},
		Request: &admissionv1.AdmissionRequest{
			Name: "a", Namespace: "shop", Operation: admissionv1.Create, DryRun: &no, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			RequestResource: &metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			UserInfo:        authenticationv1.UserInfo{Username: "alice", Groups: []string{"g"}},
		},
		User: &user.DefaultInfo{Name: "alice"}, Authorizer: only("alice", "approve"),
	}
	for text, want := range map[string]string{
		`object.kind == 'ConfigMap' && object.data.k == 'v' && object.metadata.labels['x'] == 'y'`:                               "true",
		`oldObject == null && namespaceObject.metadata.labels.team == 'a'`:                                                       "true",
		`request.operation == 'CREATE' && request.userInfo.groups.exists(g, g == 'g') && !request.dryRun`:                        "true",
		`authorizer.requestResource.check('approve').allowed() && !authorizer.group('').resource('pods').check('get').allowed()`: "true",
		`object.data.missing == 'x'`:                                    "expression 'object.data.missing == 'x'' resulted in error: no such key: missing",
		`object.data.k == 'w' || '10.0.0.1'.matches('^10[.]') && false`: "false",
	} {
		e, wrong := request.Compile(request.Environment(request.Uses{Authorizer: true}), request.New, text, cel.BoolType)
		if wrong != nil {
			t.Errorf("%s: %v", text, wrong)
			continue
		}
		budget := request.MatchBudget
		value, err := e.Eval(t.Context(), in, &budget)
		got := ""
		if err != nil {
			got = err.Error()
		} else if got = "false"; value.Value() == true {
			got = "true"
		}
		if got != want || budget >= request.MatchBudget {
			t.Errorf("%s: got %s with %d left, want %s", text, got, budget, want)
		}
	}
}

func TestExpressionsThatCostTooMuchEnd(t *testing.T) {
	t.Parallel()
	const text = `[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, a+b+c+d+e > 0)))))`
	e, wrong := request.Compile(request.Environment(request.Uses{}), request.New, text, cel.BoolType)
	if wrong != nil {
		t.Fatal(wrong)
	}
	budget := request.Budget(1000)
	in := &request.Input{Request: &admissionv1.AdmissionRequest{}}
	if _, err := e.Eval(t.Context(), in, &budget); !errors.Is(err, request.ErrBudget) || budget >= 0 {
		t.Errorf("got %v with %d left, want the budget spent", err, budget)
	}
	if _, wrong := request.Compile(request.Environment(request.Uses{}), request.New, "authorizer == null", cel.BoolType); wrong == nil || !strings.HasPrefix(wrong.Detail, "compilation failed: ") {
		t.Errorf("got %v, want that there is no authorizer", wrong)
	}
}
