package apiserver

import (
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/trace"
)

// TestBadDirectivesOfPatchesAreRefused sends strategic merge patches whose directives say nothing that can be done.
func TestBadDirectivesOfPatchesAreRefused(t *testing.T) {
	f := newFixture(t)
	const all = "/apis/apps/v1/namespaces/default/deployments"
	f.must(201, "POST", all, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"c"}]}}}}`)
	before := f.must(200, "GET", all+"/d", "")
	// Upstream does not tell which directive it could not follow either.
	const refused = "the server rejected our request due to an error in our request"
	for _, c := range []struct {
		patch string
		code  int
		want  string
	}{
		{`{"spec":{"strategy":{"$retainKeys":"type"}}}`, 400, "invalid patch format of retainKeys"},
		{`{"spec":{"template":{"spec":{"$setElementOrder":[{"name":"c"}]}}}}`, 400, "invalid patch format of setElementOrder list"},
		{`{"metadata":{"$deleteFromPrimitiveList":["a"]}}`, 400, "invalid patch format of primitive list"},
		{`{"spec":`, 400, "BadRequest"},
		{`{"spec":{"strategy":{"$retainKeys":["type"],"rollingUpdate":{"maxSurge":1}}}}`, 400, "invalid patch format of retainKeys"},
		{`{"spec":{"template":{"spec":{"containers":[[{"name":"c"}]]}}}}`, 422, refused},
	} {
		if got := f.must(c.code, "PATCH", all+"/d", c.patch, strategic); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s", c.patch, got, c.want)
		}
	}
	trace.Proves(t, "DEF-K02/causes")
	strategy := f.must(422, "PATCH", all+"/d", `{"spec":{"strategy":{"type":"Recreate"}}}`, strategic)
	for _, want := range []string{`"reason":"FieldValueForbidden"`, `"field":"spec.strategy.rollingUpdate"`} {
		if !strings.Contains(strategy, want) {
			t.Errorf("got %s, want %s", strategy, want)
		}
	}
	if got := f.must(200, "GET", all+"/d", ""); got != before {
		t.Errorf("got %s after all that, want %s", got, before)
	}
}
