package policy_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/resource"
)

func TestParamsAndObjectsMayBeOfKindsThatComeAtRunTime(t *testing.T) {
	in(t, func(c *cluster) {
		limits := custom.Define(custom.Kind{
			Names:    resource.Names{Group: "example.com", Version: "v1", Kind: "Limit", Plural: "limits", Namespaced: true},
			Versions: []custom.Version{{Name: "v1", Served: true}, {Name: "v2", Served: true}},
		}).Def
		c.make(validating("p", `paramKind: {apiVersion: example.com/v2, kind: Limit}, validations: [{expression: "object.data.a == params.spec.only", messageExpression: "params.apiVersion + ' ' + params.metadata.name + ' wants ' + params.spec.only"}]`,
			deny+", paramRef: {name: l, parameterNotFoundAction: Deny}")...)
		refused := func(want string) {
			t.Helper()
			if _, err := c.send("create", "", configMap("m", "x")); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		refused("failed to find resource referenced by paramKind: 'example.com/v2, Kind=Limit'")
		if err := c.p.AddKind(c.t.Context(), limits); err != nil {
			t.Fatal(err)
		}
		refused("no params found for policy binding with `Deny` parameterNotFoundAction")
		// Objects of the kind are changed and refused as others are, whatever their version.
		c.make(mutatingFor("limits", rule("CREATE", "example.com", "v2", "limits"), "mutations: ["+
			applied(`Object{spec: Object.spec{applied: object.apiVersion}}`)+","+operations(`[JSONPatch{op: "add", path: "/spec/patched", value: object.spec.applied}]`)+"]", "")...)
		c.make(validatingFor("limits", rule("'*'", "example.com", "v1", "limits"), `validations: [{expression: "object == null || object.spec.only != 'bad'", message: spoilt}]`, deny)...)
		post := func(version, name, only string) (int, string) {
			code, answer, _ := c.http("POST", "/apis/example.com/"+version+"/namespaces/default/limits", "{apiVersion: example.com/"+version+", kind: Limit, metadata: {name: "+name+"}, spec: {only: "+only+"}}")
			synctest.Wait()
			return code, answer
		}
		if code, answer := post("v1", "l", "good"); code != http.StatusCreated || !strings.Contains(answer, `"apiVersion":"example.com/v1"`) || !strings.Contains(answer, `"applied":"example.com/v2"`) || !strings.Contains(answer, `"patched":"example.com/v2"`) {
			t.Errorf("got %d %s, want it changed at v2 and answered at v1", code, answer)
		}
		if code, answer := post("v2", "b", "bad"); code != http.StatusUnprocessableEntity || !strings.Contains(answer, "spoilt") {
			t.Errorf("got %d %s, want it refused", code, answer)
		}
		refused("example.com/v2 l wants good")
		c.passes("create", configMap("m", "good"))
		c.p.RemoveKind(limits)
		refused("failed to find resource referenced by paramKind: 'example.com/v2, Kind=Limit'")
	})
}
