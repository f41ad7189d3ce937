package apiserver

import (
	"context"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/apiserver/write"
	"github.com/kemudi/kemudi/internal/auth/authn"
)

// tokenless refuses tokens for one account.
type tokenless struct{ write.NoAdmission }

func (tokenless) Mutate(_ context.Context, a *admission.Attributes) error {
	req, ok := a.Object.(*authenticationv1.TokenRequest)
	if ok && a.Sub == "token" && a.Operation == admission.Create && a.Name == "kept" && *req.Spec.ExpirationSeconds == 3600 {
		return a.Forbid("no tokens for it")
	}
	return nil
}

func TestTokensAreAdmittedAndFitTheirAccount(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.Admission, o.Tokens = tokenless{}, issuerAs(t, authn.IssuerOptions{MaxLife: 2 * time.Hour})
	})
	const accounts = "/api/v1/namespaces/default/serviceaccounts"
	f.must(201, "POST", accounts, `{"metadata":{"name":"kept"}}`)
	robot := decoded[metav1.PartialObjectMetadata](t, f.must(201, "POST", accounts, `{"metadata":{"name":"robot"}}`))
	f.must(201, "POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"serviceAccountName":"robot","nodeName":"gone","containers":[{"name":"c","image":"i"}]}}`)
	const head = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest",`
	bound := func(apiVersion, kind, uid string) string {
		return head + `"spec":{"boundObjectRef":{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","name":"p"` + uid + `}}}`
	}
	for _, q := range []struct {
		name, account, body string
		code                int
		want                string
	}{
		{"refused", "kept", head + `"spec":{}}`, 403, `serviceaccounts \"kept\" is forbidden: no tokens for it`},
		{"no account", "none", head + `"spec":{}}`, 404, `serviceaccounts \"none\" not found`},
		{"another's name", "robot", head + `"metadata":{"name":"kept"},"spec":{}}`, 422, `TokenRequest.authentication.k8s.io \"robot\" is invalid: metadata.name: Invalid value: \"kept\": must match the service account name if specified`},
		{"another's namespace", "robot", head + `"metadata":{"namespace":"kept"},"spec":{}}`, 400, `the namespace of the provided object does not match the namespace sent on the request`},
		{"another's UID", "robot", head + `"metadata":{"uid":"u"},"spec":{}}`, 409, `Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"robot\": the UID in the token request (u) does not match the UID of the service account (`},
		{"too short", "robot", head + `"spec":{"expirationSeconds":10}}`, 422, `TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds`},
		{"a kind that tokens are not bound to", "robot", bound("v1", "ConfigMap", ""), 400, `cannot bind token to object of type /v1, Kind=ConfigMap`},
		{"a kind of another group", "robot", bound("apps/v1", "Pod", ""), 400, `cannot bind token to object of type apps/v1, Kind=Pod`},
		{"another pod", "robot", bound("v1", "Pod", `,"uid":"u"`), 409, `Operation cannot be fulfilled on Pod \"p\": the UID in the bound object reference (u) does not match the UID in record.`},
		{"a pod on a node that is gone", "robot", bound("v1", "Pod", ""), 201, `"token":"`},
	} {
		w := f.ask("POST", accounts+"/"+q.account+"/token", q.body)
		if got := w.Body.String(); w.Code != q.code || !strings.Contains(got, q.want) {
			t.Errorf("%s: got %d %s, want %d %s", q.name, w.Code, got, q.code, q.want)
		}
	}
	w := f.ask("POST", accounts+"/robot/token", head+`"spec":{"expirationSeconds":36000}}`)
	if got := warningsOf(t, w.Header()); len(got) != 1 || got[0] != "requested expiration of 36000 seconds shortened to 7200 seconds" {
		t.Errorf("a long life: got warnings %q", got)
	}
	if got := decoded[metav1.PartialObjectMetadata](t, w.Body.String()); got.UID != robot.UID {
		t.Errorf("got the UID %s, want that of the account, %s", got.UID, robot.UID)
	}
}
